"""The method `paper`: Algorithm 2 on a study's dataset, with the step chosen on the validation models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.dataset import Dataset, Fold
from benchcast.devices import Array, place, to_numpy
from benchcast.errors import NotEnoughDataError
from benchcast.law import Laws, fit_law
from benchcast.methods.algorithm2.descent import Descent, DescentSettings, Problems, Snapshot, descend, head_weights
from benchcast.methods.features import keep_on_device, prepare_inputs
from benchcast.predictors import LossView
from benchcast.records import Bools
from benchcast.task_fit import OutOfFoldErrors, TaskFit, weighted_loss

SHOTS = (0, 1, 2, 5, 10, 20, 40, 70, 100, 150, 200, 250, 300)  # steps kept for figure 6


def paper(dataset: Dataset, folds: Sequence[Fold], *, settings: DescentSettings | None = None) -> list[list[TaskFit]]:
    """Algorithm 2 for all folds and tasks in one descent."""
    chosen = settings or DescentSettings()
    if dataset.features is None:
        raise NotEnoughDataError(
            "method 'paper' needs features of a scorer; run `benchcast features` or `benchcast import features`"
        )
    folds = [_with_validation(fold, dataset.groups) for fold in folds]
    dataset = keep_on_device(dataset)
    inputs = prepare_inputs(dataset, standardise=chosen.standardise)
    problems = _problems(dataset, folds, chosen)
    descent = descend(inputs, problems, chosen)
    weights = to_numpy(head_weights(inputs, descent.head, chosen))
    descent = replace(
        descent, step=to_numpy(descent.step), error=to_numpy(descent.error), history=_on_host(descent.history)
    )
    error = descent.error.reshape(len(folds), len(dataset.tasks), -1)
    picked = np.arange(error.size).reshape(error.shape)
    column = np.take_along_axis(picked, np.argmin(error, axis=-1)[..., None], axis=-1)[..., 0]
    return [
        [_task_fit(dataset, fold, t, weights[:, p], *_course(descent, p, chosen)) for t, p in enumerate(columns)]
        for fold, columns in zip(folds, column, strict=True)
    ]


def _problems(dataset: Dataset, folds: Sequence[Fold], settings: DescentSettings) -> Problems:
    """All combinations of fold, task and rate as one axis of problems."""
    accuracy, chance, train, validation, rate = [], [], [], [], []
    for fold in folds:
        for observed, task in zip(dataset.accuracy, dataset.tasks, strict=True):
            known = np.isfinite(observed)
            for r in settings.rates:
                accuracy.append(np.where(known, observed, 0.0))
                chance.append(task.chance)
                train.append(known & fold.train)
                validation.append(_selecting_models(known, fold))
                rate.append(r)
    together = None
    if settings.joint:
        shape = (len(folds), len(dataset.tasks), len(settings.rates))
        fold_of, _, rate_of = np.indices(shape).reshape(3, -1)
        together = ((fold_of[:, None] == fold_of) & (rate_of[:, None] == rate_of)).astype(float)

    def placed(rows: npt.ArrayLike, dtype: type = np.float64) -> Array:
        return place(np.array(rows, dtype), dataset.device)

    return Problems(
        placed(accuracy),
        placed(chance),
        placed(train),
        placed(validation),
        placed(rate, np.float32),
        None if together is None else placed(together),
    )


def _on_host(history: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    """The history as numpy arrays."""
    return tuple(
        Snapshot(
            s.step,
            to_numpy(s.capability),
            Laws(*(to_numpy(x) for x in (s.laws.slope, s.laws.offset, s.laws.mse, s.laws.converged))),
            to_numpy(s.train_mse),
            to_numpy(s.validation_mse),
        )
        for s in history
    )


def _selecting_models(known: Bools, fold: Fold) -> Bools:
    """The models on which the step is selected: validation models, or training models if none of those has a score."""
    validation: Bools = known & fold.validation
    return validation if validation.any() else known & fold.train


def _with_validation(fold: Fold, families: npt.NDArray[np.str_]) -> Fold:
    """Without validation models, use the training family with the second most models."""
    if fold.validation.any():
        return fold
    names, first, counts = np.unique(families[fold.train], return_index=True, return_counts=True)
    if len(names) < 2:
        raise NotEnoughDataError("method 'paper' needs validation models, or two training families")
    order = np.lexsort((first, -counts))
    hidden: Bools = fold.train & (families == names[order[1]])
    return Fold(fold.train & ~hidden, hidden, fold.test)


def _course(descent: Descent, p: int, settings: DescentSettings) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Settings and chosen step of problem number `p`, and its values by step."""
    notes = {
        **asdict(settings),
        "rate": float(settings.rates[p % len(settings.rates)]),
        "best_step": int(descent.step[p]),
    }
    shots = [s for s in descent.history if s.step in SHOTS or s.step == settings.steps]
    return notes, {
        "step": np.array([s.step for s in shots]),
        "capability": np.stack([s.capability[p] for s in shots]),
        "slope": np.array([s.laws.slope[p] for s in shots]),
        "offset": np.array([s.laws.offset[p] for s in shots]),
        "train_mse": np.array([s.train_mse[p] for s in descent.history]),
        "validation_mse": np.array([s.validation_mse[p] for s in descent.history]),
    }


def _task_fit(
    dataset: Dataset,
    fold: Fold,
    t: int,
    weights: npt.NDArray[np.float32],
    notes: dict[str, Any],
    history: dict[str, npt.NDArray[Any]],
) -> TaskFit:
    task, observed = dataset.tasks[t], dataset.accuracy[t]
    row = np.ascontiguousarray(weights, np.float32)[None]
    capability = weighted_loss(dataset.nats, [LossView.NATS], row) / dataset.characters
    known = np.isfinite(observed)
    train = fold.train & known
    law = fit_law(capability[train], observed[train], task.chance)
    out_of_fold = fold.validation & known  # errors on training models are not out-of-fold
    errors = law.accuracy(capability[out_of_fold]) - observed[out_of_fold]
    return TaskFit(
        task=task,
        method="paper",
        reads=(LossView.NATS,),
        weights=row,
        unit=dataset.characters,
        law=law,
        out_of_fold=OutOfFoldErrors.of(dataset, [out_of_fold], errors, "validation models, which also chose the step"),
        range=(float(capability[train].min()), float(capability[train].max())),
        notes=notes,
        history=history,
    )
