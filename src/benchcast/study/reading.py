"""Read CSV and JSON files of other tools."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.study.csv_cells import unescaped

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # of cells, in files of other tools
MOST_DOTS = 20  # parts of one name; the time to read a name grows with the square of its parts
STRINGS = re.compile(
    r"\"\"\"(?:[^\"\\]|\\.|\"{1,2}(?!\"))*+\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'|#[^\n]*+", re.DOTALL
)  # and comments: what they hold is no name
DOTTED = re.compile(rf"(?:\.[^.,=\[\]{{}}\n]*+){{{MOST_DOTS}}}")


def need_file(path: Path) -> None:
    """Raise an error if the path is not a file; the message distinguishes a folder from a missing path."""
    if not path.is_file():
        raise InputError(f"{path}: {'a folder; a file is needed' if path.is_dir() else 'no such file'}")


def read_utf8(path: Path) -> str:
    """The content of a UTF-8 file, with unchanged line ends and without a BOM."""
    return as_utf8(path.read_bytes(), str(path))


def as_utf8(content: bytes, where: str) -> str:
    """The text of a UTF-8 file or of a part of it, without a BOM; `where` is its origin, for messages."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: not UTF-8 text ({error.reason} at byte {error.start}); convert it to UTF-8"
        ) from error


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, one at a time, without a BOM; only line feeds end a line."""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as lines:
            yield from lines
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason}); convert it to UTF-8") from error


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file with a header, all values as text."""
    need_file(path)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        return parse_csv(lines, path)


def parse_csv(lines: Iterable[str], path: Path) -> list[dict[str, str]]:
    """Rows of the lines of a CSV file that is open or has been read; `path` is for messages."""
    try:
        reader = csv.DictReader(lines, strict=True)
        header = [unescaped(h.strip()) for h in reader.fieldnames or []]
        for separator, name in SEPARATORS.items() if len(header) == 1 else ():
            if separator in header[0]:
                raise InputError(f"{path}: cells are separated by {name}; needed are commas, and decimal points")
        repeated = {h for h, count in Counter(header).items() if count > 1}
        if repeated:
            raise InputError(f"{path}: column {', '.join(sorted(repeated))} occurs twice")
        reader.fieldnames = header
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InputError(f"{path}: line {number} has a different number of cells than the header")
    return [{key: unescaped(cell) for key, cell in row.items()} for row in rows]


def parse_json(line: str | bytes, where: str) -> Any:
    """The value of a JSON text; InputError if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error})") from error


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text; a ValueError or RecursionError if it is not TOML."""
    if DOTTED.search(STRINGS.sub("", text)):
        raise ValueError(f"a name with more than {MOST_DOTS} dots")
    return tomllib.loads(text)
