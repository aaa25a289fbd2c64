"""Figure 8: does it help to take texts from several sources?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchcast.errors import NotEnoughDataError
from benchcast.methods import METHODS
from benchcast.methods.spec import check_methods
from benchcast.reports.charts import numbers_of_sources, source_errors, subsets
from lab.reproduce.context import StudyContext, need_features
from lab.reproduce.curves import count_figure
from lab.reproduce.outcome import Outcome, Table, cell, geometric_mean, grouped

DRAWS = {"paper": 2, "salience": 3}  # sets of sources tried per number of them; each is a fit of all tasks
ALL_TASKS = "geometric mean of tasks"


def fig8(context: StudyContext, methods: Sequence[str] = ("paper", "salience"), draws: int | None = None) -> Outcome:
    """Test error when only texts of some sources are used, by how many there are."""
    dataset, fold = context.dataset, context.fold
    check_methods(methods)
    for method in methods:
        if METHODS[method].needs_features:
            need_features(dataset, f"fig8 with {method}")
    sources = dataset.reference_tokens.sources
    if len(sources) < 2:
        raise NotEnoughDataError(f"fig8 needs texts of at least 2 sources, the study has {', '.join(sources)}")
    if not fold.test.any():
        raise NotEnoughDataError("fig8 needs test models; mark some in models.csv, or give families three sizes")
    rows = []
    for method in methods:
        for size in numbers_of_sources(len(sources)):
            for chosen in subsets(sources, size, draws or DRAWS.get(method, 3), seed=context.study.seed):
                context.on_step(f"{method}, {size} of {len(sources)} sources")
                rows += _rows(context, method, chosen)
    numbers = {**context.about(), "sources": sources, "mean": means(rows), "fits": rows}
    tasks = [t.name for t in dataset.tasks]
    figure = count_figure(
        [r for r in rows if r["mse"] > 0], [ALL_TASKS, *tasks], by="task", count="sources", title="sources of texts"
    )
    return Outcome("fig8", numbers, (_table(rows, methods),), {"": figure})


def _rows(context: StudyContext, method: str, chosen: Sequence[str]) -> list[dict[str, Any]]:
    errors = source_errors(context.dataset, context.fold, context.study.texts, method=method, chosen=chosen)
    if errors is None:
        return []
    named = [(task.name, float(e)) for task, e in zip(context.dataset.tasks, errors, strict=True)]
    named.append((ALL_TASKS, geometric_mean([e for _, e in named])))
    base = {"method": method, "sources": len(chosen), "chosen": list(chosen)}
    return [{**base, "task": name, "own_texts": _has_own(context, name, chosen), "mse": mse} for name, mse in named]


def _has_own(context: StudyContext, task: str, chosen: Sequence[str]) -> bool | None:
    task_sources = [t.sources for t in context.dataset.tasks if t.name == task]
    return bool(set(task_sources[0]) & set(chosen)) if task_sources else None


def means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over subsets by method, task and number of sources; with the task's own texts in and out, too."""
    out = []
    for (method, task, size), group in grouped(rows, "method", "task", "sources").items():
        out.append(
            {
                "method": method,
                "task": task,
                "sources": size,
                "subsets": len(group),
                "mse": _mean([r["mse"] for r in group]),
                "mse_with_own_texts": _mean([r["mse"] for r in group if r["own_texts"]]),
                "mse_without": _mean([r["mse"] for r in group if r["own_texts"] is False]),
            }
        )
    return out


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _table(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> Table:
    mean_of = {(m["method"], m["task"], m["sources"]): m for m in means(rows)}
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    lines = tuple(
        (
            f"{method}: {size} source{'s' if size > 1 else ''}",
            str(mean_of[method, tasks[0], size]["subsets"]),
            *(cell(mean_of[method, task, size]["mse"]) for task in tasks),
        )
        for method in methods
        for size in sorted({r["sources"] for r in rows if r["method"] == method})
    )
    return Table(("test MSE, mean of subsets", "subsets", *tasks), lines, "texts of some sources only")
