"""The methods `proxy-metrics` and `rbridge`: statistics of tokens on worked solutions.

`proxy-metrics` (Patel, Reddy, Mosbach and Bahdanau 2026) averages rank, entropy and hits over the tokens of the
solutions. `rbridge` (Koh et al. 2025) averages losses, each weighted by the probability that a strong model gives the
token. The solutions are the answers of the task's own texts: in a text with worked steps, the answer starts with them.
Axes: M models, N reference tokens, C candidates, I sets of learning models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.dataset import Dataset, Fold
from benchcast.law import SigmoidLaw, fit_law
from benchcast.methods.cross_validation import select_candidate
from benchcast.methods.logistic import law_forecasts
from benchcast.predictors import LossView
from benchcast.records import Bools, Floats, Task
from benchcast.task_fit import OutOfFoldErrors, TaskFit, weighted_loss

STATISTICS = (LossView.RANK, LossView.ENTROPY, LossView.HIT)
MIXES = {"rank": (1, 0, 0), "entropy": (0, 1, 0), "hit": (0, 0, 1), "all three": (1, 1, 1)}
NO_SOLUTIONS = "the study has no answers for this task"
Weigh = Callable[[Bools], npt.NDArray[np.float32]]  # models to learn from → candidates × views × N


@dataclass(frozen=True, slots=True)
class Reading:
    """What a method reads of each token, and with which weights; the rest is the same for both methods."""

    method: str
    views: tuple[LossView, ...]
    candidates: tuple[str, ...]

    def fit(self, dataset: Dataset, fold: Fold, t: int, weigh: Weigh) -> TaskFit:
        """Fit a law on each candidate's weighted sum; the candidate is selected on left-out families."""
        task, observed = dataset.tasks[t], dataset.accuracy[t]
        known = fold.seen & np.isfinite(observed)
        if not solutions(dataset, task).any() or not known.any():
            return self._without(dataset, task)

        def capability(weights: npt.NDArray[np.float32]) -> Floats:
            return weighted_loss(dataset.nats, self.views, weights, dataset.metadata.signals)

        def forecasts(sets: Sequence[Bools]) -> Floats:
            sums = np.stack([[capability(weights) for weights in weigh(learn)] for learn in sets])
            return law_forecasts(sums, observed, task.chance, sets)

        selected = select_candidate(forecasts, dataset, observed, known)
        weights = weigh(known)[selected.best]
        x = capability(weights)
        return TaskFit(
            task=task,
            method=self.method,
            reads=self.views,
            weights=weights,
            unit=1.0,
            law=fit_law(x[known], observed[known], task.chance),
            out_of_fold=selected.out_of_fold,
            range=(float(x[known].min()), float(x[known].max())),
            notes={"statistic": self.candidates[selected.best]} if len(self.candidates) > 1 else {},
        )

    def _without(self, dataset: Dataset, task: Task) -> TaskFit:
        law = SigmoidLaw(np.nan, np.nan, task.chance, NO_SOLUTIONS)
        weights = np.zeros((len(self.views), dataset.nats.shape[1]), np.float32)
        nothing = OutOfFoldErrors.none("no models")
        return TaskFit(task, self.method, self.views, weights, 1.0, law, nothing, (np.nan, np.nan))


def solutions(dataset: Dataset, task: Task) -> Bools:
    """Tokens of the answers of a task on which all models have losses."""
    return dataset.reference_tokens.answers(task) & dataset.reference_tokens.supported


def proxy_metrics(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Mean log2 rank, mean entropy, share of misses, or the sum of all three in standard deviations."""
    reading = Reading("proxy-metrics", STATISTICS, tuple(MIXES))
    signals = dataset.metadata.signals

    def fit(fold: Fold, t: int) -> TaskFit:
        mask = solutions(dataset, dataset.tasks[t])
        share = (mask / max(1, mask.sum())).astype(np.float32)
        means = np.stack([signals[view] @ share for view in STATISTICS])  # statistics × M

        def weigh(learn: Bools) -> npt.NDArray[np.float32]:
            spread = means[:, learn].std(axis=1)
            scale = 1 / np.where(spread > 0, spread, np.inf)
            return np.stack([(mix * scale)[:, None] * share for mix in np.array(list(MIXES.values()))]).astype(
                np.float32
            )

        return reading.fit(dataset, fold, t, weigh)

    return [[fit(fold, t) for t in range(len(dataset.tasks))] for fold in folds]


def rbridge(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Mean loss on the solutions, each token weighted by its probability under the strongest model that may be seen.

    The strongest model is the one with the lowest loss on the solutions. Weights are scaled to run from 0 to 1.
    """
    reading = Reading("rbridge", (LossView.NATS,), ("loss",))

    def fit(fold: Fold, t: int) -> TaskFit:
        mask = solutions(dataset, dataset.tasks[t])
        losses = np.where(mask, dataset.nats, 0.0).sum(axis=1)

        def weigh(learn: Bools) -> npt.NDArray[np.float32]:
            strongest = min(np.flatnonzero(learn), key=lambda row: losses[row])
            return (trust(dataset.nats[strongest], mask) / mask.sum())[None, None].astype(np.float32)

        return reading.fit(dataset, fold, t, weigh)

    return [[fit(fold, t) for t in range(len(dataset.tasks))] for fold in folds]


def trust(nats: npt.NDArray[np.floating], mask: Bools) -> Floats:
    """Probabilities of the tokens in the mask, scaled to run from 0 to 1; 0 elsewhere.

    >>> trust(np.array([0.0, np.log(2), np.log(4), 9.0]), np.array([True, True, True, False])).round(3)
    array([1.   , 0.333, 0.   , 0.   ])
    """
    p = np.exp(-np.asarray(nats, np.float64))
    low, high = p[mask].min(), p[mask].max()
    return np.where(mask, (p - low) / (high - low) if high > low else 1.0, 0.0)
