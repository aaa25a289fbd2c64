"""The method `rbridge`: mean loss on worked solutions.

Each loss is weighted by the probability that a strong model gives the token (Koh et al. 2025). The solutions are the
answers of the task's own texts: in a text with worked steps, the answer starts with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import Dataset, LossView
from benchcast.methods.capability import WeightedLoss, weighted_loss
from benchcast.methods.distances import select_candidate
from benchcast.methods.law import SigmoidLaw, fit_law
from benchcast.methods.logistic4 import law_forecasts
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Bools, Floats, Task
from benchcast.splits import Fold
from benchcast.steps import steps

READS = (LossView.NATS,)
NO_SOLUTIONS = "the study has no answers for this task"


def rbridge(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Mean loss on the solutions, each token weighted by its probability under the strongest model that may be seen.

    The strongest model is the one with the lowest loss on the solutions. Weights are scaled to run from 0 to 1.
    """
    tasks = range(len(dataset.tasks))
    return [[_fit(dataset, fold, t) for t in steps(tasks, "tasks")] for fold in steps(folds, "folds")]


def _fit(dataset: Dataset, fold: Fold, t: int) -> TaskFit:
    task, observed = dataset.tasks[t], dataset.accuracy[t]
    mask = dataset.reference_tokens.answers(task) & dataset.reference_tokens.supported
    known = fold.seen & np.isfinite(observed)
    if not mask.any() or not known.any():
        return _without(dataset, task)
    losses = np.where(mask, dataset.nats, 0.0).sum(axis=1)

    def weigh(learn: Bools) -> npt.NDArray[np.float32]:
        strongest = min(np.flatnonzero(learn), key=lambda row: losses[row])
        return (trust(dataset.nats[strongest], mask) / mask.sum())[None].astype(np.float32)

    def forecasts(sets: Sequence[Bools]) -> Floats:
        sums = np.stack([[weighted_loss(dataset.nats, READS, weigh(learn))] for learn in sets])
        return law_forecasts(sums, observed, task.chance, sets=sets)

    out_of_fold = select_candidate(forecasts, dataset, observed, known=known).out_of_fold
    weights = weigh(known)
    x = weighted_loss(dataset.nats, READS, weights)
    return TaskFit(
        task=task,
        method="rbridge",
        capability=WeightedLoss(views=READS, weights=weights, unit=1.0),
        law=fit_law(x[known], observed[known], task.chance),
        out_of_fold=out_of_fold,
        range=(float(x[known].min()), float(x[known].max())),
    )


def _without(dataset: Dataset, task: Task) -> TaskFit:
    return TaskFit(
        task=task,
        method="rbridge",
        capability=WeightedLoss(views=READS, weights=np.zeros((1, dataset.nats.shape[1]), np.float32), unit=1.0),
        law=SigmoidLaw.failed(task.chance, NO_SOLUTIONS),
        out_of_fold=OutOfFoldErrors.none("no models"),
        range=(np.nan, np.nan),
    )


def trust(nats: npt.NDArray[np.floating], mask: Bools) -> Floats:
    """Probabilities of the tokens in the mask, scaled to run from 0 to 1; 0 elsewhere.

    >>> trust(np.array([0.0, np.log(2), np.log(4), 9.0]), np.array([True, True, True, False])).round(3)
    array([1.   , 0.333, 0.   , 0.   ])
    """
    p = np.exp(-np.asarray(nats, np.float64))
    low, high = p[mask].min(), p[mask].max()
    return np.where(mask, (p - low) / (high - low) if high > low else 1.0, 0.0)
