"""What all readers of score files share: the file, read once; the scores that they return; parsing of numbers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchcast.choices import SCORE_UNITS
from benchcast.errors import InputError
from benchcast.records import Score, Task
from benchcast.study.csv_cells import unescaped
from benchcast.study.reading import need_file, parse_csv, parse_json, read_utf8

FRACTION, PERCENT = 1.0, 100.0  # value of a perfect score
UNITS: dict[str, float] = dict(zip(SCORE_UNITS, (FRACTION, PERCENT), strict=True))
ABSENT = ("", "-", "–", "n/a", "nan", "none", "null")
MOST_ROWS = 1_000_000  # in a Parquet table of scores


@dataclass(frozen=True)
class ScoreFile:
    """A score file that has been read: its format is recognised and its scores are parsed without opening it again."""

    path: Path
    head: Any  # what formats are recognised by: the header of a table, or the document of a JSON file
    text: str = ""  # of a CSV file
    records: Sequence[Mapping[str, Any]] = ()  # rows of a Parquet file

    @classmethod
    def read(cls, path: Path) -> ScoreFile:
        """Read a JSON, CSV or Parquet file."""
        need_file(path)
        kind = path.suffix.lower()
        if kind == ".json":
            return cls(path, parse_json(read_utf8(path), str(path)))
        if kind == ".csv":
            text = read_utf8(path)
            header = next(csv.reader(io.StringIO(text, newline="")), [])
            return cls(path, [unescaped(h.strip()) for h in header], text=text)
        if kind == ".parquet":
            from benchcast.study.parquet import read_table

            records = read_table(path, rows=MOST_ROWS).to_pylist()
            return cls(path, list(records[0]) if records else [], records=records)
        raise InputError(f"{path}: scores come as .json, .csv or .parquet, not {kind or 'a file without ending'!r}")

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """Rows of a table, all values as text; a table without rows is an error."""
        rows = [{k: "" if v is None else str(v) for k, v in record.items()} for record in self.records]
        rows = rows or parse_csv(io.StringIO(self.text, newline=""), self.path)
        if not rows:
            raise InputError(f"{self.path}: no rows")
        return rows


@dataclass(frozen=True, slots=True)
class ScoreEntry:
    """One score of a file, with the names used in the file."""

    where: str  # origin, for messages
    score: Score
    metric: str = ""
    stderr: float = math.nan


# From a file of results, its document in the form of lm-evaluation-harness, and its scores.
Rescore = Callable[[ScoreFile, Mapping[str, Any], list[ScoreEntry]], list[ScoreEntry]]


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Tasks of the study and options of the user that readers need."""

    tasks: Sequence[Task]  # of the study
    pick: Callable[[list[str]], set[str]]  # chooses, from a file's tasks, those of the study and those to add
    unit: str | None = None  # "fraction" or "percent"
    columns: Sequence[str] = ()  # patterns of columns that are scores, in exports of trackers; none: by their names
    allow_limit: bool = False  # whether to accept lm-eval results of a part of each task
    rescore: Rescore | None = None  # replaces the scores of lm-eval results by scores of a part of their items

    def perfect(self, usual: float) -> float:
        """Value of a perfect score in a table, by the unit that the user gave; else the usual one of its format."""
        return UNITS[self.unit] if self.unit else usual


def results_in(document: Any) -> Mapping[str, Any]:
    """The results in the document of any harness, by task; empty if it has none."""
    results = document.get("results") if isinstance(document, Mapping) else None
    return results if isinstance(results, Mapping) else {}


def refuse_percent(file: ScoreFile, options: ReaderOptions) -> None:
    """Raise an error for --unit percent: all harnesses write fractions into JSON."""
    if options.unit == "percent":
        raise InputError(f"{file.path}: results files in JSON hold fractions; leave out --unit percent")


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
