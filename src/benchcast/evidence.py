"""What a fit may look at, and what it gives back.

A method is a function `(evidence, folds) → fits[fold][task]`. It gets all folds at once, so that it can
share its passes over losses and features between them.
Axes: M models, N reference tokens, D features, T tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchcast.law import SigmoidLaw
from benchcast.records import Bools, Floats, Ints, Task

BLOCK_BYTES = 64 << 20  # features are read in blocks of about this size
TOKEN_BLOCK = 1 << 16  # losses are weighed this many tokens at a time


@dataclass(frozen=True, slots=True)
class Features:
    """Hidden states of the scorer, one row per reference token; may be memory-mapped.

    `rows` says which stored row belongs to which reference token: where an answer starts inside a
    scorer token, both halves share that token's row.
    """

    values: npt.NDArray[np.floating]
    rows: Ints | None = None
    scorer: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Reference tokens × dimensions."""
        return (len(self.values) if self.rows is None else len(self.rows), self.values.shape[1])

    def blocks(self) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """Consecutive blocks of rows in float32, each with the tokens it belongs to."""
        n, d = self.shape
        step = max(1, BLOCK_BYTES // (4 * d))
        for start in range(0, n, step):
            part = slice(start, min(n, start + step))
            block = self.values[part] if self.rows is None else self.values[self.rows[part]]
            yield part, np.asarray(block, np.float32)

    def sample(self, size: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """At most `size` rows, drawn without replacement, in order."""
        picked = np.sort(rng.choice(len(self.values), min(size, len(self.values)), replace=False))
        return np.asarray(self.values[picked], np.float32)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The reference tokens: where they lie and what they belong to."""

    edges: Ints  # on the axis of all bytes (N + 1)
    text: Ints  # index of each token's text
    source: Ints  # index of each token's source
    answer: Bools  # whether the token lies in its text's answer
    sources: tuple[str, ...]
    supported: Bools  # whether every model has a loss here; elsewhere nats are 0

    def of_sources(self, names: Sequence[str]) -> Bools:
        """Tokens of the named sources."""
        wanted = [i for i, name in enumerate(self.sources) if name in names]
        return np.isin(self.source, wanted)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Losses and scores of models, on the same reference tokens and tasks."""

    models: tuple[str, ...]
    families: npt.NDArray[np.str_]  # never empty: a model without a family is one of its own
    nats: npt.NDArray[np.float32]  # M × N, 0 outside the common support
    characters: float  # N_c of equation 1: characters of the common support
    tasks: tuple[Task, ...]
    accuracy: Floats  # T × M, NaN where unknown
    n_items: Floats  # T × M, NaN where unknown
    flops: Floats  # M, NaN where unknown
    tokens: Tokens
    features: Features | None = None

    def for_tasks(self, names: Sequence[str]) -> Evidence:
        """The same evidence for some of the tasks."""
        keep = [i for i, task in enumerate(self.tasks) if task.name in names]
        return replace(
            self,
            tasks=tuple(self.tasks[i] for i in keep),
            accuracy=self.accuracy[keep],
            n_items=self.n_items[keep],
        )

    @property
    def chance(self) -> Floats:
        """Chance of each task."""
        return np.array([task.chance for task in self.tasks], np.float64)


@dataclass(frozen=True, slots=True)
class Fold:
    """Which models a fit may learn from, choose by, and is tested on; boolean over models."""

    train: Bools
    validation: Bools
    test: Bools

    @property
    def seen(self) -> Bools:
        """Training and validation models."""
        return self.train | self.validation


@dataclass(frozen=True, slots=True)
class HonestErrors:
    """Forecast minus accuracy of models that the forecast had not seen, and their families."""

    errors: Floats
    families: npt.NDArray[np.str_]
    kind: str  # where they come from, in words


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
    reads: tuple[str, ...]  # what each row of weights applies to: views of the losses, ("flops",) or nothing
    weights: npt.NDArray[np.float32]  # views × N; 1 × 1 for flops (their log10); 0 × 0 for nothing
    unit: float  # what the weighted sum is divided by; N_c for losses
    law: SigmoidLaw
    honest: HonestErrors
    range: tuple[float, float]  # capability of the models it learned from, lowest and highest
    notes: dict[str, Any] = field(default_factory=dict)  # what was chosen, in plain values
    history: dict[str, npt.NDArray[Any]] = field(default_factory=dict)  # step by step, for figure 6

    @property
    def reads_losses(self) -> bool:
        """Whether a forecast needs token losses."""
        return bool(set(self.reads) & set(VIEWS))

    def capability(self, nats: npt.NDArray[np.float32], flops: npt.ArrayLike) -> Floats:
        """One number per model (equation 1); `nats` is models × tokens, `flops` one per model."""
        compute = np.asarray(flops, np.float64)
        if self.reads == ("flops",):
            return np.log10(compute, where=compute > 0, out=np.full(compute.shape, np.nan))
        return weighted_loss(nats, self.reads, self.weights) / self.unit

    def forecast(self, nats: npt.NDArray[np.float32], flops: npt.ArrayLike) -> Floats:
        """Accuracy of each model."""
        return self.law.accuracy(self.capability(nats, flops))

    def salience(self, nats: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The weight of every token: the derivative of capability by its nats, averaged over these models."""
        total = np.zeros(nats.shape[1])
        for name, weights in zip(self.reads, self.weights, strict=True):
            slope = 1.0 if name == "nats" else ((1 + nats) ** -2).mean(axis=0, dtype=np.float64)
            total += slope * weights
        return total.astype(np.float32)


def weighted_loss(
    nats: npt.NDArray[np.float32], views: Sequence[str], weights: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Sum over views and tokens of weight times loss, for every model; no copy of all losses is made."""
    total = np.zeros(len(nats))
    for name, row in zip(views, weights, strict=True):
        for start in range(0, len(row), TOKEN_BLOCK):
            part = slice(start, start + TOKEN_BLOCK)
            total += view(nats[:, part], name) @ row[part]
    return total


class Method(Protocol):
    """How to get forecasts out of evidence."""

    def __call__(self, evidence: Evidence, folds: Sequence[Fold]) -> list[list[TaskFit]]:
        """One fit per fold and task."""
        ...
