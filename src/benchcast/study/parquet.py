"""Parquet files with a seal, a hash of all bytes, and limits on their expanded size.

Page checksums do not cover the footer, and libraries may crash on a footer with a flipped bit. The seal is therefore
checked before the file is parsed. It includes the size of the file: if the size differs, another program rewrote
the file, and the seal is ignored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchcast.errors import InputError, one_line

DAMAGE = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)  # exceptions on a damaged file
MOST_BYTES = 1 << 30  # expanded size of a table of scores or texts
SEAL, OPEN_SEAL = "seal", f"benchcast-seal:{0:064d}:{0:012d}"  # key and placeholder in the metadata of the schema
SEALED = re.compile(rb"benchcast-seal:([0-9a-f]{64}):([0-9]{12})")


def write_table(path: Path, table: pa.Table, metadata: Mapping[str, str], *, delta: Mapping[str, str]) -> None:
    """Write a table with page checksums and a seal; `delta` maps delta-encoded columns to their encoding."""
    sealed = table.replace_schema_metadata({**metadata, SEAL: OPEN_SEAL})
    options = {"use_dictionary": False, "column_encoding": dict(delta), "write_page_checksum": True}
    pq.write_table(sealed, path, compression="zstd", **options)
    blob = path.read_bytes()
    size = f"{len(blob):012d}"
    blob = blob.replace(OPEN_SEAL.encode(), f"{OPEN_SEAL[: -len(size)]}{size}".encode())
    path.write_bytes(blob.replace(_open(size), _open(size, hashlib.sha256(blob).hexdigest())))


def _open(size: str, digest: str = f"{0:064d}") -> bytes:
    return f"benchcast-seal:{digest}:{size}".encode()


def seal_holds(blob: bytes) -> bool:
    """Whether a file matches its seal; true without a seal or with another size."""
    for digest, size in SEALED.findall(blob):
        if int(size) == len(blob):
            rest = blob.replace(digest, b"0" * 64)
            return bool(hashlib.sha256(rest).hexdigest().encode() == digest)
    return True


def read_table(
    path: Path, columns: Sequence[str] | None = None, *, rows: int | None = None, values: int | None = None
) -> pa.Table:
    """Read a Parquet file after checking its seal and its expanded size.

    Parameters
    ----------
    path : the file
    columns : columns to read, by default all; absent columns are ignored
    rows, values : most rows, and most values of one column; more raise an error before the file is expanded, since
        a kilobyte can expand to gigabytes
    """
    blob = path.read_bytes()
    if not seal_holds(blob):
        raise InputError(f"{path}: damaged: it does not match its hash; restore it, or import or collect it again")
    try:
        # Without threads: Arrow sometimes aborts a process that exits soon after its threads have read a file
        # (apache/arrow issue 34314), and for files of this size they do not save time.
        with pq.ParquetFile(pa.BufferReader(blob), page_checksum_verification=True, pre_buffer=False) as file:
            in_file = file.schema_arrow.names
            read_columns = [c for c in columns if c in in_file] if columns is not None else in_file
            _refuse_large(path, file, read_columns, rows=rows, values=values)
            table = file.read(columns=read_columns, use_threads=False)
        table.validate(full=True)
    except DAMAGE as error:
        raise InputError(f"{path}: not a complete Parquet file ({one_line(error)})") from error
    return table


def hash_columns(path: Path, *, without: Container[str]) -> str:
    """SHA-256 of the stored columns but those of some names, the same whatever these hold; of all bytes if damaged."""
    blob = path.read_bytes()
    found = hashlib.sha256()
    try:
        if not seal_holds(blob):
            raise ValueError(f"{path}: damaged")
        metadata = pq.read_metadata(pa.BufferReader(blob))
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if column.path_in_schema.split(".")[0] not in without:
                    start = column.dictionary_page_offset or column.data_page_offset
                    found.update(blob[start : start + column.total_compressed_size])
    except DAMAGE:
        found = hashlib.sha256(blob)
    return found.hexdigest()


def read_metadata(path: Path) -> dict[str, str]:
    """Metadata of a file's schema."""
    return decoded(read_schema(path).metadata)


def decoded(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Metadata of a schema as text."""
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in (metadata or {}).items()}


def read_schema(path: Path) -> pa.Schema:
    """Names and types of the columns."""
    try:
        return pq.read_schema(path)
    except DAMAGE as error:
        raise InputError(f"{path}: not a complete Parquet file ({one_line(error)})") from error


def _refuse_large(
    path: Path, file: pq.ParquetFile, columns: Sequence[str], *, rows: int | None, values: int | None
) -> None:
    metadata = file.metadata
    if rows is not None and metadata.num_rows > rows:
        raise InputError(f"{path}: {metadata.num_rows} rows, at most {rows} can be needed here")
    size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if size > max(MOST_BYTES, 64 * (values or 0)):
        raise InputError(f"{path}: expands to {size / 2**30:.1f} GiB, which is more than can be needed here")
    for name in columns if values is not None else ():
        file.scan_contents([name])  # raises an error on broken metadata, on which the lines below would crash
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        parts = [i for i in range(len(file.schema)) if file.schema.column(i).path.split(".")[0] == name]
        count = sum(group.column(i).num_values for group in groups for i in parts if i < group.num_columns)
        if values is not None and count > values:
            raise InputError(f"{path}: column {name} holds {count} values, at most {values} can be needed here")
