"""The first screen of the report: forecasts, how far to trust them, what is missing; no method but the used one.

Numbers are those of `data`; a task of it has `observed` and, by method, `forecasts`, in the order of the models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchcast.evaluation.comparison import FEWEST_HELD_OUT, Comparison
from benchcast.evaluation.error_ratio import FEWEST_FAMILIES
from benchcast.evaluation.ranking import points, trust, verdict_on
from benchcast.messages import counted, few
from benchcast.methods import METHODS
from benchcast.reports.data import ReportModels

NARROW = 0.05  # an interval of this width or wider is shown in whole percent
MOST_NEW, MOST_HELD_OUT = 12, 5  # rows of the first table; all forecasts are in the CSV file


def opening(comparison: Comparison, shown: ReportModels, tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first table with its words, the sentence on trust, and what is missing."""
    rows, lead = _listed(comparison, shown)
    return {
        "lead": lead,
        "scored": any(shown.role[i] != "new" for i in rows),
        "models": [_row(shown.models[i], tasks, comparison.used, i) for i in rows],
        "trust": trust(comparison),
        "missing": _missing(comparison, shown),
    }


def _listed(comparison: Comparison, shown: ReportModels) -> tuple[list[int], str]:
    """Indices of the models without a score, else of the last held-out model of each family; and what they are."""
    order = sorted(range(len(shown.infos)), key=lambda i: shown.infos[i].training_order)
    new = [i for i in order if shown.role[i] == "new"]
    by = f"forecast by {comparison.used}"
    if new:
        more = f"; the last {MOST_NEW} are shown" if len(new) > MOST_NEW else ""
        return new[-MOST_NEW:], f"{counted(len(new), 'model')} without a score, {by}{more}."
    tested = [i for i in order if shown.role[i] == "test"]
    last = list({str(shown.families[i]): i for i in tested}.values())[-MOST_HELD_OUT:]
    some = f"{len(last)} of {len(tested)} held-out models" if len(last) < len(tested) else "Held-out models"
    return last, f"Every model has a score. {some}, {by}, beside their scores."


def _row(model: str, tasks: Sequence[dict[str, Any]], method: str, i: int) -> dict[str, Any]:
    """The forecasts of model number `i`, a cell for each task."""
    cells = []
    for task in tasks:
        of_method, seen = task["forecasts"][method], task["observed"][i]
        forecast, low, high = (of_method[k][i] for k in ("forecast", "low", "high"))
        cells.append(
            {
                "forecast": "–" if forecast is None else f"{forecast:.1%}",
                "interval": "" if low is None else interval_in_percent(low, high),
                "score": "" if seen is None else f"{seen:.1%}",
                "outside": None not in (seen, low, high) and not low <= seen <= high,
            }
        )
    return {"model": model, "cells": cells}


def interval_in_percent(low: float, high: float) -> str:
    """The ends of an interval in percent, with a decimal where whole numbers would hardly differ.

    >>> interval_in_percent(0.5, 0.6), interval_in_percent(0.761, 0.764)
    ('50 – 60', '76.1 – 76.4')
    """
    digits = 1 if high - low < NARROW else 0
    return f"{100 * low:.{digits}f} – {100 * high:.{digits}f}"


def _missing(comparison: Comparison, shown: ReportModels) -> list[str]:
    """Lines on what would make forecasts surer, or possible."""
    lines = []
    families = len({str(f) for f in comparison.dataset.families})
    if families < FEWEST_FAMILIES:
        lines.append(
            f"The study has {families} famil{'y' if families == 1 else 'ies'}: with {FEWEST_FAMILIES} or more, "
            "intervals are narrower and methods can be told apart."
        )
    thin = [task for task in comparison.tasks if not comparison.measurable(task)]
    if thin:
        lines.append(
            f"Fewer than {FEWEST_HELD_OUT} held-out models have a score on {few(thin)}: nothing is measured there."
        )
    left_out = {**comparison.left_out, **shown.left_out}
    names = [name for name in left_out if name not in METHODS]
    if names:
        lines.append(f"Left out: {few(names)} (see Provenance for the reasons).")
    return lines


def captions(comparison: Comparison, method: str) -> list[dict[str, str]]:
    """For each task a caption with at most two numbers, and the rest in `more`."""
    return [_caption(comparison, task, method) for task in comparison.tasks]


def _caption(comparison: Comparison, task: str, method: str) -> dict[str, str]:
    measures, said = comparison.measures(task, method), verdict_on(comparison, task, method)
    if not comparison.measurable(task):
        return {"short": f"{counted(int(measures['n_test']), 'held-out model')}: too few to measure.", "more": ""}
    if not math.isfinite(measures["mse"]):
        return {"short": f"{method} gives no forecast of this task.", "more": ""}
    short = f"Misses by {points(measures['mae'])} on average"
    if math.isfinite(measures["coverage"]):
        short += f"; {measures['coverage']:.0%} of the scores are inside the intervals"
    more = "; ".join(clause for clause in (said.good, said.trust) if clause)
    return {"short": f"{short}.", "more": f"{more}."}


def against(comparison: Comparison) -> list[dict[str, str]]:
    """For each task, how the used method compares with the best baseline there."""
    said = {task: verdict_on(comparison, task, comparison.used).against for task in comparison.tasks}
    return [{"task": task, "says": clause} for task, clause in said.items() if clause]
