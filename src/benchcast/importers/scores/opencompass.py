"""Read summary_*.csv of OpenCompass: rows are data sets, columns are models, scores are 0 to 100 or `-`."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from benchcast.errors import InputError
from benchcast.importers.scores.entries import PERCENT, ReaderOptions, ScoreEntry, ScoreFile, fraction
from benchcast.records import Score

HARNESS = "opencompass"
ABOUT = ("dataset", "version", "metric", "mode")


def is_summary(header: Sequence[str]) -> bool:
    """Whether a header is that of a summary."""
    return tuple(header[:4]) == ABOUT


def read_summary(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """All scores of a summary; rows of dashes are separators."""
    path, perfect = file.path, options.perfect(PERCENT)
    rows = [row for row in csv.reader(file.text.splitlines()) if row]
    models = [m.strip() for m in rows[0][4:]]
    for model in models:
        if models.count(model) > 1:
            raise InputError(f"{path}: two columns of model {model!r}; remove or rename one")
    entries = []
    for row in rows[1:]:
        task = row[0].strip()
        if task.startswith("---") or all(cell.strip() in ("-", "") for cell in row[1:]):
            continue
        if len(row) != len(rows[0]):
            raise InputError(f"{path}: {task}: {len(row)} cells, the header has {len(rows[0])}")
        version = " ".join(x.strip() for x in (row[1], row[3]) if x.strip() not in ("-", ""))
        for model, cell in zip(models, row[4:], strict=True):
            where = f"{path}: {task}: {model}"
            value = fraction(where, cell, perfect)
            if value is not None:
                score = Score(model, task, value, harness=HARNESS, version=version)
                entries.append(ScoreEntry(where, score, row[2].strip()))
    return entries
