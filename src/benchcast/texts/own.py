"""Texts of the user's own: JSONL, a folder of files, or a column of a Parquet file. Every one is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.formatting import did_you_mean, need_file
from benchcast.records import Text, TextSet
from benchcast.storage.tables import read_texts
from benchcast.texts.layouts import read_utf8


def read_own(path: Path, *, column: str = "text") -> TextSet:
    """All texts at a path; the kind of file decides how they are read."""
    if path.is_dir():
        return read_folder(path)
    if path.suffix.lower() == ".parquet":
        return read_column(path, column)
    return read_texts(path)


def read_folder(folder: Path) -> TextSet:
    """One text a file, hidden files aside; the source is the subfolder, or the folder itself."""
    texts = []
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in place.parts):
            source = place.parts[0] if len(place.parts) > 1 else folder.resolve().name
            texts.append(Text(place.as_posix(), source, read_utf8(path)))
    if not texts:
        raise InputError(f"{folder}: no files; a study needs at least one text")
    return TextSet.of(texts)


def read_column(path: Path, column: str) -> TextSet:
    """One text a row; columns id, source and answer_start are used where they are there."""
    from benchcast.storage.parquet import column_names, read_table

    need_file(path)
    names = column_names(path)
    if column not in names:
        found = f"found {', '.join(names)}; choose one with --column"
        raise InputError(f"{path}: no column {column!r}{did_you_mean(column, names)} ({found})")
    wanted = [n for n in ("id", "source", "answer_start") if n in names and n != column]
    rows: list[dict[str, Any]] = read_table(path, [column, *wanted]).to_pylist()
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
