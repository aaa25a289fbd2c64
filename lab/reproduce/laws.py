"""Figures 4 and 7: capability against accuracy with the fitted law, and forecasts against what was observed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchcast.choices import check_choice
from benchcast.errors import InputError
from benchcast.evaluation.comparison import Comparison
from benchcast.losses.dataset import Dataset
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Floats
from benchcast.splits import Fold
from lab.reproduce.context import StudyContext, role
from lab.reproduce.figures import forecast_panels, law_panels
from lab.reproduce.outcome import Outcome, Table, cell

DRAWN = 100  # points of a drawn law


def fig4(context: StudyContext, method: str = "salience") -> Outcome:
    """Capability against accuracy under one method, by family and role."""
    comparison = context.comparison(None)
    if method in comparison.left_out:
        raise InputError(f"{method} {comparison.left_out[method]}; known: {', '.join(comparison.methods)}")
    check_choice("method", method, comparison.methods)
    dataset, fold = comparison.dataset, comparison.folds[0]
    fits = [comparison.fits[task, method][0] for task in comparison.tasks]
    points = law_points(dataset, fold, fits)
    curves = law_curves(points, fits)
    errors = {
        task: {r: role_error(points, task, r) for r in ("train", "validation", "test")} for task in comparison.tasks
    }
    laws = {f.task.name: {"slope": f.law.slope, "offset": f.law.offset, "chance": f.law.chance} for f in fits}
    table = Table(
        ("task", "train MSE", "validation MSE", "test MSE"),
        tuple((task, *(cell(e) for e in row.values())) for task, row in errors.items()),
        f"error around the law of {method}, split by {comparison.split}",
    )
    numbers = {
        **context.about(),
        "method": method,
        "split": comparison.split,
        "mse": errors,
        "laws": laws,
        "points": points,
    }
    return Outcome("fig4", numbers, (table,), {"": law_panels(points, curves, comparison.tasks)})


def law_points(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit]) -> list[dict[str, Any]]:
    """One row a task and model: capability, forecast and accuracy."""
    rows = []
    for fit, observed in zip(fits, dataset.accuracy, strict=True):
        capability = fit.capability.of(dataset.nats, dataset.metadata)
        forecast = fit.law.accuracy(capability)
        rows += [
            {
                "task": fit.task.name,
                "model": dataset.models[i],
                "family": str(dataset.families[i]),
                "role": role(fold, int(i)),
                "capability": float(capability[i]),
                "forecast": float(forecast[i]),
                "accuracy": float(observed[i]),
            }
            for i in np.flatnonzero(np.isfinite(observed) & np.isfinite(capability))
            if fold.seen[i] or fold.test[i]
        ]
    return rows


def law_curves(points: Sequence[dict[str, Any]], fits: Sequence[TaskFit]) -> list[dict[str, Any]]:
    """The law of each task over the capabilities of its points."""
    rows = []
    for fit in fits:
        drawn = [p["capability"] for p in points if p["task"] == fit.task.name]
        if drawn and not fit.law.failure:
            x = spaced(min(drawn), max(drawn))
            rows += [
                {"task": fit.task.name, "capability": float(c), "accuracy": float(a)}
                for c, a in zip(x, fit.law.accuracy(x), strict=True)
            ]
    return rows


def spaced(low: float, high: float) -> Floats:
    """Where to draw a law: evenly on the axis that the figure will have."""
    return np.geomspace(low, high, DRAWN) if low > 0 else np.linspace(low, high, DRAWN)


def role_error(points: Sequence[dict[str, Any]], task: str, of: str) -> float:
    """Mean squared error of the models of one role."""
    errors = [(p["forecast"] - p["accuracy"]) ** 2 for p in points if p["task"] == task and p["role"] == of]
    return float(np.mean(errors)) if errors else math.nan


def fig7(context: StudyContext) -> Outcome:
    """Forecast against observed accuracy of the held-out models, every method."""
    comparison = context.comparison(None)
    rows = forecast_rows(comparison)
    bias = {m: method_summary([r for r in rows if r["method"] == m]) for m in comparison.methods}
    table = Table(
        ("method", "forecasts", "mean abs error", "mean error", "within 5 points"),
        tuple(
            (m, str(s["forecasts"]), cell(s["mae"], ".4f"), cell(s["bias"], "+.4f"), cell(s["within"], ".0%"))
            for m, s in bias.items()
        ),
        f"forecast minus observed on held-out models, all tasks, split by {comparison.split}",
    )
    numbers = {**context.about(), "split": comparison.split, "methods": bias, "points": rows}
    return Outcome("fig7", numbers, (table,), {"": forecast_panels(rows, comparison.methods)})


def forecast_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """One row a method, task and held-out model."""
    return [
        {
            "method": method,
            "task": task,
            "model": model,
            "observed": float(held.observed[i]),
            "forecast": float(held.forecast[i]),
        }
        for (task, method), held in comparison.held_out.items()
        for i, model in enumerate(held.models)
        if np.isfinite(held.forecast[i])
    ]


def method_summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Size and direction of the errors of one method."""
    error = np.array([r["forecast"] - r["observed"] for r in rows])
    if not len(error):
        return {"forecasts": 0, "mae": math.nan, "bias": math.nan, "within": math.nan}
    return {
        "forecasts": len(error),
        "mae": float(np.abs(error).mean()),
        "bias": float(error.mean()),
        "within": float((np.abs(error) <= 0.05).mean()),
    }
