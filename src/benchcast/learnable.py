"""Whether there is enough to learn from: scores that differ, and inputs that differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchcast.dataset import Dataset, Fold
from benchcast.errors import NotEnoughDataError
from benchcast.folds import FEWEST_MODELS
from benchcast.methods.task_fit import TaskFit


def weak_tasks(dataset: Dataset, folds: Sequence[Fold]) -> dict[str, str]:
    """Tasks that no method could learn from, and what they lack."""
    weak = {}
    for task, accuracy in zip(dataset.tasks, dataset.accuracy, strict=True):
        for fold in folds:
            known = fold.train & np.isfinite(accuracy)
            if known.sum() < FEWEST_MODELS:
                weak[task.name] = (
                    f"{known.sum()} training models have both losses and accuracy, a fit needs at least {FEWEST_MODELS}"
                )
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
    """Why nothing was learned where all training models have the same inputs; empty where they differ."""
    if not fit.capability.reads or fit.has_range or np.isnan(fit.range).any():
        return ""  # without a range no training model has such inputs, and the law says so itself
    if fit.is_level and not (same_losses and fit.reads_losses):
        return ""  # inputs differ, but say nothing: the forecast is a constant
    what = "losses" if fit.reads_losses else "inputs"
    return f"all training models have the same {what} for {fit.method}; there is nothing to learn from"
