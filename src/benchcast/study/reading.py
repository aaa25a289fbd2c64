"""Read CSV and JSON files of other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.messages import parse_csv

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # of cells, in files of other tools


def need_file(path: Path) -> None:
    """Raise an error if the path is not a file; the message distinguishes a folder from a missing path."""
    if not path.is_file():
        raise InputError(f"{path}: {'a folder; a file is needed' if path.is_dir() else 'no such file'}")


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file with a header, all values as text."""
    need_file(path)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        return parse_csv(lines, path)


def parse_json(line: str | bytes, where: str) -> Any:
    """The value of a JSON text; InputError if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error})") from error
