"""Compare methods: fit every method on every fold and forecast the models held out.

Errors of all folds are pooled. Undefined measures are NaN (null in JSON), never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import numpy as np

from benchcast.choices import Split
from benchcast.devices import check_device, few_blas_threads
from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.comparison import Comparison, HeldOutForecasts
from benchcast.executors.local import Executor, Job, Local
from benchcast.families import copies_of
from benchcast.forecasts.mean_tasks import predict_task
from benchcast.losses.dataset import Dataset
from benchcast.messages import as_names
from benchcast.methods import MAIN_METHODS, METHODS, MethodName
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.paper import DescentSettings
from benchcast.methods.spec import check_methods, equal_inputs, fit_group, grouped, same_losses, without_weak_tasks
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, ModelInfo, Score
from benchcast.splits import Fold, make_folds, need_test_models
from benchcast.study.study import Study, StudyLike


@dataclass(frozen=True, slots=True)
class Execution:
    """Where the fits of a comparison run, and what is called on progress.

    >>> import benchcast as bc
    >>> with bc.open_executor("local") as executor:
    ...     execution = bc.Execution(executor=executor, on_method=print, keep_fits=False)
    ...     bc.compare(bc.datasets.load_zoo(), ["code"], split="size", methods=["constant"], device=execution)
    constant
    <Comparison of 1 method on 1 task, 45 models held out by size>
    """

    device: str = ""  # a torch device such as "cuda"; empty: numpy
    executor: Executor = field(default_factory=Local)
    on_method: Callable[[str], None] = lambda method: None  # called with each method when it is done
    keep_fits: bool = True  # in `Comparison.fits`; their token weights need the most memory on many texts


@few_blas_threads()
def compare(
    study: StudyLike,
    tasks: Sequence[str] = (),
    *,
    split: Split = "auto",
    methods: Sequence[MethodName] | Literal["all"] = (),
    device: str | Execution = "",
    settings: DescentSettings | None = None,
) -> Comparison:
    """Fit every method on the training models of every fold and forecast the models held out.

    Parameters
    ----------
    study : an opened study or its folder
    tasks : tasks of study.toml; none given: all
    split : which models are held out: those that models.csv marks ("column"), the largest sizes ("size"), or each
        family in turn ("family"); "auto" is the first of the three that is possible and leaves enough models to train
    methods : names of methods; none given: the main ones; "all": every one
    device : where methods that learn token weights are computed: a torch device such as "cuda"; "" is numpy. An
        `Execution` adds an executor, which fits methods and folds side by side with the same result, progress, and
        whether fits are kept
    settings : of the method "paper"

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
    wanted = chosen_methods(methods)
    check_methods(wanted, settings)
    execution = device if isinstance(device, Execution) else Execution(device)
    opened = Study.of(study)
    dataset = replace(opened.dataset(tasks), device=check_device(execution.device))
    name, folds = make_folds(opened.infos(dataset.models), split, groups=dataset.groups)
    need_test_models(name, folds)
    try:
        dataset, weak = without_weak_tasks(dataset, folds, asked_for=bool(tasks))
    except NotEnoughDataError as error:
        if name == "column":  # `fit` holds out the same models
            raise
        others = f"others are held out by {name}; `benchcast fit` and `predict` hold out none"
        raise NotEnoughDataError(f"{error} ({others})") from None
    left_out = weak | {f"model {m}": dataset.support.why(m) for m in dataset.support.excluded}
    if dataset.features is None:
        left_out |= {m: "needs features of a scorer" for m in wanted if METHODS[m].needs_features}
    copies = held_out_copies(dataset, opened.infos(dataset.models), folds)
    others = np.any([fold.test for fold in folds], axis=0) & ~np.isin(dataset.models, [*copies])
    apart = copies if others.any() else {}  # where all are copies, they are all there is to count
    work = FoldFits(dataset=dataset, folds=tuple(folds), copies=apart, settings=settings, keep_fits=execution.keep_fits)
    answers = try_methods(work, [m for m in wanted if m not in left_out], execution)
    left_out |= {m: why.removeprefix(f"method {m!r} ") for m, why in answers.items() if isinstance(why, str)}
    tried = {m: answer for m, answer in answers.items() if not isinstance(answer, str)}
    if not tried:
        raise NotEnoughDataError("; ".join(f"method {m!r} {why}" for m, why in left_out.items()))
    names = tuple(t.name for t in dataset.tasks)
    held = {(task, m): tried[m].held_out[t] for m in tried for t, task in enumerate(names)}
    copied = {(task, m): tried[m].copied[t] for m in tried for t, task in enumerate(names)} if apart else {}
    fits = {(task, m): [row[t] for row in tried[m].fits] for m in tried for t, task in enumerate(names)}
    return Comparison(
        split=name,
        methods=tuple(tried),
        tasks=names,
        held_out=held,
        fits=fits,
        folds=tuple(folds),
        noise=noise_floor(dataset, opened.scores(), folds),
        dataset=dataset,
        left_out=left_out,
        copies=copies,
        copied=copied,
    )


def held_out_copies(dataset: Dataset, models: Sequence[ModelInfo], folds: Sequence[Fold]) -> dict[str, str]:
    """Held-out models that are copies of a model seen by their fold, with that model."""
    pairs = copies_of(models, dataset.reference_tokens.sum_by_text(dataset.nats))
    copies: dict[str, str] = {}
    for fold in folds:
        for pair in pairs:
            for held, known in (pair, pair[::-1]):
                if fold.test[held] and fold.seen[known]:
                    copies.setdefault(dataset.models[held], dataset.models[known])
    return copies


def chosen_methods(methods: Sequence[MethodName] | Literal["all"]) -> tuple[MethodName, ...]:
    """The methods to compare: all of them, the named ones, or by default the main ones."""
    every = tuple(method.name for method in METHODS.values())
    return every if methods == "all" else tuple(cast("list[MethodName]", as_names(methods))) or MAIN_METHODS


def try_methods(shared: FoldFits, methods: Sequence[str], execution: Execution) -> dict[str, Tried | str]:
    """Forecasts and fits of every method on all folds, or the reason why there are none.

    A job fits one group of methods on some of the folds: all of them if they share passes over the features.
    """
    folds, parts = np.arange(len(shared.folds)), min(execution.executor.parts, len(shared.folds))
    cut = [
        (group, picked.tolist())
        for group in grouped(methods)
        for picked in np.array_split(folds, 1 if METHODS[group[0]].one_pass else parts)
    ]
    jobs = [
        Job(
            f"{' and '.join(group)}, folds {picked[0] + 1} to {picked[-1] + 1}",
            (group, picked),
            cost=len(picked) * max(METHODS[m].cost for m in group),
        )
        for group, picked in cut
    ]
    by_method: dict[str, dict[int, Tried | str]] = {m: {} for m in methods}
    for number, answer in execution.executor.run(fit_part, jobs, shared):
        group, picked = cut[number]
        for method in group:
            by_method[method][picked[0]] = answer[method]
            if len(by_method[method]) == sum(method in g for g, _ in cut):
                execution.on_method(method)
    return {method: _joined([parts[first] for first in sorted(parts)]) for method, parts in by_method.items()}


@dataclass(frozen=True, slots=True)
class FoldFits:
    """What all jobs of a comparison need."""

    dataset: Dataset
    folds: tuple[Fold, ...]
    copies: Mapping[str, str] = field(default_factory=dict)  # held-out models that are counted apart
    settings: DescentSettings | None = None
    keep_fits: bool = True


@dataclass(frozen=True, slots=True)
class Tried:
    """Forecasts and fits of one method on some folds."""

    held_out: list[HeldOutForecasts]  # by task
    copied: list[HeldOutForecasts]  # by task, of held-out copies of training models; empty without such
    fits: list[list[TaskFit]]  # by fold and task; empty if they are not kept


@few_blas_threads()
def fit_part(shared: FoldFits, given: tuple[tuple[str, ...], Sequence[int]]) -> dict[str, Tried | str]:
    """The work of one job: each method of a group on some of the folds, or the reason why it cannot be fitted.

    A fit whose training models are all alike forecasts NaN and says why.
    """
    methods, picked = given
    dataset, folds = shared.dataset, [shared.folds[i] for i in picked]
    try:
        fits = fit_group(methods, dataset, folds, shared.settings)
    except NotEnoughDataError as error:
        return dict.fromkeys(methods, str(error))
    same = [same_losses(dataset, fold) for fold in folds]
    copied = np.isin(dataset.models, [*shared.copies])
    results: dict[str, Tried | str] = {}
    for method in methods:
        rows = fits.pop(method)
        for row, alike in zip(rows, same, strict=True):
            for t, fit in enumerate(row):
                if why := equal_inputs(fit, same_losses=alike):
                    row[t] = replace(fit, law=SigmoidLaw.failed(fit.task.chance, why))
        tasks = range(len(dataset.tasks))
        held = [forecast_held_out(dataset, folds, rows, t=t, among=~copied) for t in tasks]
        apart = [forecast_held_out(dataset, folds, rows, t=t, among=copied) for t in tasks] if shared.copies else []
        results[method] = Tried(held, apart, rows if shared.keep_fits else [])
    return results


def _joined(parts: Sequence[Tried | str]) -> Tried | str:
    """Results on consecutive folds as one, or the first reason why one is missing."""
    tried = []
    for part in parts:
        if isinstance(part, str):
            return part
        tried.append(part)
    held_out, copied = (
        [HeldOutForecasts.joined(of_task) for of_task in zip(*(getattr(p, name) for p in tried), strict=True)]
        for name in ("held_out", "copied")
    )
    return Tried(held_out, copied, [row for p in tried for row in p.fits])


def forecast_held_out(
    dataset: Dataset, folds: Sequence[Fold], fits: Sequence[Sequence[TaskFit]], *, t: int, among: Bools | None = None
) -> HeldOutForecasts:
    """Forecasts of the held-out models on task number `t`, with intervals; `fits` has those of all tasks by fold.

    With `among`, a mask of models, only of those.
    """
    parts, wanted = [], np.isfinite(dataset.accuracy[t])
    wanted = wanted if among is None else wanted & among
    for fold, row in zip(folds, fits, strict=True):
        rows = np.flatnonzero(fold.test & wanted)
        metadata, models = dataset.metadata.take(rows), tuple(dataset.models[i] for i in rows)
        p = predict_task(dataset.tasks[t], {f.task.name: f for f in row}, dataset.nats[rows], metadata)
        unknown = ~np.isfinite(p.accuracy)
        reason = (row[t].law.failure or row[t].capability.missing(metadata.take(unknown))) if unknown.any() else ""
        parts.append(
            HeldOutForecasts(
                models=models,
                families=dataset.families[rows],
                observed=dataset.accuracy[t][rows],
                forecast=p.accuracy,
                low=p.low,
                high=p.high,
                capability=p.capability,
                reason=reason,
                floors=(row[t].law.chance,),
            )
        )
    return HeldOutForecasts.joined(parts)


def noise_floor(dataset: Dataset, scores: Sequence[Score], folds: Sequence[Fold]) -> dict[str, float]:
    """Mean squared error that score noise alone leaves at most, on the held-out models of each task.

    From split halves of the items where the even-numbered ones were counted, else from the binomial variance where the
    number of items is known. All models answer the same items, so part of it is shared and can be forecast.
    """
    tested = {m for fold in folds for m, on in zip(dataset.models, fold.test, strict=True) if on}
    floor = {}
    for task in dataset.tasks:
        counted = [s for s in scores if s.task == task.name and s.model in tested and s.n_items >= 2]
        floor[task.name] = float(np.mean([_score_variance(s) for s in counted])) if counted else math.nan
    return floor


def _score_variance(score: Score) -> float:
    """Variance of a score: (difference of both halves)² · n₁ n₂ / n², or p (1 − p) / n without halves."""
    even = np.ceil(score.n_items / 2)
    odd = score.n_items - even
    if not np.isfinite(score.right_even):
        return score.accuracy * (1 - score.accuracy) / score.n_items
    right = round(score.accuracy * score.n_items)
    difference = score.right_even / even - (right - score.right_even) / odd
    return float(difference**2 * even * odd / score.n_items**2)
