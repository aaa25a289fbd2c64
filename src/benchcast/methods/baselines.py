"""Baselines with fixed weights: only the law is fitted, on training and validation models together.

Axes: F folds, T tasks, M models, I inner folds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchcast.losses.dataset import Dataset, LossView
from benchcast.methods.capability import Capability, LogCompute, Nothing, WeightedLoss
from benchcast.methods.law import SigmoidLaw, fit_law, fit_laws
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Bools, Floats
from benchcast.splits import Fold, inner_folds
from benchcast.steps import steps

OUT_OF_FAMILY = "each training family in turn left out of the law"


def all_token(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Mean loss of all tokens."""
    return _by_mask("all-token", dataset, folds, [np.ones_like(dataset.reference_tokens.answer)] * len(dataset.tasks))


def source_token(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Mean loss of the tokens of the task's own texts."""
    return _by_mask("source-token", dataset, folds, [dataset.reference_tokens.of_task(t) for t in dataset.tasks])


def label_token(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Mean loss of the answers of the task's own texts."""
    masks = [dataset.reference_tokens.answers(t) for t in dataset.tasks]
    return _by_mask("label-token", dataset, folds, masks)


def compute(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Training FLOPs, on a log scale."""
    capability = LogCompute()
    reading = [(capability, capability.of(dataset.nats, dataset.metadata))] * len(dataset.tasks)
    absent = "no training model has its FLOPs in models.csv"
    return _fit_given("compute", dataset, folds, reading=reading, if_absent=absent)


def constant(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """The mean accuracy of the training models."""
    fits = []
    for fold in folds:
        row = []
        for task, accuracy in zip(dataset.tasks, dataset.accuracy, strict=True):
            known = fold.seen & np.isfinite(accuracy)
            mean = float(accuracy[known].mean())
            hidden = [inner & known for inner in inner_folds(dataset.groups, known)]
            errors = np.concatenate([accuracy[known & ~h].mean() - accuracy[h] for h in hidden])
            log_odds = float(np.log(mean / (1 - mean))) if 0 < mean < 1 else np.copysign(40.0, mean - 0.5)
            row.append(
                TaskFit(
                    task=task,
                    method="constant",
                    capability=Nothing(),
                    law=SigmoidLaw(0.0, log_odds, 0.0),
                    out_of_fold=OutOfFoldErrors.of(dataset, hidden, errors, kind=OUT_OF_FAMILY),
                    range=(0.0, 0.0),
                )
            )
        fits.append(row)
    return fits


def _by_mask(method: str, dataset: Dataset, folds: Sequence[Fold], masks: Sequence[Bools]) -> list[list[TaskFit]]:
    reading: list[tuple[Capability, Floats]] = []
    for mask in masks:
        weights = mask.astype(np.float32)[None]
        capability = WeightedLoss(views=(LossView.NATS,), weights=weights, unit=dataset.characters)
        x = capability.of(dataset.nats)
        used = (mask & dataset.reference_tokens.supported).any()
        reading.append((capability, x if used else np.full_like(x, np.nan)))
    absent = "the study has no such tokens for this task"
    return _fit_given(method, dataset, folds, reading=reading, if_absent=absent)


def _fit_given(
    method: str,
    dataset: Dataset,
    folds: Sequence[Fold],
    *,
    reading: Sequence[tuple[Capability, Floats]],
    if_absent: str,
) -> list[list[TaskFit]]:
    """Fit the law of every fold and task on given capabilities; `reading` has each task's, and its values (M)."""
    fits = []
    for fold in steps(folds, "folds"):
        row = []
        for task, accuracy, (capability, x) in zip(dataset.tasks, dataset.accuracy, reading, strict=True):
            known = fold.seen & np.isfinite(accuracy) & np.isfinite(x)
            law, out_of_fold = fit_law_with_errors(dataset, x, accuracy, chance=task.chance, known=known)
            if not known.any():
                law = SigmoidLaw.failed(task.chance, if_absent)
            span = (float(x[known].min()), float(x[known].max())) if known.any() else (np.nan, np.nan)
            row.append(
                TaskFit(task=task, method=method, capability=capability, law=law, out_of_fold=out_of_fold, range=span)
            )
        fits.append(row)
    return fits


def fit_law_with_errors(
    dataset: Dataset, x: Floats, accuracy: Floats, *, chance: float, known: Bools
) -> tuple[SigmoidLaw, OutOfFoldErrors]:
    """The law fitted on all known models, and out-of-fold errors: each family forecast by a law fitted without it."""
    law = fit_law(x[known], accuracy[known], chance)
    hidden = [] if law.failure else inner_folds(dataset.groups, known)
    if not hidden:
        return law, OutOfFoldErrors.none(OUT_OF_FAMILY)
    learn = np.stack([known & ~h for h in hidden]).astype(np.float64)
    values = np.broadcast_to(np.where(known, x, 0.0), learn.shape)
    gamma = np.full(len(learn), chance)
    laws = fit_laws(values, np.broadcast_to(accuracy, learn.shape), gamma, weight=learn)
    forecasts = laws.accuracy(values, gamma)
    errors = np.concatenate([f[h] - accuracy[h] for f, h in zip(forecasts, hidden, strict=True)])
    return law, OutOfFoldErrors.of(dataset, hidden, errors, kind=OUT_OF_FAMILY)
