"""The record that all readers of score files return, and parsing of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from benchcast.choices import SCORE_UNITS
from benchcast.errors import InputError
from benchcast.records import Score

FRACTION, PERCENT = 1.0, 100.0  # value of a perfect score
UNITS: dict[str, float] = dict(zip(SCORE_UNITS, (FRACTION, PERCENT), strict=True))
ABSENT = ("", "-", "–", "n/a", "nan", "none", "null")


@dataclass(frozen=True, slots=True)
class ScoreEntry:
    """One score of a file, with the names used in the file."""

    where: str  # origin, for messages
    score: Score
    metric: str = ""
    stderr: float = math.nan


def fraction(where: str, cell: Any, perfect: float) -> float | None:
    """Parse an accuracy.

    Parameters
    ----------
    where : origin of the cell, for messages
    cell : value of the cell
    perfect : value of a perfect score in the file, 1 or 100

    Returns
    -------
    The accuracy in 0..1; None for an empty cell.
    """
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
    """The value as a float; NaN if it is not a number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return math.inf


def quantity(where: str, what: str, value: Any) -> float:
    """The value as a non-negative finite float; NaN if it is not a number."""
    parsed = number(value)
    if parsed < 0 or math.isinf(parsed):
        raise InputError(f"{where}: {what} is {str(value)[:20]}; a finite number from 0 is needed")
    return parsed
