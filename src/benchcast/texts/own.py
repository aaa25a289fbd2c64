"""Read the user's texts: JSONL, a folder of files, or a column of a Parquet file. All are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.formatting import did_you_mean, need_file
from benchcast.records import Text, TextSet
from benchcast.storage.tables import read_texts
from benchcast.texts.layouts import read_utf8


def read_own(path: Path, *, column: str = "text") -> TextSet:
    """Read all texts at a path: a folder, a Parquet file (`column` has the texts), or a JSONL file."""
    if path.is_dir():
        return read_folder(path)
    if path.suffix.lower() == ".parquet":
        return read_column(path, column)
    return read_texts(path)


def read_folder(folder: Path) -> TextSet:
    """Read each file of a folder, except hidden ones, as a text; its source is the subfolder, or the folder."""
    texts = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in relative.parts):
            source = relative.parts[0] if len(relative.parts) > 1 else folder.resolve().name
            texts.append(Text(relative.as_posix(), source, read_utf8(path)))
    if not texts:
        raise InputError(f"{folder}: no files; a study needs at least one text")
    return TextSet.of(texts)


def read_column(path: Path, column: str) -> TextSet:
    """Read each row of a Parquet file as a text, with its id, source and answer_start if there are such columns."""
    from benchcast.storage.parquet import column_names, read_table

    need_file(path)
    names = column_names(path)
    if column not in names:
        hint = f"found {', '.join(names)}; choose one with --column"
        raise InputError(f"{path}: no column {column!r}{did_you_mean(column, names)} ({hint})")
    optional = [n for n in ("id", "source", "answer_start") if n in names and n != column]
    rows: list[dict[str, Any]] = read_table(path, [column, *optional]).to_pylist()
    return TextSet.of(_row(path, i, row, column) for i, row in enumerate(rows, start=1))


def _row(path: Path, number: int, row: dict[str, Any], column: str) -> Text:
    where = f"{path}: row {number}"
    text, start = row[column], row.get("answer_start")
    if not isinstance(text, str):
        raise InputError(f"{where}: {column} must be text, found {text!r}")
    if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
        raise InputError(f"{where}: answer_start must be a whole number of bytes, found {start!r}")
    name, source = row.get("id"), row.get("source")
    return Text(
        f"{path.stem}-{number}" if name is None else str(name),
        path.stem if source is None else str(source),
        text,
        start,
    )
