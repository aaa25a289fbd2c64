"""Parquet files: sealed with a hash of all their bytes, and read only where they are small enough for what they hold.

Checksums of pages do not cover the footer, and libraries may crash on a footer with a flipped bit. The seal is looked
at before anything is parsed. It holds the size of the file too: a file of another size was written anew by another
program, and is read without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchcast.errors import InputError, one_line

DAMAGE = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)  # what a broken file raises
MOST_BYTES = 1 << 30  # of a table of scores or texts, once it is expanded
SEAL, OPEN_SEAL = "seal", f"benchcast-seal:{0:064d}:{0:012d}"  # in the metadata of the schema; without hash and size
SEALED = re.compile(rb"benchcast-seal:([0-9a-f]{64}):([0-9]{12})")


def write_table(path: Path, table: pa.Table, metadata: Mapping[str, str], *, delta: Mapping[str, str]) -> None:
    """Write a table with page checksums and a seal; `delta` names the encoding of columns that are stored as steps."""
    made = table.replace_schema_metadata({**metadata, SEAL: OPEN_SEAL})
    kept = {"use_dictionary": False, "column_encoding": dict(delta), "write_page_checksum": True}
    pq.write_table(made, path, compression="zstd", **kept)
    blob = path.read_bytes()
    size = f"{len(blob):012d}"
    blob = blob.replace(OPEN_SEAL.encode(), f"{OPEN_SEAL[: -len(size)]}{size}".encode())
    path.write_bytes(blob.replace(_open(size), _open(size, hashlib.sha256(blob).hexdigest())))


def _open(size: str, digest: str = f"{0:064d}") -> bytes:
    return f"benchcast-seal:{digest}:{size}".encode()


def seal_holds(blob: bytes) -> bool:
    """Whether a file is, byte for byte, what was written; true also where there is no seal or another size."""
    for digest, size in SEALED.findall(blob):
        if int(size) == len(blob):
            rest = blob.replace(digest, b"0" * 64)
            return bool(hashlib.sha256(rest).hexdigest().encode() == digest)
    return True


def read_table(
    path: Path, columns: Sequence[str] | None = None, *, rows: int | None = None, values: int | None = None
) -> pa.Table:
    """The named columns, or all; those that are absent are left out.

    A file of more than `rows` rows, or with a column of more than `values` values, is refused before it is read: a
    kilobyte can expand to gigabytes.
    """
    blob = path.read_bytes()
    if not seal_holds(blob):
        raise InputError(f"{path}: damaged: not the bytes that were written; restore it, or import or collect it again")
    try:
        with pq.ParquetFile(pa.BufferReader(blob), page_checksum_verification=True) as file:
            known = file.schema_arrow.names
            taken = [c for c in columns if c in known] if columns is not None else known
            _refuse_large(path, file, taken, rows=rows, values=values)
            table = file.read(columns=taken)
        table.validate(full=True)
    except DAMAGE as error:
        raise InputError(f"{path}: not a whole Parquet file ({one_line(error)})") from error
    return table


def read_metadata(path: Path) -> dict[str, str]:
    """What a file says of itself."""
    return decoded(read_schema(path).metadata)


def column_names(path: Path) -> list[str]:
    """Names of all columns."""
    return list(read_schema(path).names)


def decoded(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Metadata of a schema as text."""
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in (metadata or {}).items()}


def read_schema(path: Path) -> pa.Schema:
    """Names and types of the columns."""
    try:
        return pq.read_schema(path)
    except DAMAGE as error:
        raise InputError(f"{path}: not a whole Parquet file ({one_line(error)})") from error


def _refuse_large(
    path: Path, file: pq.ParquetFile, columns: Sequence[str], *, rows: int | None, values: int | None
) -> None:
    found = file.metadata
    if rows is not None and found.num_rows > rows:
        raise InputError(f"{path}: {found.num_rows} rows, at most {rows} can be needed here")
    size = sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
    if size > max(MOST_BYTES, 64 * (values or 0)):
        raise InputError(f"{path}: expands to {size / 2**30:.1f} GiB, which is more than can be needed here")
    for name in columns if values is not None else ():
        held = _values(file, name)
        if values is not None and held > values:
            raise InputError(f"{path}: column {name} holds {held} values, at most {values} can be needed here")


def _values(file: pq.ParquetFile, column: str) -> int:
    """How many values a column holds, lists counted out."""
    file.scan_contents([column])  # raises where the metadata is broken, on which the lines below would crash
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    return sum(own.column(at).num_values for own in groups for at in _places(file, column) if at < own.num_columns)


def _places(file: pq.ParquetFile, column: str) -> Iterable[int]:
    return (i for i in range(len(file.schema)) if file.schema.column(i).path.split(".")[0] == column)
