"""The method `pls`: partial least squares from per-text losses to log-odds (Wold, Sjöström and Eriksson 2001).

NIPALS finds directions of the models × texts matrix one by one. Each has the largest covariance with the target among
those uncorrelated with the earlier ones. A few directions summarise hundreds of texts with correlated losses.
Axes: M models, S texts, K components.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchcast.losses.dataset import Dataset, LossView, spread_over_tokens, text_losses
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.distances import select_candidate
from benchcast.methods.law import SigmoidLaw, at_share, clipped_log_odds, sigmoid
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats
from benchcast.splits import Fold
from benchcast.steps import steps

COMPONENTS = 8


def pls(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Signed weights of texts; the number of components is chosen on training families left out in turn."""
    losses = text_losses(dataset)
    tasks = range(len(dataset.tasks))
    return [[_fit(dataset, fold, t, losses=losses) for t in steps(tasks, "tasks")] for fold in steps(folds, "folds")]


def regress(x: Floats, y: Floats, components: int) -> tuple[Floats, Floats]:
    """Coefficients (K × S) and intercepts (K) of partial least squares with 1, 2, … components.

    Columns are scaled to unit variance; constant columns get weight 0.
    """
    centre, scale = x.mean(axis=0), x.std(axis=0, ddof=1)
    varies = scale > 1e-12 * np.maximum(1.0, np.abs(centre))
    z = np.where(varies, x - centre, 0.0) / np.where(varies, scale, 1.0)
    left = y - y.mean()
    directions, loadings, inner, coefficients = [], [], [], []
    for _ in range(min(components, len(x) - 1)):
        w = z.T @ left
        length = np.linalg.norm(w)
        if length <= 1e-12 * np.linalg.norm(y - y.mean()):
            break  # the target is explained
        w /= length
        score = z @ w
        size = score @ score
        loading = z.T @ score / size
        inner.append(left @ score / size)
        z = z - np.outer(score, loading)
        left = left - inner[-1] * score
        directions.append(w)
        loadings.append(loading)
        W, P = np.array(directions).T, np.array(loadings).T
        coefficients.append(W @ np.linalg.solve(P.T @ W, np.array(inner)))
    scaled = np.array(coefficients).reshape(-1, x.shape[1]) / np.where(varies, scale, 1.0)
    return scaled, y.mean() - scaled @ centre


def _fit(dataset: Dataset, fold: Fold, t: int, *, losses: Floats) -> TaskFit:
    task, observed = dataset.tasks[t], dataset.accuracy[t]
    known = fold.seen & np.isfinite(observed)
    target = clipped_log_odds(np.where(known, observed, task.chance), task.chance)

    def forecasts(sets: Sequence[Bools]) -> Floats:
        share = np.empty((len(sets), COMPONENTS, len(observed)))
        for row, learn in zip(share, sets, strict=True):
            weights, offsets = regress(losses[learn], target[learn], COMPONENTS)
            row[: len(weights)] = sigmoid(weights @ losses.T + offsets[:, None])
            row[len(weights) :] = row[len(weights) - 1] if len(weights) else sigmoid(target[learn].mean())
        return np.asarray(at_share(share, task.chance))

    selected = select_candidate(forecasts, dataset, observed, known=known)
    weights, offsets = regress(losses[known], target[known], selected.best + 1)
    if not len(weights):  # all losses or all scores are equal
        weights, offsets = np.zeros((1, losses.shape[1])), target[known].mean(keepdims=True)
    capability = -losses @ weights[-1]
    return TaskFit(
        task=task,
        method="pls",
        capability=WeightedLoss(views=(LossView.NATS,), weights=spread_over_tokens(dataset, -weights[-1]), unit=1.0),
        law=SigmoidLaw(-1.0, float(offsets[-1]), task.chance),
        out_of_fold=selected.out_of_fold,
        range=(float(capability[known].min()), float(capability[known].max())),
        notes={"components": len(weights)},
    )
