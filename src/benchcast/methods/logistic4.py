"""The method `logistic-4`: a logistic curve of loss with free floor and ceiling, and the fits of such curves.

Accuracy plateaus below 1 for strong models and above or below chance for weak ones. Many curves are fitted
at once: a grid of slopes and midpoints, floor and ceiling in closed form at each, then damped
Gauss–Newton steps in all four. Axes: P problems (sets of models × candidates), G grid points, M models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import Dataset, LossView
from benchcast.methods.capability import WeightedLoss, weighted_loss
from benchcast.methods.distances import select_candidate
from benchcast.methods.law import STEEPEST, SigmoidLaw, fit_laws, sigmoid
from benchcast.methods.solvers import gauss_newton
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats, Task
from benchcast.splits import Fold
from benchcast.steps import steps

SLOPES = -np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])  # log-odds per standard deviation of loss
MIDPOINTS = np.linspace(-2.0, 2.0, 9)
STEPS = 40
LEAST_RISE = 0.01  # of ceiling over floor


def logistic4(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Mean loss of all tokens, the task's texts or their answers, selected by leave-one-family-out cross-validation."""
    fits: list[list[TaskFit]] = [[] for _ in folds]
    for t, task in enumerate(steps(dataset.tasks, "tasks")):
        masks = readings(dataset, task)
        losses = (
            np.stack([weighted_loss(dataset.nats, [LossView.NATS], w) for w in masks.values()]) / dataset.characters
        )
        for row, fold in zip(fits, folds, strict=True):
            row.append(_fit(dataset, fold, t, masks=masks, losses=losses))
    return fits


def _fit(dataset: Dataset, fold: Fold, t: int, *, masks: dict[str, npt.NDArray[np.float32]], losses: Floats) -> TaskFit:
    observed = dataset.accuracy[t]
    known = fold.seen & np.isfinite(observed)
    selected = select_candidate(lambda sets: curve_forecasts(losses, observed, sets), dataset, observed, known=known)
    x = losses[selected.best]
    name = list(masks)[selected.best]
    return TaskFit(
        task=dataset.tasks[t],
        method="logistic-4",
        capability=WeightedLoss(views=(LossView.NATS,), weights=masks[name], unit=dataset.characters),
        law=fit_curves(x[None], observed[None], known[None]).law(0),
        out_of_fold=selected.out_of_fold,
        range=(float(x[known].min()), float(x[known].max())),
        notes={"loss of": name},
    )


def readings(dataset: Dataset, task: Task) -> dict[str, npt.NDArray[np.float32]]:
    """Masks of tokens whose mean loss may be used: answers, the task's texts, all texts; empty ones are omitted."""
    own_texts = dataset.reference_tokens.of_task(task)
    masks = {"answer": dataset.reference_tokens.answers(task), "source": own_texts, "all": np.ones_like(own_texts)}
    return {k: m.astype(np.float32)[None] for k, m in masks.items() if (m & dataset.reference_tokens.supported).any()}


def curve_forecasts(losses: Floats, observed: Floats, sets: Sequence[Bools]) -> Floats:
    """Forecasts (I × C × M) of four-parameter curves on each set of models and each candidate's losses (C × M)."""
    learn = np.repeat(np.stack(sets), len(losses), axis=0)
    x = np.tile(losses, (len(sets), 1))
    curves = fit_curves(x, np.broadcast_to(observed, x.shape), learn)
    return curves.accuracy(x).reshape(len(sets), len(losses), -1)


def law_forecasts(capability: Floats, observed: Floats, chance: float, *, sets: Sequence[Bools]) -> Floats:
    """Forecasts (I × C × M) of two-parameter laws, each fitted on one set of models and one candidate's capability."""
    count, candidates, models = capability.shape
    learn = np.repeat(np.stack(sets), candidates, axis=0)
    x = np.where(np.isfinite(capability), capability, 0.0).reshape(-1, models)
    gamma = np.full(len(x), chance)
    laws = fit_laws(x, np.broadcast_to(observed, x.shape), gamma, weight=learn.astype(np.float64))
    return laws.accuracy(x, gamma).reshape(count, candidates, models)


@dataclass(frozen=True, slots=True)
class Curves:
    """Fitted curves: accuracy = floor + rise × sigmoid(slope × loss + offset); one of each per problem."""

    slope: Floats
    offset: Floats
    floor: Floats
    rise: Floats

    def accuracy(self, loss: Floats) -> Floats:
        """Accuracy for losses of P × M."""
        s = sigmoid(self.slope[:, None] * loss + self.offset[:, None])
        return np.asarray(self.floor[:, None] + self.rise[:, None] * s)

    def law(self, p: int) -> SigmoidLaw:
        """The law of one problem."""
        floor, ceiling = float(self.floor[p]), float(self.floor[p] + self.rise[p])
        return SigmoidLaw(float(self.slope[p]), float(self.offset[p]), floor, ceiling=ceiling)


def fit_curves(loss: Floats, accuracy: Floats, learn: Bools) -> Curves:
    """One falling curve per row of `loss` (P × M) on the models of the same row of `learn`."""
    weight = learn / learn.sum(axis=1, keepdims=True)
    x, a = np.where(learn, loss, 0.0), np.where(learn, accuracy, 0.0)
    mean = (weight * x).sum(axis=1, keepdims=True)
    spread = np.sqrt((weight * (x - mean) ** 2).sum(axis=1, keepdims=True))
    spread = np.where(spread > 0, spread, 1.0)
    z = (x - mean) / spread
    root = np.sqrt(weight)

    def evaluate(theta: Floats) -> tuple[Floats, Floats]:
        s = sigmoid(theta[:, :1] * z + theta[:, 1:2])
        steep = theta[:, 3:] * s * (1 - s)
        slopes = np.stack([steep * z, steep, np.ones_like(z), s], axis=1)  # P × 4 × M
        return root * (theta[:, 2:3] + theta[:, 3:] * s - a), root[:, None] * slopes

    theta = gauss_newton(_grid(z, a, weight), evaluate, _within_bounds, steps=STEPS).theta
    slope = theta[:, 0] / spread[:, 0]
    return Curves(slope, theta[:, 1] - slope * mean[:, 0], theta[:, 2], theta[:, 3])


def _grid(z: Floats, a: Floats, weight: Floats) -> Floats:
    """Slope, offset, floor and rise (P × 4) of the best grid point."""
    slope, middle = (g.ravel() for g in np.meshgrid(SLOPES, MIDPOINTS))
    s = sigmoid(slope[:, None] * (z[:, None] - middle[:, None]))
    w = weight[:, None]
    s_mean, a_mean = (w * s).sum(axis=2), (w * a[:, None]).sum(axis=2)
    cross = (w * s * a[:, None]).sum(axis=2) - s_mean * a_mean
    rise = cross / np.maximum((w * s**2).sum(axis=2) - s_mean**2, 1e-12)
    floor = np.clip(a_mean - rise * s_mean, 0.0, 1.0 - LEAST_RISE)
    rise = np.clip(rise, LEAST_RISE, 1.0 - floor)
    error = (w * (floor[..., None] + rise[..., None] * s - a[:, None]) ** 2).sum(axis=2)
    best, row = np.argmin(error, axis=1), np.arange(len(z))
    return np.stack([slope[best], -slope[best] * middle[best], floor[row, best], rise[row, best]], axis=1)


def _within_bounds(theta: Floats) -> Floats:
    slope, offset, floor, rise = theta.T
    floor = np.clip(floor, 0.0, 1.0 - LEAST_RISE)
    return np.stack(
        [
            np.clip(slope, -STEEPEST, -1e-3),
            np.clip(offset, -STEEPEST, STEEPEST),
            floor,
            np.clip(rise, LEAST_RISE, 1.0 - floor),
        ],
        axis=1,
    )
