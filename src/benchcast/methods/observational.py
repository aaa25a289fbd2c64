"""The method `observational`: principal components of the other benchmarks' scores → a sigmoid (Ruan et al. 2024).

It reads no losses; a model needs scores on the other benchmarks to be forecast.
Axes: M models, B benchmarks, K components.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchcast.losses.dataset import Dataset
from benchcast.methods.capability import Nothing, WeightedScores
from benchcast.methods.distances import select_candidate
from benchcast.methods.law import SigmoidLaw, at_share, clipped_log_odds, sigmoid
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Bools, Floats
from benchcast.splits import LEFT_OUT, Fold
from benchcast.steps import steps

COMPONENTS = 3
STEEPEST = 30.0  # log-odds per standard deviation of a component
COMMON = 0.9  # benchmarks with scores of a smaller share of the models are not used


def observational(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Weights of the other benchmarks, per fold and task."""
    tasks = range(len(dataset.tasks))
    return [[_fit(dataset, fold, t) for t in steps(tasks, "tasks")] for fold in steps(folds, "folds")]


def _fit(dataset: Dataset, fold: Fold, t: int) -> TaskFit:
    task, observed, metadata = dataset.tasks[t], dataset.accuracy[t], dataset.metadata
    scored = fold.seen & np.isfinite(observed)
    others = [
        b for b in metadata.benchmarks if b != task.name and np.isfinite(metadata.score(b)[scored]).mean() >= COMMON
    ]
    table = np.stack([metadata.score(b) for b in others], axis=1) if others else np.empty((len(observed), 0))
    whole = np.isfinite(table).all(axis=1)
    known = scored & whole
    k = min(COMPONENTS, len(others))
    if not others or known.sum() < k + 2:
        why = (
            f"{known.sum()} training models have scores on {len(others)} other benchmarks; at least {k + 2} are needed"
        )
        return TaskFit(
            task=task,
            method="observational",
            capability=Nothing(),
            law=SigmoidLaw.failed(task.chance, why),
            out_of_fold=OutOfFoldErrors.none(LEFT_OUT),
            range=(np.nan, np.nan),
        )

    def forecasts(sets: Sequence[Bools]) -> Floats:
        accuracy = np.full((len(sets), 1, len(observed)), np.nan)
        for row, learn in zip(accuracy, sets, strict=True):
            weights, offset = regress_on_components(table, observed, task.chance, learn=learn, components=k)
            row[0] = at_share(sigmoid(table @ weights + offset), task.chance)
        return accuracy

    selected = select_candidate(forecasts, dataset, observed, known=known)
    weights, offset = regress_on_components(table, observed, task.chance, learn=known, components=k)
    capability = -table @ weights
    return TaskFit(
        task=task,
        method="observational",
        capability=WeightedScores(benchmarks=tuple(others), weights=-weights.astype(np.float32)[:, None]),
        law=SigmoidLaw(-1.0, offset, task.chance),
        out_of_fold=selected.out_of_fold,
        range=(float(capability[known].min()), float(capability[known].max())),
        notes={"components": k},
    )


def regress_on_components(
    table: Floats, accuracy: Floats, chance: float, *, learn: Bools, components: int
) -> tuple[Floats, float]:
    """Weights of the benchmarks (columns of `table`) and the offset that give the log-odds of accuracy above chance."""
    mean = table[learn].mean(axis=0)
    axes, _ = principal_axes(table[learn])
    k = min(components, len(axes))
    scale = np.maximum(((table[learn] - mean) @ axes[:k].T).std(axis=0), 1e-12)
    turn = axes[:k].T / scale
    fitted = _fit_sigmoid((table[learn] - mean) @ turn, accuracy[learn], chance)
    weights = turn @ fitted[1:]
    return weights, float(fitted[0] - mean @ weights)


def _fit_sigmoid(scores: Floats, accuracy: Floats, chance: float) -> Floats:
    """Offset and weights by least squares in accuracy, from a regression of the log-odds."""
    design = np.column_stack([np.ones(len(scores)), scores])
    start, *_ = np.linalg.lstsq(design, clipped_log_odds(accuracy, chance, margin=0.02), rcond=None)

    def residuals(w: Floats) -> Floats:
        return np.asarray(at_share(sigmoid(design @ w), chance) - accuracy)

    def slopes(w: Floats) -> Floats:
        s = sigmoid(design @ w)
        return np.asarray((1 - chance) * (s * (1 - s))[:, None] * design)

    from scipy.optimize import least_squares  # slow to import

    start = np.clip(start, -STEEPEST, STEEPEST)
    solution = least_squares(residuals, start, jac=slopes, bounds=(-STEEPEST - 1, STEEPEST + 1))
    return np.asarray(solution.x)


def principal_axes(table: Floats) -> tuple[Floats, Floats]:
    """Directions of a models × benchmarks table, and the share of the variance along each."""
    _, lengths, axes = np.linalg.svd(table - table.mean(axis=0), full_matrices=False)
    return axes, lengths**2 / max(float((lengths**2).sum()), 1e-300)
