"""Figure 6: how the capabilities of different families line up as Algorithm 2 goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchcast.errors import NotEnoughDataError
from benchcast.losses.dataset import Dataset
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.paper import paper
from benchcast.methods.task_fit import TaskFit
from benchcast.reports.charts import held_out_errors
from benchcast.splits import Fold
from lab.reproduce.context import StudyContext, need_features, role
from lab.reproduce.figures import law_panels, steps_figure
from lab.reproduce.laws import spaced
from lab.reproduce.outcome import Outcome, Table, cell

SHOWN = (0, 10, 40, 100, 200, 300)  # steps that get a panel


def fig6(context: StudyContext, task: str | None = None) -> Outcome:
    """Capability against accuracy at several steps of one task, and errors by step of all tasks."""
    dataset, fold = context.dataset, context.fold
    need_features(dataset, "fig6")
    if not fold.validation.any():
        raise NotEnoughDataError("fig6 needs validation models; mark some in models.csv, or give families three sizes")
    named = context.task(task)
    context.on_step("paper")
    fits = paper(dataset, [fold])[0]
    rows = [row for t, fit in enumerate(fits) for row in step_errors(dataset, fold, fit, t)]
    names = [f.task.name for f in fits]
    chosen = held_out_errors(dataset, fold, fits)
    ends = {
        name: step_summary([r for r in rows if r["task"] == name], fits[t], float(chosen[t]))
        for t, name in enumerate(names)
    }
    picked = named if named is not None else _most_moved(list(ends.values()))
    points, curves = step_panels(dataset, fold, fits[picked], picked)
    table = Table(
        ("task", "test MSE at step 0", "at the chosen step", "chosen step", "rate"),
        tuple(
            (name, cell(e["first"]), cell(e["chosen"]), f"{e['step']:.0f}", cell(e["rate"], "g"))
            for name, e in ends.items()
        ),
        "Algorithm 2, step chosen on the validation models",
    )
    numbers = {
        **context.about(),
        "tasks": ends,
        "shown_task": names[picked],
        "errors": rows,
        "points": points,
    }
    titles = list(dict.fromkeys(p["panel"] for p in points))
    figures = {
        "": law_panels(points, curves, titles, by="panel"),
        "-errors": steps_figure(rows, names),
    }
    return Outcome("fig6", numbers, (table,), figures)


def step_errors(dataset: Dataset, fold: Fold, fit: TaskFit, t: int) -> list[dict[str, Any]]:
    """Error of every role by step; the test models are looked at only at the steps kept in the history."""
    name, history = fit.task.name, fit.history
    rows = [
        {"task": name, "role": kind, "step": step, "mse": float(mse)}
        for kind in ("train", "validation")
        for step, mse in enumerate(history[f"{kind}_mse"])
    ]
    known = fold.test & np.isfinite(dataset.accuracy[t])
    for i, step in enumerate(history["step"]):
        law = _law_at(fit, i)
        error = law.accuracy(history["capability"][i][known]) - dataset.accuracy[t][known]
        rows.append({"task": name, "role": "test", "step": int(step), "mse": float(np.mean(error**2))})
    return rows


def _law_at(fit: TaskFit, i: int) -> SigmoidLaw:
    return SigmoidLaw(float(fit.history["slope"][i]), float(fit.history["offset"][i]), fit.task.chance)


def step_summary(rows: Sequence[dict[str, Any]], fit: TaskFit, chosen: float) -> dict[str, float]:
    """Test error at the start and at the chosen step."""
    first = next(r["mse"] for r in rows if r["role"] == "test" and r["step"] == 0)
    return {"first": first, "chosen": chosen, "step": int(fit.notes["best_step"]), "rate": float(fit.notes["rate"])}


def _most_moved(ends: Sequence[dict[str, float]]) -> int:
    """The task whose test error fell by the largest factor."""
    fall = [e["first"] / e["chosen"] if e["chosen"] > 0 else math.nan for e in ends]
    return int(np.nanargmax(fall)) if np.isfinite(fall).any() else 0


def step_panels(
    dataset: Dataset, fold: Fold, fit: TaskFit, t: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Points and laws of one task at the shown steps, one panel a step."""
    observed, history = dataset.accuracy[t], fit.history
    points: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for i, step in enumerate(history["step"]):
        if int(step) not in SHOWN:
            continue
        panel, capability = f"{fit.task.name}, step {step}", history["capability"][i]
        drawn = np.flatnonzero(np.isfinite(observed) & (fold.seen | fold.test))
        points += [
            {
                "panel": panel,
                "step": int(step),
                "model": dataset.models[m],
                "family": str(dataset.families[m]),
                "role": role(fold, int(m)),
                "capability": float(capability[m]),
                "accuracy": float(observed[m]),
            }
            for m in drawn
        ]
        x = spaced(float(capability[drawn].min()), float(capability[drawn].max()))
        curves += [
            {"panel": panel, "capability": float(c), "accuracy": float(a)}
            for c, a in zip(x, _law_at(fit, i).accuracy(x), strict=True)
        ]
    return points, curves
