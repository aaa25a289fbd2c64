"""Cells of CSV files that a spreadsheet does not run as formulas, and that read back unchanged.

A text that starts with =, +, -, @, a tab or a line break, and is no number, gets an apostrophe in front. So does one
that starts with apostrophes before such a character. Reading takes one apostrophe away where such a character follows.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # the wide forms count, too
ESCAPED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def escaped(text: str) -> str:
    """The text of a cell as it is written.

    >>> escaped("=1+1"), escaped("-0.5"), escaped("'=1"), escaped("my-7b")
    ("'=1+1", '-0.5', "''=1", 'my-7b')
    """
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def unescaped(cell: str) -> str:
    """The text that was written as this cell.

    >>> unescaped("'=1+1"), unescaped("-0.5"), unescaped("''=1"), unescaped("it's")
    ('=1+1', '-0.5', "'=1", "it's")
    """
    return cell[1:] if ESCAPED.match(cell) else cell


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV text; NaN and None are empty cells, a whole number has no decimal point."""
    return "".join(_line([_cell(value) for value in row]) for row in (header, *rows))


def _line(cells: Sequence[Any]) -> str:
    """One row. The writer's CRLF makes it quote a carriage return in a name; the row itself ends with LF."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return escaped(value)
    if value is None or not isinstance(value, float):
        return value
    if math.isnan(value):
        return ""
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
