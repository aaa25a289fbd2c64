"""The columns that a task's forecast depends on most, in a study made from a table of losses."""

from __future__ import annotations

from typing import Any

from benchcast.evaluate import Comparison
from benchcast.explaining import weigh_columns
from benchcast.records import NamedTexts, TextSet
from benchcast.reports.data import ReportModels, rounded

MOST = 6  # columns listed for each task
LEAST = 0.005  # smallest share of a listed column


def column_data(comparison: Comparison, shown: ReportModels, texts: TextSet) -> dict[str, Any] | None:
    """The columns with the largest weights of every task; None if the study has texts."""
    if not isinstance(texts, NamedTexts):
        return None
    method = comparison.methods[0]
    fits = [shown.new_fits[task, method] for task in comparison.tasks]
    return {
        "method": method,
        "tasks": [
            {
                "task": fit.task,
                "columns": [
                    {"name": w.column, "answers": w.answers, "share": rounded([w.share])[0]}
                    for w in weigh_columns(fit)[:MOST]
                    if w.share > LEAST
                ],
            }
            for fit in fits
            if fit.core.reads_losses
        ],
    }
