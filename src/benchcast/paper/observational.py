"""What the score tables alone can tell: forecasts of a benchmark from the others, without any loss.

The observational scaling law (Ruan et al. 2024): principal components of the other benchmarks' scores,
then a sigmoid of their weighted sum. The models to forecast must have been run on the other benchmarks.
Axes: M models, T tasks, K components.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from benchcast.assemble import score_table
from benchcast.errors import EvidenceError
from benchcast.evaluate import measure
from benchcast.evidence import Fold
from benchcast.folds import make_folds
from benchcast.law import sigmoid
from benchcast.records import Bools, Floats, ModelInfo, Score, Task

COMPONENTS = 3
ALIKE = {"ceval": ("cmmlu",), "cmmlu": ("ceval",)}  # one capability asked twice
STEEPEST = 30.0  # log-odds per standard deviation of a component

Forecaster = Callable[[Floats, int, float, Bools], Floats]  # accuracies T × M, task, chance, seen → M forecasts


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """How one baseline does on the held-out models of one task."""

    task: str
    method: str
    measures: dict[str, float]


def constant(accuracy: Floats, task: int, chance: float, seen: Bools) -> Floats:
    """The mean accuracy of the models seen."""
    del chance
    return np.full(accuracy.shape[1], np.nanmean(accuracy[task][seen]))


def observational(
    accuracy: Floats,
    task: int,
    chance: float,
    seen: Bools,
    *,
    components: int = COMPONENTS,
    without: Sequence[int] = (),
) -> Floats:
    """Forecasts of all models from the other benchmarks; NaN for models that lack one of them."""
    others = [t for t in range(len(accuracy)) if t != task and t not in without]
    table = accuracy[others].T
    whole = np.isfinite(table).all(axis=1)
    learn = seen & whole & np.isfinite(accuracy[task])
    k = min(components, len(others))
    if learn.sum() < k + 2:
        raise EvidenceError(f"observational: {learn.sum()} models have all scores, {k} components need {k + 2}")
    scores = principal_components(table, learn, k)
    weights = _fit(scores[learn], accuracy[task][learn], chance)
    forecast = chance + (1 - chance) * sigmoid(scores @ weights[1:] + weights[0])
    return np.where(whole, forecast, np.nan)


def principal_components(table: Floats, learn: Bools, k: int) -> Floats:
    """Scores of all models on the first components of the learning models, each of unit variance there."""
    centred = table - table[learn].mean(axis=0)
    _, _, axes = np.linalg.svd(centred[learn], full_matrices=False)
    scores = centred @ axes[:k].T
    return np.asarray(scores / np.maximum(scores[learn].std(axis=0), 1e-12))


def _fit(scores: Floats, accuracy: Floats, chance: float) -> Floats:
    """Offset and weights by least squares in accuracy, from a regression of the log-odds."""
    design = np.column_stack([np.ones(len(scores)), scores])
    share = np.clip((accuracy - chance) / (1 - chance), 0.02, 0.98)
    start, *_ = np.linalg.lstsq(design, np.log(share / (1 - share)), rcond=None)

    def residuals(w: Floats) -> Floats:
        return np.asarray(chance + (1 - chance) * sigmoid(design @ w) - accuracy)

    start = np.clip(start, -STEEPEST, STEEPEST)
    return np.asarray(least_squares(residuals, start, bounds=(-STEEPEST - 1, STEEPEST + 1)).x)


def baselines(
    models: Sequence[ModelInfo], scores: Sequence[Score], tasks: Sequence[Task], *, split: str | None = None
) -> tuple[str, list[BaselineRow]]:
    """Every baseline that needs scores only, on the held-out models of every task."""
    accuracy, _ = score_table(models, scores, tasks)
    name, folds = make_folds(models, split)
    rows = []
    for t, task in enumerate(tasks):
        for method, forecaster in _forecasters(tasks, task).items():
            rows.append(BaselineRow(task.name, method, _measured(accuracy, t, task.chance, folds, forecaster)))
    return name, rows


def _forecasters(tasks: Sequence[Task], task: Task) -> dict[str, Forecaster]:
    names = [t.name for t in tasks]
    alike = tuple(names.index(n) for n in ALIKE.get(task.name, ()) if n in names)
    made: dict[str, Forecaster] = {"constant": constant}
    if len(tasks) < 2:
        return made
    made["observational, 1 component"] = lambda a, t, c, s: observational(a, t, c, s, components=1)
    made["observational"] = observational
    if alike and len(tasks) > 2:
        made["observational, without its twin"] = lambda a, t, c, s: observational(a, t, c, s, without=alike)
    return made


def _measured(
    accuracy: Floats, task: int, chance: float, folds: Sequence[Fold], forecaster: Forecaster
) -> dict[str, float]:
    observed, forecast = [], []
    for fold in folds:
        made = forecaster(accuracy, task, chance, fold.seen)
        rows = fold.test & np.isfinite(accuracy[task]) & np.isfinite(made)
        observed.append(accuracy[task][rows])
        forecast.append(made[rows])
    truth, guess = np.concatenate(observed), np.concatenate(forecast)
    nothing = np.full(len(truth), np.nan)
    return measure(truth, guess, nothing, nothing)
