"""Whether there is enough to learn from: scores that differ, and inputs that differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchcast.dataset import Dataset, Fold
from benchcast.errors import NotEnoughDataError
from benchcast.folds import FEWEST_MODELS
from benchcast.intervals import SAME, has_range
from benchcast.task_fit import TaskFit


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


def equal_inputs(fit: TaskFit) -> str:
    """Why nothing was learned where all training models have the same inputs; empty where they differ."""
    if not fit.reads or fit.law.slope == 0 or not _has_weight(fit) or has_range(fit) or np.isnan(fit.range).any():
        return ""  # without a range no training model has such inputs, and the law says so itself
    what = "losses" if fit.reads_losses else "inputs"
    return f"all training models have the same {what} for {fit.method}; there is nothing to learn from"


def _has_weight(fit: TaskFit) -> bool:
    """Whether any input has a weight above rounding error.

    An average of laws that are all level may keep weights such as 1e-19: its forecasts are the same for all training
    models, although their losses differ.
    """
    least = 0.0 if fit.average is None else SAME * fit.unit * float(np.max(np.abs(fit.range)))
    return float(np.abs(fit.weights).sum(dtype=np.float64)) > least
