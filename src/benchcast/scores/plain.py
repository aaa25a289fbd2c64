"""CSV that people write: long (a row a score), wide (models × tasks, either way round), and HELM's tables.

A wide file does not say whether 1 or 100 is perfect, so the user does, or its headings do: `mmlu (%)`.
HELM's headings read `MMLU - EM`, and its scores are fractions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchcast.errors import InputError
from benchcast.formatting import read_csv
from benchcast.records import Score, Task
from benchcast.scores.reading import FRACTION, PERCENT, UNITS, ScoreEntry, fraction
from benchcast.storage.tables import quantity, read_scores

MODEL = ("model", "Model", "model_name", "fullname", "Model/adapter", "name")
TASK = ("task", "dataset", "benchmark", "scenario")
METRIC = ("metric", "metric_name")
VALUE = ("accuracy", "percent", "score", "value", "mean")
SAYS = {"accuracy": FRACTION, "percent": PERCENT}  # columns whose name tells what a perfect score is
UNSAID = "does not say whether a perfect score is 1 or 100; add --unit fraction or --unit percent"
PERCENT_MARK = re.compile(r"\s*\(?%\)?\s*$")


def is_long(header: Sequence[str]) -> bool:
    """One row a score, in the form of scores.csv."""
    return {"model", "task"} <= set(header) and not set(header) & {*METRIC, *VALUE[1:]}


def is_listed(header: Sequence[str]) -> bool:
    """One row a score, with names, metrics and values in columns of other names, as HELM exports them."""
    return all(any(c in header for c in names) for names in (MODEL, TASK, VALUE))


def read_listed(path: Path, rows: Sequence[Mapping[str, str]], *, unit: str | None) -> list[ScoreEntry]:
    """Every row; columns that are not known are not looked at."""
    model, task, value = (next(c for c in names if c in rows[0]) for names in (MODEL, TASK, VALUE))
    metric = next((c for c in METRIC if c in rows[0]), "")
    perfect = UNITS[unit] if unit else SAYS.get(value)
    if perfect is None:
        raise InputError(f"{path}: column {value!r} {UNSAID}")
    entries = []
    for number, row in enumerate(rows, start=2):
        where = f"{path}: line {number}"
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
    """What a row says beside the number itself, where it has columns for it."""
    harness, version, shots, items = (row.get(c, "").strip() for c in ("harness", "version", "shots", "n_items"))
    if items and not items.isdecimal():
        raise InputError(f"{where}: n_items {items!r} is not a whole number")
    n_items = quantity(where, "n_items", items)
    return Score("", "", math.nan, n_items=n_items, harness=harness, version=version, shots=shots)


def read_long(
    path: Path, tasks: Sequence[Task], wanted: Callable[[list[str]], set[str]], *, unit: str | None = None
) -> list[ScoreEntry]:
    """The form of scores.csv; a task that is neither the study's nor picked by `wanted` is taken for a typing error."""
    found = [row.get("task", "").strip() for row in read_csv(path)]
    scores = read_scores(path, tasks, also=wanted(found), perfect=UNITS[unit or "fraction"])
    return [ScoreEntry(f"{path}: {s.model} on {s.task}", s) for s in scores]


def read_wide(
    path: Path, rows: Sequence[Mapping[str, str]], *, unit: str | None, wanted: Callable[[list[str]], set[str]]
) -> list[ScoreEntry]:
    """The scores of the wanted tasks; `wanted` picks them from the names of tasks in the file."""
    header = list(rows[0])
    names = next((c for c in (*MODEL, *TASK) if c in header), None)
    if names is None:
        raise InputError(
            f"{path}: not a score file that is known; a CSV needs a column 'model' (then one column a task) "
            f"or 'task' (then one column a model), found {', '.join(header[:6])}"
        )
    columns = [c for c in header if c != names]
    by_model = names in MODEL
    tasks = [_task(c) for c in columns] if by_model else [row[names].strip() for row in rows]
    chosen = wanted(tasks)
    if not chosen:
        raise InputError(f"{path}: no task of study.toml in it; found {', '.join(dict.fromkeys(tasks)) or 'none'}")
    entries = []
    for number, row in enumerate(rows, start=2):
        for column in columns:
            task, model = (_task(column), row[names]) if by_model else (row[names].strip(), column)
            if task in chosen:
                entries += _cell(f"{path}: line {number}: {column}", Score(model.strip(), task, 0.0), row[column], unit)
    return entries


def _task(column: str) -> str:
    return PERCENT_MARK.sub("", column.partition(" - ")[0]).strip()


def _cell(where: str, score: Score, cell: str, unit: str | None) -> list[ScoreEntry]:
    column = where.rpartition(": ")[2]
    _, dash, metric = column.partition(" - ")
    perfect = UNITS[unit] if unit else PERCENT if PERCENT_MARK.search(column) else FRACTION if dash else None
    if perfect is None:
        raise InputError(f"{where}: a wide table {UNSAID}")
    value = fraction(where, cell, perfect)
    if value is None:
        return []
    return [ScoreEntry(where, replace(score, accuracy=value, harness="helm" if dash else ""), metric.strip())]
