"""Convert a comparison to plain values for the page: models, forecasts, laws and measures.

Models are columns of equal length; the numbers of a task and method are lists in the order of the models.
Axes: M models (the compared ones, then those with losses but no score), T tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.choices import DEFAULT_LEVEL
from benchcast.evaluation.comparison import Comparison
from benchcast.forecasts.all_models import AllModels, with_unscored
from benchcast.forecasts.fit import fits_for_report, fits_if_any
from benchcast.forecasts.forecast import caution_on
from benchcast.forecasts.intervals import locate, score_distribution
from benchcast.forecasts.mean_tasks import predict_task
from benchcast.forecasts.stored_fit import Fit
from benchcast.methods.capability import BlendedLosses, WeightedLoss
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats, Ints
from benchcast.splits import Fold
from benchcast.study.study import Study

DIGITS = 5  # significant digits of numbers in the page
CURVE = 48  # points of a law's curve
SHOWN_MEASURES = ("mse", "mae", "spearman", "coverage", "r2", "pairs", "width", "n_test")


@dataclass(frozen=True)
class ReportModels(AllModels):
    """The models of a page: the compared ones, and those without a score."""

    fold: Ints  # index of the fold whose fit forecasts each model with a score
    new_fits: dict[tuple[str, str], Fit]  # fits that forecast models without a score, by task and method
    role: list[str]  # train, validation, test, or new


def show_models(study: Study, comparison: Comparison, stored: Sequence[Fit] | None = None) -> ReportModels:
    """All models of the study that have losses, each with the fold that forecasts it.

    Models without a score are forecast by fits of all methods: those in `stored` (None: the fits of the study) that are
    up to date, and new ones. Without such models only the first method has fits, for the heat map.
    """
    models = with_unscored(study, comparison.dataset)
    fold, role = _roles(comparison.folds, models.scored)
    new = len(models.infos) - models.scored
    methods = comparison.methods[:1] if np.isfinite(models.observed).all() else comparison.methods
    known = fits_if_any(study) if stored is None else stored
    fits = fits_for_report(study, comparison.dataset, methods, stored=known)
    new_fits = {(task, m): fits[m][task] for m in methods for task in comparison.tasks}
    return ReportModels(**vars(models), fold=np.pad(fold, (0, new)), new_fits=new_fits, role=[*role, *["new"] * new])


def _roles(folds: Sequence[Fold], size: int) -> tuple[Ints, list[str]]:
    """The fold that forecasts each model (the one that tests it, else the first) and the model's role in it."""
    fold = np.zeros(size, np.int64)
    for i, f in enumerate(folds):
        fold[f.test] = i
    role = np.full(size, "", dtype=object)
    for i, f in enumerate(folds):
        for name, mask in (("train", f.train), ("validation", f.validation), ("test", f.test)):
            role[mask & (fold == i)] = name
    return fold, role.tolist()


def comparison_data(comparison: Comparison, shown: ReportModels) -> dict[str, Any]:
    """Methods, tasks and models as plain values for the page."""
    scored = len(comparison.dataset.models)
    return {
        "split": comparison.split,
        "methods": list(comparison.methods),
        "tasks": [_task_data(comparison, shown, t) for t in range(len(comparison.tasks))],
        "models": model_columns(shown),
        "first_fold_role": _roles(comparison.folds[:1], scored)[1] + ["new"] * (len(shown.infos) - scored),
    }


def _task_data(comparison: Comparison, shown: ReportModels, t: int) -> dict[str, Any]:
    task = comparison.dataset.tasks[t]
    measured = {m: comparison.reliable_measures(task.name, m) for m in comparison.methods}
    return {
        "name": task.name,
        "chance": _rounded(task.chance),
        "sources": list(task.sources),
        "noise": _rounded(comparison.noise[task.name]),
        "observed": rounded(shown.observed[t]),
        "measures": {m: {k: _rounded(values[k]) for k in SHOWN_MEASURES} for m, values in measured.items()},
        "forecasts": {m: forecasts(comparison, shown, task.name, method=m) for m in comparison.methods},
        "laws": {m: first_fold_points(comparison, shown, task.name, method=m) for m in comparison.methods},
    }


def forecasts(comparison: Comparison, shown: ReportModels, task: str, *, method: str) -> dict[str, Any]:
    """Forecasts of all models by one method, with intervals, and how unlike the training models they are."""
    fits = comparison.fits[task, method]
    size, definition = len(shown.infos), comparison.dataset.tasks[comparison.tasks.index(task)]
    capability, forecast, low, high = (np.full(size, np.nan) for _ in range(4))
    stronger, unseen = np.zeros(size, bool), np.isin(shown.role, ("test", "new"))
    cautions: dict[int, str] = {}  # index of an unseen model → how it is unlike the training models
    for by_task, rows in fits_of_models(comparison, shown, task, method=method):
        p = predict_task(definition, by_task, shown.nats[rows], shown.metadata.take(rows))
        capability[rows], forecast[rows], low[rows], high[rows] = p.capability, p.accuracy, p.low, p.high
        stronger[rows] = p.position.stronger
        unusual = ((p.position.distance > 1) | p.position.stronger | p.position.other_family) & unseen[rows]
        models = np.flatnonzero(rows)
        said = {int(models[k]): caution_on(by_task[task], p, k) for k in np.flatnonzero(unusual).tolist()}
        cautions |= {i: text for i, text in said.items() if text}
    return {
        "forecast": rounded(forecast),
        "low": rounded(low),
        "high": rounded(high),
        "capability": rounded(capability) if fits[0].capability.reads else None,
        "cautions": cautions,
        "stronger": np.flatnonzero(stronger).tolist(),
        "reads": list(fits[0].capability.reads),
        "averaged": isinstance(fits[0].capability, BlendedLosses),
        "intervals_from": fits[0].out_of_fold.kind,
        "lacks": {
            int(i): fits[0].capability.missing(shown.metadata.take(np.array([i])))
            for i in np.flatnonzero(np.isnan(forecast))
        },
    }


def fits_of_models(
    comparison: Comparison, shown: ReportModels, task: str, *, method: str
) -> list[tuple[dict[str, TaskFit], Bools]]:
    """The fits of all tasks, by fold, each with the mask of the models that they forecast on this task.

    A model with a score is forecast by the fold that held it out, or by the first fold if none did. A model without a
    score is forecast by the fit that `predict` uses.
    """
    scored = np.isfinite(shown.observed[comparison.tasks.index(task)])
    chosen = [
        ({name: comparison.fits[name, method][i] for name in comparison.tasks}, scored & (shown.fold == i))
        for i in range(len(comparison.folds))
    ]
    if scored.all():
        return chosen
    return [*chosen, ({name: shown.new_fits[name, method].task_fit for name in comparison.tasks}, ~scored)]


def first_fold_points(comparison: Comparison, shown: ReportModels, task: str, *, method: str) -> dict[str, Any] | None:
    """Capabilities of the compared models under the first fold's fit, with its law, for the figure of laws.

    Models without a score are forecast by another fit (`fits_for_report`), so they have no point here.
    """
    fit = comparison.fits[task, method][0]
    of = fit.capability
    capability = of.of(shown.nats, shown.metadata) if of.reads else np.full(len(shown.infos), np.nan)
    scored = np.isfinite(shown.observed[comparison.tasks.index(task)])
    curve = law_curve(fit, capability[scored])
    capability = np.where(np.array(shown.role) == "new", np.nan, capability)
    return None if curve is None else {"points": rounded(capability), **curve}


def law_curve(fit: TaskFit, capability: Floats) -> dict[str, Any] | None:
    """The law and its interval over the range of these capabilities; None if there is no law."""
    finite = capability[np.isfinite(capability)]
    if not len(finite) or fit.law.failure or not fit.capability.reads:
        return None
    low, high = float(finite.min()), float(finite.max())
    # A log axis for losses: those of early checkpoints are far above the others.
    log = low > 0 and isinstance(fit.capability, WeightedLoss)
    x = np.geomspace(low, high, CURVE) if log else np.linspace(low, high, CURVE)
    accuracy = fit.law.accuracy(x)
    bottom, top = score_distribution(fit, accuracy, locate(fit, x)).interval(DEFAULT_LEVEL)
    return {
        "log": log,
        "capability": rounded(x),
        "accuracy": rounded(accuracy),
        "low": rounded(bottom),
        "high": rounded(top),
    }


def model_columns(shown: ReportModels) -> dict[str, list[Any]]:
    """Metadata of the models, one list for each column."""
    return {
        "model": shown.models,
        "family": list(map(str, shown.families)),
        "params": rounded(shown.metadata.params),
        "tokens": rounded(shown.metadata.training_tokens),
        "flops": rounded(shown.metadata.flops),
        "role": shown.role,
    }


def rounded(values: npt.ArrayLike) -> list[Any]:
    """Numbers for JSON with `DIGITS` digits; None for NaN and infinity."""
    return [_rounded(float(v)) for v in np.asarray(values, np.float64).ravel()]


def _rounded(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
