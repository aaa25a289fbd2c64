"""Read plain CSV: long (one row per score), wide (models × tasks or tasks × models), and HELM's tables.

The unit of a wide file, fraction or percent, comes from the user or from its headings: `mmlu (%)`.
HELM's headings have the form `MMLU - EM`, and its scores are fractions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchcast.errors import InputError
from benchcast.importers.scores.entries import FRACTION, PERCENT, UNITS, ReaderOptions, ScoreEntry, ScoreFile, fraction
from benchcast.records import Score
from benchcast.study.tables import parse_scores, quantity

MODEL = ("model", "Model", "model_name", "fullname", "Model/adapter", "name")
TASK = ("task", "dataset", "benchmark", "scenario")
METRIC = ("metric", "metric_name")
VALUE = ("accuracy", "percent", "score", "value", "mean")
PERFECT_OF_COLUMN = {"accuracy": FRACTION, "percent": PERCENT}  # columns whose name implies the unit
NO_UNIT = "does not state whether a perfect score is 1 or 100; add --unit fraction or --unit percent"
PERCENT_MARK = re.compile(r"\s*\(?%\)?\s*$")


def is_long(header: Sequence[str]) -> bool:
    """Whether a header is that of a table with one row per score, as scores.csv."""
    return {"model", "task"} <= set(header) and not set(header) & {*METRIC, *VALUE[1:]}


def is_listed(header: Sequence[str]) -> bool:
    """Whether a header is that of a table with one row per score and other column names, as HELM exports it."""
    return all(any(c in header for c in names) for names in (MODEL, TASK, VALUE))


def read_listed(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """Scores of a table with one row per score, ignoring unknown columns."""
    header = list(file.rows[0])
    model, task, value = (next(c for c in names if c in header) for names in (MODEL, TASK, VALUE))
    metric = next((c for c in METRIC if c in header), "")
    perfect = UNITS[options.unit] if options.unit else PERFECT_OF_COLUMN.get(value)
    if perfect is None:
        raise InputError(f"{file.path}: column {value!r} {NO_UNIT}")
    entries = []
    for number, row in enumerate(file.rows, start=2):
        where = f"{file.path}: line {number}"
        if not row[model].strip() or not row[task].strip():
            raise InputError(f"{where}: a score needs a model and a task")
        accuracy = fraction(where, row[value], perfect)
        if accuracy is not None:
            score = replace(_about(where, row), model=row[model].strip(), task=row[task].strip(), accuracy=accuracy)
            error = fraction(f"{where}: stderr", row.get("stderr"), perfect)
            entries.append(
                ScoreEntry(where, score, row[metric].strip() if metric else "", math.nan if error is None else error)
            )
    return entries


def _about(where: str, row: Mapping[str, str]) -> Score:
    """Number of items, harness, version and shots of a row; names and accuracy are empty."""
    harness, version, shots, items = (row.get(c, "").strip() for c in ("harness", "version", "shots", "n_items"))
    if items and not items.isdecimal():
        raise InputError(f"{where}: n_items {items!r} is not a whole number")
    n_items = quantity(where, "n_items", items)
    return Score("", "", math.nan, n_items=n_items, harness=harness, version=version, shots=shots)


def read_long(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """Scores of a file in the form of scores.csv; a task that is neither of the study nor picked is an error."""
    also = options.pick([row["task"].strip() for row in file.rows])
    scores = parse_scores(file.path, file.rows, options.tasks, also=also, perfect=options.perfect(FRACTION))
    return [ScoreEntry(f"{file.path}: {s.model} on {s.task}", s) for s in scores]


def read_wide(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """Scores of the picked tasks of a table of models × tasks, or of tasks × models."""
    path, rows = file.path, file.rows
    header = list(rows[0])
    names = next((c for c in (*MODEL, *TASK) if c in header), None)
    if names is None:
        raise InputError(
            f"{path}: unknown format of a score file; a CSV needs a column 'model' (then one column for each task) "
            f"or 'task' (then one column for each model), found {', '.join(header[:6])}"
        )
    columns = [c for c in header if c != names]
    by_model = names in MODEL
    tasks = [_task(c) for c in columns] if by_model else [row[names].strip() for row in rows]
    chosen = options.pick(tasks)
    if not chosen:
        raise InputError(f"{path}: no task of study.toml in it; found {', '.join(dict.fromkeys(tasks)) or 'none'}")
    entries = []
    for number, row in enumerate(rows, start=2):
        for column in columns:
            task, model = (_task(column), row[names]) if by_model else (row[names].strip(), column)
            if task in chosen:
                score = Score(model.strip(), task, math.nan)
                entries += _cell(f"{path}: line {number}", column, row[column], score=score, unit=options.unit)
    return entries


def _task(column: str) -> str:
    return PERCENT_MARK.sub("", column.partition(" - ")[0]).strip()


def _cell(line: str, column: str, cell: str, *, score: Score, unit: str | None) -> list[ScoreEntry]:
    """The score in a cell, if there is one; `score` names its model and task."""
    where = f"{line}: {column}"
    _, dash, metric = column.partition(" - ")
    perfect = UNITS[unit] if unit else PERCENT if PERCENT_MARK.search(column) else FRACTION if dash else None
    if perfect is None:
        raise InputError(f"{where}: a wide table {NO_UNIT}")
    value = fraction(where, cell, perfect)
    if value is None:
        return []
    return [ScoreEntry(where, replace(score, accuracy=value, harness="helm" if dash else ""), metric.strip())]
