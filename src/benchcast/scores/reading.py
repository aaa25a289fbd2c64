"""What every reader of score files returns, and numbers as files write them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from benchcast.errors import InputError
from benchcast.records import Score

FRACTION, PERCENT = 1.0, 100.0  # what a perfect score is written as
UNITS = {"fraction": FRACTION, "percent": PERCENT}
ABSENT = ("", "-", "–", "n/a", "nan", "none", "null")


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of a file. Its score carries the names as the file has them."""

    where: str
    score: Score
    metric: str = ""
    stderr: float = math.nan


def fraction(where: str, cell: Any, perfect: float) -> float | None:
    """An accuracy in 0..1; None where the file has none. The file's convention is given, never guessed."""
    if cell is None or isinstance(cell, bool):
        return None
    if isinstance(cell, str) and cell.strip().casefold() in ABSENT:
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {cell!r} is not a number") from error
    if math.isnan(value):
        return None
    if not 0 <= value <= perfect:
        kind = "percentages" if perfect == PERCENT else "fractions"
        raise InputError(f"{where}: {value:g} is not between 0 and {perfect:g}; these scores are {kind}")
    return value / perfect


def quantity(value: Any) -> float:
    """A number that may be absent or a word such as "N/A"; NaN then."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return math.nan
