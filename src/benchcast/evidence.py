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

from benchcast.devices import Array, to_numpy
from benchcast.facts import Facts, ladder_loss
from benchcast.law import SigmoidLaw
from benchcast.records import Bools, Floats, Ints, Task
from benchcast.support import Support

BLOCK_BYTES = 64 << 20  # features are read in blocks of about this size
TOKEN_BLOCK = 1 << 16  # losses are weighed this many tokens at a time


@dataclass(frozen=True, slots=True)
class Features:
    """Hidden states of the scorer, one row per reference token; may be memory-mapped.

    `rows` says which stored row belongs to which reference token: where an answer starts inside a
    scorer token, both halves share that token's row.
    """

    values: Array  # numpy, or a torch tensor that already lies on the evidence's device
    rows: Ints | None = None
    scorer: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Reference tokens × dimensions."""
        return (len(self.values) if self.rows is None else len(self.rows), self.values.shape[1])

    def blocks(self, *, blown_up: int = 1) -> Iterator[tuple[slice, Array]]:
        """Consecutive blocks of rows as they are stored, each with the tokens it belongs to."""
        n, d = self.shape
        step = max(1, blown_up * BLOCK_BYTES // (4 * d))
        for start in range(0, n, step):
            part = slice(start, min(n, start + step))
            yield part, self.values[part] if self.rows is None else self.values[self.rows[part]]

    def of_tokens(self, keep: Bools) -> Features:
        """Those of some tokens, as a table of their own."""
        rows = np.flatnonzero(keep) if self.rows is None else self.rows[keep]
        used, at = np.unique(rows, return_inverse=True)
        return Features(np.asarray(self.values[used]), at if len(used) < len(rows) else None, self.scorer)

    def sample(self, size: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """At most `size` rows, drawn without replacement, in order."""
        picked = np.sort(rng.choice(len(self.values), min(size, len(self.values)), replace=False))
        return to_numpy(self.values[picked]).astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The reference tokens: where they lie and what they belong to."""

    edges: Ints  # on the axis of all bytes (N + 1)
    text: Ints  # index of each token's text
    source: Ints  # index of each token's source
    answer: Bools  # whether the token lies in its text's answer
    sources: tuple[str, ...]
    supported: Bools  # whether every model has a loss here; elsewhere nats are 0
    ids: tuple[str, ...] = ()  # of the texts

    def of_sources(self, names: Sequence[str]) -> Bools:
        """Tokens of the named sources."""
        wanted = [i for i, name in enumerate(self.sources) if name in names]
        return np.isin(self.source, wanted)

    def own(self, task: Task) -> Bools:
        """Tokens of the texts that belong to a task: those of its sources, and its answers."""
        return self.of_sources(task.sources) | self._of_texts(task.answers)

    def answers(self, task: Task) -> Bools:
        """Tokens of the answers to a task: those inside its sources' texts, and whole texts that it names."""
        return (self.of_sources(task.sources) & self.answer) | self._of_texts(task.answers)

    def _of_texts(self, names: Sequence[str]) -> Bools:
        return np.isin(self.text, [i for i, name in enumerate(self.ids) if name in names])


@dataclass(frozen=True, slots=True)
class Evidence:
    """Losses and scores of models, on the same reference tokens and tasks."""

    models: tuple[str, ...]
    families: npt.NDArray[np.str_]  # never empty: a model without a family is one of its own
    nats: npt.NDArray[np.floating]  # M × N, 0 outside the common support; float32, or a mapped file of float16
    characters: float  # N_c of equation 1: characters of the common support
    tasks: tuple[Task, ...]
    accuracy: Floats  # T × M, NaN where unknown
    n_items: Floats  # T × M, NaN where unknown
    flops: Floats  # M, NaN where unknown
    tokens: Tokens
    features: Features | None = None
    params: Floats | None = None  # M; None: not known of any model
    trained_on: Floats | None = None  # M, tokens
    scores: Floats | None = None  # M × benchmarks: all that the study knows, of other tasks too
    benchmarks: tuple[str, ...] = ()
    support: Support = field(default_factory=Support)  # how much text the models share; which were excluded
    device: str = ""  # where the large arrays are worked on: a torch device, or numpy where empty

    @property
    def facts(self) -> Facts:
        """What is known of the models besides their losses."""
        nothing = np.full(len(self.models), np.nan)
        return Facts(
            self.families,
            self.flops,
            nothing if self.params is None else self.params,
            nothing if self.trained_on is None else self.trained_on,
            np.empty((len(self.models), 0)) if self.scores is None else self.scores,
            self.benchmarks if self.scores is not None else (),
        )

    def of_models(self, rows: Bools | Ints) -> Evidence:
        """The same evidence of some of the models: fits get cheaper, and cannot see the others."""
        return replace(
            self,
            models=tuple(np.array(self.models, dtype=object)[rows]),
            families=self.families[rows],
            nats=self.nats[rows],
            accuracy=self.accuracy[:, rows],
            n_items=self.n_items[:, rows],
            flops=self.flops[rows],
            params=None if self.params is None else self.params[rows],
            trained_on=None if self.trained_on is None else self.trained_on[rows],
            scores=None if self.scores is None else self.scores[rows],
        )

    def for_texts(self, wanted: Ints) -> Evidence:
        """The same evidence on some of the texts, by their numbers, as if the study had no others.

        The characters of a text are taken to be as many per byte as in all: a constant, which the law absorbs.
        """
        tokens = self.tokens
        keep = np.isin(tokens.text, wanted)
        width = np.diff(tokens.edges)
        part = Tokens(
            edges=np.concatenate([[0], np.cumsum(width[keep])]),
            text=np.unique(tokens.text[keep], return_inverse=True)[1],
            source=tokens.source[keep],
            answer=tokens.answer[keep],
            sources=tokens.sources,
            supported=tokens.supported[keep],
            ids=tuple(tokens.ids[i] for i in np.unique(tokens.text[keep])) if tokens.ids else (),
        )
        share = width[keep & tokens.supported].sum() / max(1, width[tokens.supported].sum())
        return replace(
            self,
            nats=self.nats[:, keep],
            characters=self.characters * float(share),
            tokens=part,
            features=None if self.features is None else self.features.of_tokens(keep),
        )

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
    honest: HonestErrors
    range: tuple[float, float]  # capability of the models it learned from, lowest and highest
    notes: dict[str, Any] = field(default_factory=dict)  # what was chosen, in plain values
    history: dict[str, npt.NDArray[Any]] = field(default_factory=dict)  # step by step, for figure 6

    @property
    def reads_losses(self) -> bool:
        """Whether a forecast needs token losses."""
        return bool(set(self.reads) & set(VIEWS))

    def capability(self, nats: npt.NDArray[np.float32], facts: Facts) -> Floats:
        """One number per model (equation 1); `nats` is models × tokens. NaN where something it reads is not known.

        Read are views of the losses, the log10 of "flops", scores ("score: NAME"), or the loss that a "ladder"
        of parameters and tokens predicts, the family's own ("ladder: FAMILY") where there is one.
        """
        if self.reads == ("flops",):
            return np.log10(facts.flops, where=facts.flops > 0, out=np.full(len(facts.flops), np.nan))
        if self.reads[:1] == ("ladder",):
            return ladder_loss(self.reads, self.weights, facts)
        if self.reads and self.reads[0].startswith(SCORE):
            return np.stack([facts.score(name.removeprefix(SCORE)) for name in self.reads], axis=1) @ self.weights[:, 0]
        return weighted_loss(nats, self.reads, self.weights) / self.unit

    def known(self, facts: Facts) -> Bools:
        """Which models have all that is read besides losses: FLOPs, size and tokens, or scores."""
        if self.reads == ("flops",):
            return np.asarray(facts.flops > 0)
        if self.reads[:1] == ("ladder",):
            return np.asarray((facts.params > 0) & (facts.tokens > 0))
        read = [facts.score(name.removeprefix(SCORE)) for name in self.reads if name.startswith(SCORE)]
        return np.asarray(np.isfinite(read).all(axis=0)) if read else np.ones(len(facts.flops), bool)

    def lacking(self, facts: Facts) -> str:
        """What a model's forecast lacks, in words; `facts` of one model."""
        if self.reads == ("flops",):
            return "no training FLOPs known"
        if self.reads[:1] == ("ladder",):
            return "no parameters and training tokens known"
        unknown = [n for n in self.reads if n.startswith(SCORE) and np.isnan(facts.score(n.removeprefix(SCORE))[0])]
        return f"no score known on {', '.join(n.removeprefix(SCORE) for n in unknown)}" if unknown else "no capability"

    def forecast(self, nats: npt.NDArray[np.float32], facts: Facts) -> Floats:
        """Accuracy of each model."""
        return self.law.accuracy(self.capability(nats, facts))

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
    """How to get forecasts out of evidence."""

    def __call__(self, evidence: Evidence, folds: Sequence[Fold]) -> list[list[TaskFit]]:
        """One fit per fold and task."""
        ...
