"""Cells in and out: rows of CSV, checks of text, suggestions for mistyped words, numbers as text or null."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from benchcast.errors import InputError


def need_file(path: Path) -> None:
    """Refuse what is not a file, and tell a folder from nothing."""
    if not path.is_file():
        raise InputError(f"{path}: {'a folder; a file is needed' if path.is_dir() else 'no such file'}")


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV with a header, all cells as text."""
    need_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            header = [h.strip() for h in reader.fieldnames or []]
            twice = {h for h in header if header.count(h) > 1}
            if twice:
                raise InputError(f"{path}: column {', '.join(sorted(twice))} occurs twice")
            reader.fieldnames = header
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InputError(f"{path}: line {number} has another number of cells than the header")
    return rows


def is_unicode(text: str) -> bool:
    """Whether a string can be written at all: JSON lets half a surrogate pair through."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def near(word: str, words: Iterable[str]) -> str:
    """`; did you mean …?` where something is near, else nothing."""
    match = get_close_matches(word, list(words), n=1)
    return f"; did you mean {match[0]!r}?" if match else ""


def number(value: float, form: str = ".2e") -> str:
    """A number as text, or a dash where there is none."""
    return format(value, form) if math.isfinite(value) else "–"


def null(value: Any) -> Any:
    """The value as JSON can say it: a number that is none, NaN or infinite, is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """The same in plain JSON values, arrays as lists; what cannot be said is null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else null(value)
