"""What the score tables alone can tell: forecasts of a benchmark from the others, without any loss.

Axes: M models, T tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.choices import Split
from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.comparison import measure
from benchcast.losses.assemble import score_table
from benchcast.methods.law import at_share, sigmoid
from benchcast.methods.observational import COMPONENTS, regress_on_components
from benchcast.records import Bools, Floats, ModelInfo, Score, Task
from benchcast.splits import Fold, make_folds

ALIKE = {"ceval": ("cmmlu",), "cmmlu": ("ceval",)}  # one capability asked twice

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
        raise NotEnoughDataError(f"observational: {learn.sum()} models have all scores, {k} components need {k + 2}")
    weights, offset = regress_on_components(table, accuracy[task], chance, learn=learn, components=k)
    forecast = at_share(sigmoid(table @ weights + offset), chance)
    return np.where(whole, forecast, np.nan)


def baselines(
    models: Sequence[ModelInfo], scores: Sequence[Score], tasks: Sequence[Task], *, split: Split = "auto"
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
    forecasters: dict[str, Forecaster] = {"constant": constant}
    if len(tasks) < 2:
        return forecasters
    forecasters["observational, 1 component"] = lambda a, t, c, s: observational(a, t, c, s, components=1)
    forecasters["observational"] = observational
    if alike and len(tasks) > 2:
        forecasters["observational, without its twin"] = lambda a, t, c, s: observational(a, t, c, s, without=alike)
    return forecasters


def _measured(
    accuracy: Floats, task: int, chance: float, folds: Sequence[Fold], forecaster: Forecaster
) -> dict[str, float]:
    observed, forecast = [], []
    for fold in folds:
        predicted = forecaster(accuracy, task, chance, fold.seen)
        rows = fold.test & np.isfinite(accuracy[task]) & np.isfinite(predicted)
        observed.append(accuracy[task][rows])
        forecast.append(predicted[rows])
    truth, guess = np.concatenate(observed), np.concatenate(forecast)
    nothing = np.full(len(truth), np.nan)
    return measure(truth, guess, low=nothing, high=nothing)
