"""The data of a fit: losses and scores of models, reference tokens, features and folds.

Axes: M models, N reference tokens, D features, T tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.devices import Array, to_numpy
from benchcast.losses.choice_losses import ChoiceSupport
from benchcast.losses.support import Support
from benchcast.records import Bools, Floats, Ints, ModelMetadata, Task

BLOCK_BYTES = 64 << 20  # features are read in blocks of about this size


class LossView(StrEnum):
    """Per-token input of a fit; a larger value is never better for the model."""

    NATS = "nats"  # the loss, unchanged
    SATURATED = "saturated"  # loss / (1 + loss)


VIEWS = tuple(LossView)


def view(nats: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Losses unchanged ("nats") or saturating at 1 ("saturated").

    A saturated loss measures whether a token is predicted rather than how large the error is: 3 nats and 9 nats
    give nearly the same value.
    """
    return nats if name == LossView.NATS else nats / (1 + nats)


@dataclass(frozen=True, slots=True)
class Features:
    """Hidden states of the scorer, one row per token; may be memory-mapped.

    `rows` maps each reference token to its stored row: if an answer starts inside a scorer token, both
    halves share that token's row.
    """

    values: Array  # numpy, or a torch tensor on the dataset's device
    edges: Ints  # of the scorer's tokens, on the axis of all bytes
    scorer: str
    rows: Ints | None = None  # None: the stored rows are the reference tokens, in order

    def __repr__(self) -> str:
        return f"<Features of {self.scorer!r}: {self.shape[0]} tokens × {self.shape[1]}>"

    @property
    def shape(self) -> tuple[int, int]:
        """Reference tokens × dimensions."""
        return (len(self.values) if self.rows is None else len(self.rows), self.values.shape[1])

    def blocks(self, *, blown_up: int = 1) -> Iterator[tuple[slice, Array]]:
        """Consecutive blocks of at most `blown_up` × `BLOCK_BYTES` bytes: (slice of reference tokens, their rows)."""
        n, d = self.shape
        step = max(1, blown_up * BLOCK_BYTES // (4 * d))
        for start in range(0, n, step):
            part = slice(start, min(n, start + step))
            yield part, self.values[part] if self.rows is None else self.values[self.rows[part]]

    def of_tokens(self, keep: Bools) -> Features:
        """A copy of the features of some tokens."""
        rows = np.flatnonzero(keep) if self.rows is None else self.rows[keep]
        stored, row_of_token = np.unique(rows, return_inverse=True)
        shared = len(stored) < len(rows)
        edges = np.concatenate([[0], np.cumsum(np.diff(self.edges)[stored])])
        return Features(np.asarray(self.values[stored]), edges, self.scorer, row_of_token if shared else None)

    def sample(self, size: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """At most `size` stored rows, drawn without replacement, in stored order."""
        picked = np.sort(rng.choice(len(self.values), min(size, len(self.values)), replace=False))
        return to_numpy(self.values[picked]).astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True)
class ReferenceTokens:
    """The reference tokens: their positions, texts and sources."""

    edges: Ints  # on the axis of all bytes (N + 1)
    text: Ints  # index of each token's text
    source: Ints  # index of each token's source
    answer: Bools  # whether the token is part of its text's answer
    sources: tuple[str, ...]  # names
    supported: Bools  # whether every model has a loss here; elsewhere nats are 0
    ids: tuple[str, ...] = ()  # ids of the texts

    def of_sources(self, names: Sequence[str]) -> Bools:
        """Tokens of the named sources."""
        indices = [i for i, name in enumerate(self.sources) if name in names]
        return np.isin(self.source, indices)

    def of_task(self, task: Task) -> Bools:
        """Tokens of the texts that belong to a task: texts of its sources, and texts that it names as answers."""
        return self.of_sources(task.sources) | self.of_texts(task.answers)

    def answers(self, task: Task) -> Bools:
        """Tokens of the answers to a task: answers in texts of its sources, and texts that it names as answers."""
        return (self.of_sources(task.sources) & self.answer) | self.of_texts(task.answers)

    def of_texts(self, names: Sequence[str]) -> Bools:
        """Tokens of the named texts."""
        return np.isin(self.text, [i for i, name in enumerate(self.ids) if name in names])

    def sum_by_text(self, values: npt.NDArray[np.generic]) -> Floats:
        """Sums of the tokens' values (… × N) over each text that has tokens (… × S)."""
        starts = np.flatnonzero(np.diff(self.text, prepend=-1))
        return np.asarray(np.add.reduceat(values, starts, axis=-1, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Dataset:
    """Losses and scores of models, on the same reference tokens and tasks."""

    models: tuple[str, ...]
    metadata: ModelMetadata  # family, size, training data, compute and all scores of the models
    nats: npt.NDArray[np.floating]  # M × N, 0 outside the common support; float32, or a memory-mapped file of float16
    characters: float  # N_c of equation 1: characters of the common support
    tasks: tuple[Task, ...]
    accuracy: Floats  # T × M, NaN where unknown
    n_items: Floats  # T × M, NaN where unknown
    reference_tokens: ReferenceTokens
    features: Features | None = None
    relatives: npt.NDArray[np.str_] | None = None  # group of each model; None: its family
    unclipped: Floats | None = None  # T × M: accuracy, but below 0 where a centred mean is; None: accuracy
    support: Support = field(default_factory=Support)  # share of text that all models have; excluded models
    choices: ChoiceSupport = field(default_factory=ChoiceSupport)  # texts with choice losses (in `metadata`)
    doubts: tuple[str, ...] = ()  # one line for each model whose losses look wrong
    device: str = ""  # torch device for the large arrays; empty for numpy

    def __repr__(self) -> str:
        return f"<Dataset of {len(self.models)} models × {self.nats.shape[1]} tokens, {len(self.tasks)} tasks>"

    @property
    def families(self) -> npt.NDArray[np.str_]:
        """The family of each model; a model without a family forms its own."""
        return self.metadata.families

    @property
    def groups(self) -> npt.NDArray[np.str_]:
        """The group of related models that each belongs to: models that are hidden together (see `relatives`)."""
        return self.families if self.relatives is None else self.relatives

    def of_models(self, rows: Bools | Ints) -> Dataset:
        """The dataset of some of the models."""
        return replace(
            self,
            models=tuple(np.array(self.models, dtype=object)[rows]),
            metadata=self.metadata.take(rows),
            relatives=None if self.relatives is None else self.relatives[rows],
            nats=self.nats[rows],
            accuracy=self.accuracy[:, rows],
            unclipped=None if self.unclipped is None else self.unclipped[:, rows],
            n_items=self.n_items[:, rows],
        )

    def for_texts(self, numbers: Ints) -> Dataset:
        """The dataset of some of the texts, given by their indices.

        Characters are estimated from bytes, at the average of all texts: the law absorbs this constant.
        """
        tokens = self.reference_tokens
        keep = np.isin(tokens.text, numbers)
        width = np.diff(tokens.edges)
        part = ReferenceTokens(
            edges=np.concatenate([[0], np.cumsum(width[keep])]),
            text=np.unique(tokens.text[keep], return_inverse=True)[1],
            source=tokens.source[keep],
            answer=tokens.answer[keep],
            sources=tokens.sources,
            supported=tokens.supported[keep],
            ids=tuple(tokens.ids[i] for i in np.unique(tokens.text[keep])) if tokens.ids else (),
        )
        share = width[keep & tokens.supported].sum() / max(1, width[tokens.supported].sum())
        texts = np.unique(tokens.text[keep])
        return replace(
            self,
            metadata=self.metadata.for_texts(texts),
            choices=self.choices.for_texts(texts),
            nats=self.nats[:, keep],
            characters=self.characters * float(share),
            reference_tokens=part,
            features=None if self.features is None else self.features.of_tokens(keep),
        )

    def without_choices(self) -> Dataset:
        """The same losses of tokens, with no choice losses to read."""
        return replace(self, choices=ChoiceSupport())

    def for_tasks(self, names: Sequence[str]) -> Dataset:
        """The dataset of some of the tasks."""
        keep = [i for i, task in enumerate(self.tasks) if task.name in names]
        return replace(
            self,
            tasks=tuple(self.tasks[i] for i in keep),
            accuracy=self.accuracy[keep],
            unclipped=None if self.unclipped is None else self.unclipped[keep],
            n_items=self.n_items[keep],
        )

    @property
    def chance(self) -> Floats:
        """Chance of each task."""
        return np.array([task.chance for task in self.tasks], np.float64)


def text_losses(dataset: Dataset) -> Floats:
    """Bits per byte of every model on every text (M × S); 0 on texts without losses of every model."""
    nats = dataset.reference_tokens.sum_by_text(dataset.nats)
    return np.asarray(nats / np.maximum(_bytes(dataset), 1) / np.log(2))


def spread_over_tokens(dataset: Dataset, weights: Floats) -> npt.NDArray[np.float32]:
    """Weights of tokens (1 × N) equivalent to the given weights of each text's bits per byte."""
    each = weights / np.maximum(_bytes(dataset), 1) / np.log(2)
    number = np.cumsum(np.diff(dataset.reference_tokens.text, prepend=dataset.reference_tokens.text[0]) != 0)
    return np.where(dataset.reference_tokens.supported, each[number], 0.0).astype(np.float32)[None]


def _bytes(dataset: Dataset) -> Floats:
    """Bytes of every text's supported tokens."""
    tokens = dataset.reference_tokens
    return tokens.sum_by_text(np.diff(tokens.edges) * tokens.supported)
