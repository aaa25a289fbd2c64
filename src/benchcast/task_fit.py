"""A method and what it gives back: forecasts of tasks.

A method is a function `(dataset, folds) → fits[fold][task]`. It gets all folds at once, so that it can
share its passes over losses and features between them.
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

TOKEN_BLOCK = 1 << 16  # losses are weighed this many tokens at a time


@dataclass(frozen=True, slots=True)
class OutOfFoldErrors:
    """Forecast minus accuracy of models that the forecast had not seen, and their families."""

    errors: Floats
    families: npt.NDArray[np.str_]
    kind: str  # where they come from, in words


SCORE = "score: "  # how `reads` names the score on a benchmark
VIEWS = ("nats", "saturated")  # ways to read a loss; both rise with it, so more loss is never better


def view(nats: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.float32]:
    """Losses as a method reads them: as they are, or saturating at 1.

    A saturated loss says whether a token is got right rather than how badly it is missed: 3 nats or 9 nats
    on a token that decides an answer come to the same.
    """
    return nats if name == "nats" else nats / (1 + nats)


@dataclass(frozen=True, slots=True)
class TaskFit:
    """A fitted forecast of one task: weights over inputs, and a law (equations 1 and 2)."""

    task: Task
    method: str
    reads: tuple[str, ...]  # what each row of weights applies to (see `capability`); () for nothing
    weights: npt.NDArray[np.float32]  # views × N; 1 × 1 for flops; benchmarks × 1; ladders × 5
    unit: float  # what the weighted sum is divided by; N_c for losses
    law: SigmoidLaw
    out_of_fold: OutOfFoldErrors
    range: tuple[float, float]  # capability of the models it learned from, lowest and highest
    notes: dict[str, Any] = field(default_factory=dict)  # what was chosen, in plain values
    history: dict[str, npt.NDArray[Any]] = field(default_factory=dict)  # step by step, for figure 6

    @property
    def reads_losses(self) -> bool:
        """Whether a forecast needs token losses."""
        return bool(set(self.reads) & set(VIEWS))

    def capability(self, nats: npt.NDArray[np.float32], metadata: ModelMetadata) -> Floats:
        """One number per model (equation 1); `nats` is models × tokens. NaN where something it reads is not known.

        Read are views of the losses, the log10 of "flops", scores ("score: NAME"), or the loss that a "ladder"
        of parameters and tokens predicts, the family's own ("ladder: FAMILY") where there is one.
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
        """Which models have all that is read besides losses: FLOPs, size and tokens, or scores."""
        if self.reads == ("flops",):
            return np.asarray(metadata.flops > 0)
        if self.reads[:1] == ("ladder",):
            return np.asarray((metadata.params > 0) & (metadata.training_tokens > 0))
        read = [metadata.score(name.removeprefix(SCORE)) for name in self.reads if name.startswith(SCORE)]
        return np.asarray(np.isfinite(read).all(axis=0)) if read else np.ones(len(metadata.flops), bool)

    def lacking(self, metadata: ModelMetadata) -> str:
        """What a model's forecast lacks, in words; `metadata` of one model."""
        if self.reads == ("flops",):
            return "no training FLOPs known"
        if self.reads[:1] == ("ladder",):
            return "no parameters and training tokens known"
        unknown = [n for n in self.reads if n.startswith(SCORE) and np.isnan(metadata.score(n.removeprefix(SCORE))[0])]
        return f"no score known on {', '.join(n.removeprefix(SCORE) for n in unknown)}" if unknown else "no capability"

    def forecast(self, nats: npt.NDArray[np.float32], metadata: ModelMetadata) -> Floats:
        """Accuracy of each model."""
        return self.law.accuracy(self.capability(nats, metadata))

    def salience(self, nats: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The weight of every token: the derivative of capability by its nats, averaged over these models."""
        total = np.zeros(nats.shape[1])
        for name, weights in zip(self.reads, self.weights, strict=True):
            for part in token_blocks(len(weights)):
                slope = 1.0 if name == "nats" else ((1 + losses_at(nats, part)) ** -2).mean(axis=0, dtype=np.float64)
                total[part] += slope * weights[part]
        return total.astype(np.float32)


def token_blocks(count: int) -> list[slice]:
    """All tokens, some at a time."""
    return [slice(start, min(count, start + TOKEN_BLOCK)) for start in range(0, count, TOKEN_BLOCK)]


def losses_at(nats: npt.NDArray[np.floating], part: slice) -> npt.NDArray[Any]:
    """Losses of all models on some tokens, in float32 or better; all of them may be a file in float16."""
    found = np.asarray(nats[:, part])
    return found.astype(np.float32) if found.dtype == np.float16 else found


def weighted_loss(
    nats: npt.NDArray[np.float32], views: Sequence[str], weights: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Sum over views and tokens of weight times loss, for every model; no copy of all losses is made."""
    total = np.zeros(len(nats))
    for name, row in zip(views, weights, strict=True):
        for part in token_blocks(len(row)):
            total += view(losses_at(nats, part), name) @ row[part]
    return total


class Method(Protocol):
    """How to get forecasts out of dataset."""

    def __call__(self, dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
        """One fit per fold and task."""
        ...
