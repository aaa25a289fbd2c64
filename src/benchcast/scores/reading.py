"""What every reader of score files returns, and numbers as files write them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from benchcast.choices import SCORE_UNITS
from benchcast.errors import InputError
from benchcast.records import Score

FRACTION, PERCENT = 1.0, 100.0  # what a perfect score is written as
UNITS: dict[str, float] = dict(zip(SCORE_UNITS, (FRACTION, PERCENT), strict=True))
ABSENT = ("", "-", "–", "n/a", "nan", "none", "null")


@dataclass(frozen=True, slots=True)
class ScoreEntry:
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
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: {str(cell)[:40]!r} is not a number") from error
    if math.isnan(value):
        return None
    if not 0 <= value <= perfect:
        kind = "percentages" if perfect == PERCENT else "fractions"
        raise InputError(f"{where}: {value:g} is not between 0 and {perfect:g}; these scores are {kind}")
    return value / perfect


def number(value: Any) -> float:
    """A number that may be absent or a word such as "N/A"; NaN then."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return math.inf


def quantity(where: str, what: str, value: Any) -> float:
    """The same of what can be neither negative nor infinite."""
    found = number(value)
    if found < 0 or math.isinf(found):
        raise InputError(f"{where}: {what} is {str(value)[:20]}; a finite number from 0 is needed")
    return found
