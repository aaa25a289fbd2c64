"""The method `perplexity-correlations`: texts weighted by rank statistics (Thrush et al. 2024).

The estimators are those of the authors' package: U-statistics of a single-index model, error = f(⟨weights, losses⟩)
with an unknown increasing f. They estimate weights up to scale, so a law is fitted to get accuracies.
Axes: M models, S texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchcast.losses.dataset import Dataset, LossView, spread_over_tokens, text_losses
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.distances import select_candidate
from benchcast.methods.law import fit_law
from benchcast.methods.logistic4 import law_forecasts
from benchcast.methods.solvers import ranks as ranks_of
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats
from benchcast.splits import Fold
from benchcast.steps import steps


def perplexity_correlations(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Weights of texts; the estimator is selected by leave-one-family-out cross-validation."""
    losses = text_losses(dataset)
    ranks = ranks_among(losses)

    def weigh(learn: Bools, observed: Floats) -> Floats:
        """Weights of the texts under every estimator."""
        x, r, error = losses[learn], ranks(learn), 1 - observed[learn]
        varies = np.ptp(x, axis=0) > 0
        return np.stack([np.where(varies, estimate(x, r, error), 0.0) for estimate in ESTIMATORS.values()])

    tasks = range(len(dataset.tasks))
    return [
        [_fit(dataset, fold, t, losses=losses, weigh=weigh) for t in steps(tasks, "tasks")]
        for fold in steps(folds, "folds")
    ]


def _fit(dataset: Dataset, fold: Fold, t: int, *, losses: Floats, weigh: Callable[[Bools, Floats], Floats]) -> TaskFit:
    task, observed = dataset.tasks[t], dataset.accuracy[t]
    known = fold.seen & np.isfinite(observed)

    def forecasts(sets: Sequence[Bools]) -> Floats:
        capability = np.stack([weigh(learn, observed) @ losses.T for learn in sets])
        return law_forecasts(capability, observed, task.chance, sets=sets)

    selected = select_candidate(forecasts, dataset, observed, known=known)
    weights = weigh(known, observed)[selected.best]
    capability = losses @ weights
    return TaskFit(
        task=task,
        method="perplexity-correlations",
        capability=WeightedLoss(views=(LossView.NATS,), weights=spread_over_tokens(dataset, weights), unit=1.0),
        law=fit_law(capability[known], observed[known], task.chance),
        out_of_fold=selected.out_of_fold,
        range=(float(capability[known].min()), float(capability[known].max())),
        notes={"estimator": list(ESTIMATORS)[selected.best]},
    )


ESTIMATORS: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {  # losses, their ranks, errors → weights
    "rank": lambda x, ranks, error: rank(ranks, error),
    "sign of ranks": lambda x, ranks, error: sign_rank(ranks, error),
    "sign": lambda x, ranks, error: sign(x, error),
}


def sign(x: Floats, error: Floats) -> Floats:
    """Mean over pairs of models of sign(error difference) × loss difference (Chen and Banerjee 2017)."""
    n = len(error)
    wins = 2 * ranks_of(error) - n - 1  # models with a smaller error, less those with a larger one
    return np.asarray(2 * wins @ x / (n * (n - 1)))


def sign_rank(ranks: Floats, error: Floats) -> Floats:
    """The same with losses replaced by ranks, which is robust to outliers. The package's `sign_cdf`."""
    return sign(ranks / len(ranks), error)


def rank(ranks: Floats, error: Floats) -> Floats:
    """Spearman's rank correlation of each text's loss with the error. The package's `spearmanr`."""
    n = len(error)
    gaps = ((ranks_of(error)[:, None] - ranks) ** 2).sum(axis=0)
    return np.asarray(1 - 6 * gaps / (n * (n**2 - 1)))


def ranks_among(values: Floats) -> Callable[[Bools], Floats]:
    """A function from a set of rows to the ranks of each column of `values` within it, from 1; ties share their mean.

    Columns are sorted once, because many sets of models are ranked. scipy.stats takes more than a second to load.
    """
    order = np.argsort(values, axis=0, kind="stable")
    in_order = np.take_along_axis(values, order, axis=0)
    count = len(values)
    new = np.vstack([np.ones((1, values.shape[1]), bool), in_order[1:] != in_order[:-1]])  # not equal to the one before
    position = np.arange(count)[:, None]
    first = np.maximum.accumulate(np.where(new, position, 0), axis=0)
    ends = np.vstack([new[1:], np.ones((1, values.shape[1]), bool)])
    after = np.minimum.accumulate(np.where(ends, position + 1, count)[::-1], axis=0)[::-1]

    def ranks(rows: Bools) -> Floats:
        before = np.zeros((count + 1, values.shape[1]), np.int32)
        np.cumsum(rows[order], axis=0, out=before[1:])
        mean = (np.take_along_axis(before, first, axis=0) + np.take_along_axis(before, after, axis=0) + 1) / 2
        out = np.empty_like(mean)
        np.put_along_axis(out, order, mean, axis=0)
        return np.asarray(out[rows])

    return ranks
