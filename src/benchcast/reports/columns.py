"""Which columns carry a task's forecast, in a study that was made from a table of losses."""

from __future__ import annotations

from typing import Any

from benchcast.evaluate import Comparison
from benchcast.explanation import weigh_columns
from benchcast.records import NamedTexts, TextSet
from benchcast.reports.data import ReportModels, rounded

MOST = 6  # columns of each task that are listed
LEAST = 0.005  # share of a column that is listed


def column_data(found: Comparison, shown: ReportModels, texts: TextSet) -> dict[str, Any] | None:
    """The weightiest columns of every task; None where the texts themselves are known."""
    if not isinstance(texts, NamedTexts):
        return None
    method = found.methods[0]
    fits = [shown.new_fits[task, method] for task in found.tasks]
    return {
        "method": method,
        "tasks": [
            {
                "task": fit.task,
                "columns": [
                    {"name": w.column, "answers": w.answers, "share": rounded([w.share])[0]}
                    for w in weigh_columns(texts, fit.core.task.answers, fit.salience, fit.supported)[:MOST]
                    if w.share > LEAST
                ],
            }
            for fit in fits
            if fit.core.reads_losses
        ],
    }
