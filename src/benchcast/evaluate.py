"""Every method × task on held-out models: errors, order, intervals and their coverage.

Errors of all folds are pooled. What cannot be said is NaN (null in JSON), never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchcast.choices import METHOD_NAMES, MethodName, Split
from benchcast.comparison import MEASURES as MEASURES
from benchcast.comparison import Comparison as Comparison
from benchcast.comparison import HeldOutForecasts as HeldOutForecasts
from benchcast.comparison import geometric_mean as geometric_mean
from benchcast.comparison import measure as measure
from benchcast.dataset import Dataset, Fold
from benchcast.devices import check_device
from benchcast.errors import NotEnoughDataError
from benchcast.executor import Executor, Job
from benchcast.fitting import without_weak_tasks
from benchcast.folds import make_folds
from benchcast.intervals import interval
from benchcast.methods import NEED_FEATURES, TOGETHER, check_methods, fit_method
from benchcast.methods.algorithm2.descent import DescentSettings
from benchcast.records import Score
from benchcast.store import Study, StudyLike
from benchcast.task_fit import TaskFit


def compare(
    study: StudyLike,
    tasks: Sequence[str] = (),
    *,
    split: Split | None = None,
    methods: Sequence[MethodName] = (),
    device: str = "",
    settings: DescentSettings | None = None,
    on_method: Callable[[str], None] | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Fit every method on the training models of every fold and forecast the models held out.

    Parameters
    ----------
    study : an opened study or its folder
    tasks : tasks of study.toml; none given: all
    split : which models are held out. None: those of the split column where it is filled, else the largest sizes,
        else each family in turn
    methods : names of methods; none given: all
    device : where methods that learn token weights are worked out: a torch device such as "cuda"; "" is numpy
    settings : of the method "paper"
    on_method : is called with the name of each method when it begins or, with an executor, is done
    executor : fits methods and folds side by side, with the same result

    Returns
    -------
    a comparison: `.to_pandas()`, `.to_arrow()`, `.plot()`, `.measures(task, method)`

    >>> import benchcast as bc
    >>> result = bc.compare(bc.datasets.load_zoo(), ["code"], split="size", methods=["label-token", "constant"])
    >>> result
    <Comparison of 2 methods on 1 task, 45 models held out by size>
    >>> result.measures("code", "label-token")["mae"] < result.measures("code", "constant")["mae"]
    True
    """
    wanted = tuple(methods) or METHOD_NAMES
    check_methods(wanted, settings)
    opened = Study.of(study)
    dataset = replace(opened.dataset(tasks), device=check_device(device))
    name, folds = make_folds(opened.infos(dataset.models), split, groups=dataset.groups)
    if not all(fold.test.any() for fold in folds):
        hint = "mark some in models.csv" if name == "column" else "a family needs three sizes (params in models.csv)"
        raise NotEnoughDataError(f"split {name!r}: no test models; {hint}, or take --split family")
    dataset, weak = without_weak_tasks(dataset, folds, asked_for=bool(tasks))
    left_out = weak | {f"model {m}": dataset.support.why(m) for m in dataset.support.excluded}
    left_out |= {m: "needs features of a scorer" for m in wanted if m in NEED_FEATURES and dataset.features is None}
    work = FoldFits(dataset, tuple(folds), settings)
    held, fits = {}, {}
    fitted = fit_methods(work, [m for m in wanted if m not in left_out], executor, on_method or _silent)
    for method, by_fold in fitted.items():
        if isinstance(by_fold, str):
            left_out[method] = by_fold.removeprefix(f"method {method!r} ")
            continue
        for t, task in enumerate(dataset.tasks):
            own = [row[t] for row in by_fold]
            fits[task.name, method] = own
            held[task.name, method] = hold(dataset, folds, own, t)
    tried = tuple(m for m in wanted if m not in left_out)
    if not tried:
        raise NotEnoughDataError("; ".join(f"method {m!r} {why}" for m, why in left_out.items()))
    names = tuple(t.name for t in dataset.tasks)
    noise = noise_floor(dataset, opened.scores(), folds)
    return Comparison(name, tried, names, held, fits, tuple(folds), noise, dataset, left_out)


def _silent(method: str) -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True, slots=True)
class FoldFits:
    """What every job of a comparison shares."""

    dataset: Dataset
    folds: tuple[Fold, ...]
    settings: DescentSettings | None = None


def fit_part(shared: FoldFits, given: tuple[str, Sequence[int]]) -> list[list[TaskFit]] | str:
    """One method on some of the folds, or why it cannot be had: the work of one job."""
    method, picked = given
    try:
        return fit_method(method, shared.dataset, [shared.folds[i] for i in picked], shared.settings)
    except NotEnoughDataError as error:
        return str(error)


def fit_methods(
    shared: FoldFits,
    methods: Sequence[str],
    executor: Executor | None,
    on_method: Callable[[str], None],
) -> dict[str, list[list[TaskFit]] | str]:
    """Fits of every method by fold and task; told of are methods that begin or, with an executor, are done."""
    folds, everything = shared.folds, range(len(shared.folds))
    fitted: dict[str, list[list[TaskFit]] | str] = {}
    if executor is None:
        for method in methods:
            on_method(method)
            fitted[method] = fit_part(shared, (method, everything))
        return fitted
    parts = [(m, own) for m in methods for own in ([everything] if m in TOGETHER else [(i,) for i in everything])]
    jobs = [Job(f"method {m!r}, fold {own[0] + 1} of {len(folds)}", (m, own), cost=len(own)) for m, own in parts]
    found: dict[str, dict[int, list[list[TaskFit]] | str]] = {m: {} for m in methods}
    for number, answer in executor.run(fit_part, jobs, shared):
        method, own = parts[number]
        found[method][own[0]] = answer
        if len(found[method]) == sum(m == method for m, _ in parts):
            on_method(method)
    for method, answers in found.items():
        inside = [answers[i] for i in sorted(answers)]
        refused = [a for a in inside if isinstance(a, str)]
        fitted[method] = refused[0] if refused else [row for a in inside if not isinstance(a, str) for row in a]
    return fitted


def hold(dataset: Dataset, folds: Sequence[Fold], fits: Sequence[TaskFit], t: int) -> HeldOutForecasts:
    """Forecasts of the held-out models of every fold, with intervals; `t` is the task's number."""
    parts, metadata = [], dataset.metadata
    for fold, fit in zip(folds, fits, strict=True):
        rows = fold.test & np.isfinite(dataset.accuracy[t])
        capability = fit.capability(dataset.nats[rows], metadata.take(rows))
        forecast = fit.law.accuracy(capability)
        low, high = interval(fit, capability, forecast)
        parts.append((np.flatnonzero(rows), forecast, low, high, capability))
    rows, forecast, low, high, capability = (np.concatenate(x) for x in zip(*parts, strict=True))
    models = tuple(dataset.models[i] for i in rows)
    return HeldOutForecasts(models, dataset.families[rows], dataset.accuracy[t][rows], forecast, low, high, capability)


def noise_floor(dataset: Dataset, scores: Sequence[Score], folds: Sequence[Fold]) -> dict[str, float]:
    """Mean squared error that score noise alone leaves, on the held-out models of each task.

    From split halves of the items where the even-numbered ones were counted, else from the binomial
    variance where the number of items is known.
    """
    tested = {m for fold in folds for m, on in zip(dataset.models, fold.test, strict=True) if on}
    floor = {}
    for task in dataset.tasks:
        own = [s for s in scores if s.task == task.name and s.model in tested and s.n_items >= 2]
        floor[task.name] = float(np.mean([_score_variance(s) for s in own])) if own else math.nan
    return floor


def _score_variance(score: Score) -> float:
    even = np.ceil(score.n_items / 2)
    odd = score.n_items - even
    if not np.isfinite(score.right_even):
        return score.accuracy * (1 - score.accuracy) / score.n_items
    right = round(score.accuracy * score.n_items)
    difference = score.right_even / even - (right - score.right_even) / odd
    return float(difference**2 * even * odd / score.n_items**2)
