"""The method `ridge`: signed weights in closed form.

With identity activation the capability is (L H θ) / N_c. The data enter only through the small matrix
G = L H / N_c, computed in one pass over the features; ridge regression on the log-odds scale is then a models × models
solve. Signed weights fit known families well but generalise poorly to new ones (lab/LOG.md).
Axes: M models, N tokens, D features, R strengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.devices import place, to_numpy
from benchcast.errors import NotEnoughDataError
from benchcast.losses.dataset import Dataset, LossView
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.features import Moments, StreamedBlocks, keep_on_device, measure
from benchcast.methods.law import at_share, clipped_log_odds, fit_law, sigmoid
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Bools, Floats
from benchcast.splits import Fold, inner_folds
from benchcast.steps import steps

STRENGTHS = 10.0 ** np.arange(-6.0, 2.1, 0.5)  # relative to the mean of the kernel's diagonal


def ridge(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Signed weights; the strength is selected on validation models, or on left-out training families without them."""
    if dataset.features is None:
        raise NotEnoughDataError(
            "method 'ridge' needs features of a scorer; run `benchcast features` or `benchcast import features`"
        )
    dataset = keep_on_device(dataset)
    moments = measure(dataset, weigh=True)
    G, tasks = loss_features(dataset, moments), range(len(dataset.tasks))
    chosen = [[_choose(dataset, fold, t, G=G) for t in steps(tasks, "tasks")] for fold in steps(folds, "folds")]
    weights = iter(token_weights(dataset, moments, np.stack([c.theta for row in chosen for c in row], axis=1)).T)
    return [
        [_task_fit(dataset, fold, t, chosen=c, weights=next(weights)) for t, c in enumerate(row)]
        for fold, row in zip(folds, chosen, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Coefficients at the selected strength, and the errors used to select it."""

    theta: Floats  # D + 1
    strength: float
    out_of_fold: OutOfFoldErrors


def _choose(dataset: Dataset, fold: Fold, t: int, *, G: Floats) -> _Chosen:
    """The strength with the least error on validation models, or on left-out training families without them."""
    task, observed = dataset.tasks[t], dataset.accuracy[t]
    known = np.isfinite(observed)
    learn, validation = fold.train & known, fold.validation & known
    target = clipped_log_odds(np.where(known, observed, task.chance), task.chance)
    hidden = [validation] if validation.any() else inner_folds(dataset.groups, learn)
    log_odds = np.concatenate([solve(G, target, learn & ~h)[1][h] for h in hidden])
    scores = np.concatenate([observed[h] for h in hidden])
    errors = at_share(sigmoid(log_odds), task.chance) - scores[:, None]  # models × strengths
    best = int(np.argmin((errors**2).mean(axis=0)))
    theta = -solve(G, target, learn)[0][:, best]  # accuracy decreases with capability
    out_of_fold = OutOfFoldErrors.of(dataset, hidden, errors[:, best], kind="the models that chose the strength")
    return _Chosen(theta=theta, strength=float(STRENGTHS[best]), out_of_fold=out_of_fold)


def loss_features(dataset: Dataset, moments: Moments) -> Floats:
    """G = L H / N_c on standardised features, and the mean loss itself as one more (M × (D + 1))."""
    mass = dataset.nats.sum(axis=1, dtype=np.float64)[:, None]
    standard = (moments.sums - mass * moments.mean) / moments.spread
    return np.hstack([standard, mass]) / dataset.characters


def solve(G: Floats, target: Floats, learn: Bools) -> tuple[Floats, Floats]:
    """Coefficients for every strength ((D + 1) × R) and the log-odds they give every model (M × R)."""
    middle = G[learn].mean(axis=0)
    level = target[learn].mean()
    rows = G[learn] - middle
    values, vectors = np.linalg.eigh(rows @ rows.T)
    strengths = STRENGTHS * max(float(np.mean(values)), 1e-300)
    turned = (vectors.T @ (target[learn] - level))[:, None] / (np.maximum(values, 0)[:, None] + strengths)
    theta = rows.T @ (vectors @ turned)
    return theta, level + (G - middle) @ theta


def token_weights(dataset: Dataset, moments: Moments, theta: Floats) -> npt.NDArray[np.float32]:
    """Weights of every token (N × columns of theta), in one pass; coefficients apply to standardised features
    and the mean loss."""
    assert dataset.features is not None
    scaled = theta[:-1] / moments.spread[:, None]
    shift = (theta[-1] - moments.mean @ scaled).astype(np.float32)
    columns = place(np.ascontiguousarray(scaled.T), dataset.device, "float32")
    blocks = StreamedBlocks(dataset.features, dataset.device)
    return np.concatenate([to_numpy(block.project(columns)).T + shift for _, block in blocks])


def _task_fit(dataset: Dataset, fold: Fold, t: int, *, chosen: _Chosen, weights: npt.NDArray[np.float32]) -> TaskFit:
    task, observed = dataset.tasks[t], dataset.accuracy[t]
    learn = fold.train & np.isfinite(observed)
    token_weight = np.ascontiguousarray(weights)[None]
    weighted = WeightedLoss(views=(LossView.NATS,), weights=token_weight, unit=dataset.characters)
    capability = weighted.of(dataset.nats)
    return TaskFit(
        task=task,
        method="ridge",
        capability=weighted,
        law=fit_law(capability[learn], observed[learn], task.chance),
        out_of_fold=chosen.out_of_fold,
        range=(float(capability[learn].min()), float(capability[learn].max())),
        notes={"strength": chosen.strength},
    )
