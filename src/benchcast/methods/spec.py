"""Fit a method by its name, alone or with others that share its candidates; and say which tasks cannot be learned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchcast.choices import check_choice
from benchcast.devices import check_device, few_blas_threads
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.losses.dataset import Dataset
from benchcast.messages import counted
from benchcast.methods import DEFAULT_METHOD, METHODS, MethodName, load
from benchcast.methods.distances import with_profiles
from benchcast.methods.interval_width import with_width
from benchcast.methods.paper import DescentSettings
from benchcast.methods.stack import candidate_pools
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.task_fit import TaskFit
from benchcast.splits import FEWEST_MODELS, Fold


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """A method with its settings and the device on which it is computed; InputError if one is unknown.

    >>> import benchcast as bc
        >>> spec = bc.MethodSpec("paper", bc.DescentSettings(steps=100))
    >>> spec.name, spec.settings.steps
    ('paper', 100)
    >>> bc.fit_tasks("study", ["code"], method=bc.MethodSpec("label-token"))
    [<Fit of 'code' by label-token on 16 models>]
    """

    name: MethodName = DEFAULT_METHOD
    settings: DescentSettings | None = None  # of the method "paper"
    device: str = ""  # a torch device such as "cuda"; empty: numpy

    def __post_init__(self) -> None:
        check_methods([self.name], self.settings)
        check_device(self.device)

    def fit(self, dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
        """Fits by fold and task."""
        return fit_method(self.name, replace(dataset, device=self.device), folds, self.settings)


def check_methods(names: Iterable[str], settings: DescentSettings | None = None) -> None:
    """Raise InputError for unknown methods, and for settings that none of the methods has."""
    methods = list(names)
    for name in methods:
        check_choice("method", name, METHODS)
    with_settings = [m for m in METHODS.values() if m.settings]
    if settings is not None and not any(
        isinstance(settings, load(m.settings)) for m in with_settings if m.name in methods
    ):
        raise InputError(
            f"settings of type {type(settings).__name__} are for method {', '.join(m.name for m in with_settings)}, "
            f"not for {', '.join(methods)}"
        )


@few_blas_threads()
def fit_method(
    name: str, dataset: Dataset, folds: Sequence[Fold], settings: DescentSettings | None = None
) -> list[list[TaskFit]]:
    """Fits of a method by fold and task; a method without settings ignores them."""
    check_choice("method", name, METHODS)
    return _for_intervals(dataset, folds, METHODS[name].learn(dataset, folds, settings))


def _for_intervals(dataset: Dataset, folds: Sequence[Fold], fits: list[list[TaskFit]]) -> list[list[TaskFit]]:
    """The fits with all that their intervals need: distances, and what the width depends on."""
    return [[with_width(fit) for fit in row] for row in with_profiles(dataset, folds, fits)]


def grouped(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The methods in groups for `fit_group`: those that average the same candidates, and every other one alone."""
    pooled = tuple(name for name in names if METHODS[name].pool_fit)
    return [*filter(None, [pooled]), *((name,) for name in names if name not in pooled)]


@few_blas_threads()
def fit_group(
    names: tuple[str, ...], dataset: Dataset, folds: Sequence[Fold], settings: DescentSettings | None = None
) -> dict[str, list[list[TaskFit]]]:
    """Fits of each method of one group, by fold and task; a method without settings ignores them.

    Methods that average the same candidates take hardly more time together than one of them alone.
    """
    if len(names) == 1:
        return {names[0]: fit_method(names[0], dataset, folds, settings)}
    of_pool = StackSettings()
    pool_fits = {name: load(METHODS[name].pool_fit) for name in names}
    rows = [
        [{name: pool_fit(pool, of_pool) for name, pool_fit in pool_fits.items()} for pool in row]
        for row in candidate_pools(dataset, folds, of_pool)
    ]
    by_method = {name: [[fits[name] for fits in row] for row in rows] for name in names}
    return {name: _for_intervals(dataset, folds, fits) for name, fits in by_method.items()}


def stored_settings(fit: TaskFit) -> DescentSettings | None:
    """The settings of a fit; None if its method has none."""
    if not METHODS[fit.method].settings:
        return None
    if fit.notes.get("joint"):
        raise InputError(
            f"{fit.task.name}: the stored fit has the setting joint=True (one head for all tasks), which is gone; "
            "fit the task again without it"
        )
    known: dict[str, Any] = {k: v for k, v in fit.notes.items() if k in DescentSettings.__dataclass_fields__}
    return DescentSettings(**known | {"rates": tuple(known.get("rates", DescentSettings().rates))})


def weak_tasks(dataset: Dataset, folds: Sequence[Fold]) -> dict[str, str]:
    """Tasks that no method could learn from, and what they lack."""
    weak = {}
    for task, accuracy in zip(dataset.tasks, dataset.accuracy, strict=True):
        for fold in folds:
            known = fold.train & np.isfinite(accuracy)
            if known.sum() < FEWEST_MODELS:
                have = f"{counted(int(known.sum()), 'training model')} {'has' if known.sum() == 1 else 'have'}"
                weak[task.name] = f"{have} both losses and accuracy, a fit needs at least {FEWEST_MODELS}"
            elif np.ptp(accuracy[known]) == 0:
                weak[task.name] = f"all training models score {accuracy[known][0]:g}; there is nothing to learn from"
    return weak


def without_weak_tasks(dataset: Dataset, folds: Sequence[Fold], *, asked_for: bool) -> tuple[Dataset, dict[str, str]]:
    """Dataset on the tasks that can be learned, and why the others cannot; a task that was asked for must."""
    weak = weak_tasks(dataset, folds)
    if weak and (asked_for or len(weak) == len(dataset.tasks)):
        name, why = next(iter(weak.items()))
        raise NotEnoughDataError(f"{name}: {why}{dataset.support.hint()}")
    return dataset.for_tasks([t.name for t in dataset.tasks if t.name not in weak]), weak


def same_losses(dataset: Dataset, fold: Fold) -> bool:
    """Whether all training models have the same loss on every token."""
    first, *others = np.flatnonzero(fold.train)
    return all(np.array_equal(dataset.nats[first], dataset.nats[i]) for i in others)


def equal_inputs(fit: TaskFit, *, same_losses: bool) -> str:
    """Reason to reject the fit: all training models have the same inputs; else ''. A failed law reports its own."""
    if not fit.capability.reads or fit.has_range or np.isnan(fit.range).any():
        return ""  # without a range no training model has such inputs, and the law says so
    if fit.is_level and not (same_losses and fit.reads_losses):
        return ""  # inputs differ, but do not change the forecast
    what = "losses" if fit.reads_losses else "inputs"
    return f"all training models have the same {what} for {fit.method}; there is nothing to learn from"
