"""The result of a method: a fitted forecast for each task.

A method is a function `(dataset, folds) → fits[fold][task]`. It receives all folds at once, so that they can
share passes over losses and features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchcast.dataset import Dataset, Fold
from benchcast.law import SigmoidLaw
from benchcast.metadata import ModelMetadata, ladder_loss
from benchcast.records import Bools, Floats, Task

TOKEN_BLOCK = 1 << 16  # tokens per block in weighted sums


@dataclass(frozen=True, slots=True)
class OutOfFoldErrors:
    """Forecast minus accuracy of held-out models, and their families."""

    errors: Floats
    families: npt.NDArray[np.str_]
    kind: str  # description of the models that were held out


SCORE = "score: "  # prefix of the score on a benchmark in `reads`
VIEWS = ("nats", "saturated")  # transformations of a loss; both increase with it, so more loss is never better


def view(nats: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.float32]:
    """Losses unchanged ("nats") or saturating at 1 ("saturated").

    A saturated loss measures whether a token is predicted rather than how large the error is: 3 nats and 9 nats
    give nearly the same value.
    """
    return nats if name == "nats" else nats / (1 + nats)


@dataclass(frozen=True, slots=True)
class TaskFit:
    """A fitted forecast of one task: weights over inputs, and a law (equations 1 and 2)."""

    task: Task
    method: str
    reads: tuple[str, ...]  # the input of each row of weights (see `capability`); () for a constant forecast
    weights: npt.NDArray[np.float32]  # views × N; 1 × 1 for flops; benchmarks × 1; ladders × 5
    unit: float  # divisor of the weighted sum; N_c for losses
    law: SigmoidLaw
    out_of_fold: OutOfFoldErrors
    range: tuple[float, float]  # lowest and highest capability of the training models
    notes: dict[str, Any] = field(default_factory=dict)  # chosen settings, as JSON values
    history: dict[str, npt.NDArray[Any]] = field(default_factory=dict)  # values per step, for figure 6

    @property
    def reads_losses(self) -> bool:
        """Whether a forecast needs token losses."""
        return bool(set(self.reads) & set(VIEWS))

    def capability(self, nats: npt.NDArray[np.float32], metadata: ModelMetadata) -> Floats:
        """Capability of each model (equation 1); NaN where an input is unknown.

        `reads` lists the inputs: views of the losses, the log10 of "flops", scores ("score: NAME"), or the loss
        that a "ladder" predicts from parameters and training tokens, by the family's ladder ("ladder: FAMILY")
        if it has one.

        Parameters
        ----------
        nats : M × N losses on the reference tokens
        metadata : metadata of the same models
        """
        if self.reads == ("flops",):
            return np.log10(metadata.flops, where=metadata.flops > 0, out=np.full(len(metadata.flops), np.nan))
        if self.reads[:1] == ("ladder",):
            return ladder_loss(self.reads, self.weights, metadata)
        if self.reads and self.reads[0].startswith(SCORE):
            return (
                np.stack([metadata.score(name.removeprefix(SCORE)) for name in self.reads], axis=1) @ self.weights[:, 0]
            )
        return weighted_loss(nats, self.reads, self.weights) / self.unit

    def known(self, metadata: ModelMetadata) -> Bools:
        """Mask of the models whose metadata has all inputs: FLOPs, size and training tokens, or scores."""
        if self.reads == ("flops",):
            return np.asarray(metadata.flops > 0)
        if self.reads[:1] == ("ladder",):
            return np.asarray((metadata.params > 0) & (metadata.training_tokens > 0))
        scores = [metadata.score(name.removeprefix(SCORE)) for name in self.reads if name.startswith(SCORE)]
        return np.asarray(np.isfinite(scores).all(axis=0)) if scores else np.ones(len(metadata.flops), bool)

    def lacking(self, metadata: ModelMetadata) -> str:
        """Description of the input that is missing; `metadata` is that of one model."""
        if self.reads == ("flops",):
            return "no training FLOPs known"
        if self.reads[:1] == ("ladder",):
            return "no parameters and training tokens known"
        unknown = [n for n in self.reads if n.startswith(SCORE) and np.isnan(metadata.score(n.removeprefix(SCORE))[0])]
        return f"no score known on {', '.join(n.removeprefix(SCORE) for n in unknown)}" if unknown else "no capability"

    def forecast(self, nats: npt.NDArray[np.float32], metadata: ModelMetadata) -> Floats:
        """Forecast accuracy (0..1) of each model; arguments as for `capability`."""
        return self.law.accuracy(self.capability(nats, metadata))

    def salience(self, nats: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Weight of each token: the derivative of capability by its nats, averaged over the models of `nats`."""
        total = np.zeros(nats.shape[1])
        for name, weights in zip(self.reads, self.weights, strict=True):
            for part in token_blocks(len(weights)):
                slope = 1.0 if name == "nats" else ((1 + losses_at(nats, part)) ** -2).mean(axis=0, dtype=np.float64)
                total[part] += slope * weights[part]
        return total.astype(np.float32)


def token_blocks(count: int) -> list[slice]:
    """Slices of at most `TOKEN_BLOCK` tokens that cover `count` tokens."""
    return [slice(start, min(count, start + TOKEN_BLOCK)) for start in range(0, count, TOKEN_BLOCK)]


def losses_at(nats: npt.NDArray[np.floating], part: slice) -> npt.NDArray[Any]:
    """Losses of all models on some tokens, in float32 or better; `nats` may be a memory-mapped file in float16."""
    losses = np.asarray(nats[:, part])
    return losses.astype(np.float32) if losses.dtype == np.float16 else losses


def weighted_loss(
    nats: npt.NDArray[np.float32], views: Sequence[str], weights: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Sum over views and tokens of weight times loss, for every model, without a copy of all losses.

    Parameters
    ----------
    nats : M × N losses
    views : names of the views, as in `VIEWS`
    weights : views × N

    Returns
    -------
    M weighted sums.
    """
    total = np.zeros(len(nats))
    for name, row in zip(views, weights, strict=True):
        for part in token_blocks(len(row)):
            total += view(losses_at(nats, part), name) @ row[part]
    return total


class Method(Protocol):
    """A forecasting method."""

    def __call__(self, dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
        """One fit per fold and task."""
        ...
