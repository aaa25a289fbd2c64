"""Texts in portions, and the nats of one portion: what a run is cut into, here or on a cluster.

Portions and the batches inside them follow from texts and model alone, not from what was done before or by whom. A
loss changes in its last bits with its neighbours in a batch; this way a run that was killed, or shared among
machines, gives the same bytes as one that was not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.backends.base import Backend, Nats, SequenceError, checked, in_halves
from benchcast.backends.windows import Window, batches, plan
from benchcast.collect.shards import PerToken
from benchcast.errors import InputError, StudyError
from benchcast.records import TextSet

PORTION_BYTES = 1 << 16  # of texts; several batches on a CPU, one or two on a GPU


@dataclass(frozen=True, slots=True)
class Portion:
    """Some texts of one model; plain data, all that is needed to score them anywhere."""

    model: str  # its name in the study, for messages
    names: dict[int, str]  # of the texts, by their index in the study
    ids: dict[int, tuple[int, ...]]  # tokens of each text
    done: frozenset[int] = frozenset()  # texts that need not be scored again

    @property
    def left(self) -> int:
        """Tokens of the texts that are not done."""
        return sum(len(own) for index, own in self.ids.items() if index not in self.done)

    def windows(self, prefix: Sequence[int], context: int) -> list[Window]:
        """The sequences to score."""
        return [w for index, own in self.ids.items() for w in plan(index, own, prefix, context)]


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What a backend says of itself once its model is loaded; parts are mixed only where it is the same."""

    about: dict[str, str]
    context: int

    @classmethod
    def of(cls, backend: Backend) -> BackendInfo:
        """From a backend, which loads its model for it."""
        return cls(backend.about(), backend.context)

    @classmethod
    def parse(cls, line: str) -> BackendInfo:
        """From what `line` gave."""
        try:
            found = json.loads(line)
            about = {str(key): str(value) for key, value in found["about"].items()}
            return cls(about, int(found["context"]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StudyError(
                f"unfinished results do not say what made them ({line[:40]!r}); run with --force"
            ) from error

    @property
    def line(self) -> str:
        """As it is kept beside the parts."""
        return json.dumps({"about": self.about, "context": self.context}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class PortionResult:
    """Texts that one batch finished."""

    rows: dict[int, PerToken]  # one row a token, by the index of the text
    tokens: int  # done in the batch


def cut(texts: TextSet) -> list[list[int]]:
    """Indices of all texts, longest first, in portions of like size.

    Longest first: what does not fit into memory fails at once, and the time left is never underrated.
    """
    lengths = np.diff(texts.starts)
    order = np.argsort(-lengths, kind="stable")
    place = np.cumsum(lengths[order]) - lengths[order]
    _, starts = np.unique(place // PORTION_BYTES, return_index=True)
    return [part.tolist() for part in np.split(order, starts[1:])]


def score(backend: Backend, portion: Portion) -> Iterator[PortionResult]:
    """Nats of the portion's texts that are not done, batch by batch."""
    empty = {i: np.zeros(0, np.float32) for i, own in portion.ids.items() if not own and i not in portion.done}
    if empty:
        yield PortionResult(empty, 0)
    yield from walk(backend, portion, lambda batch: ask(backend, portion, batch))


def walk(
    backend: Backend, portion: Portion, answer: Callable[[list[Window]], Sequence[PerToken]]
) -> Iterator[PortionResult]:
    """What `answer` gives for each window, put together to texts; those that are done are passed over."""
    windows = portion.windows(backend.vocabulary.prefix, backend.context)
    left = Counter(w.text for w in windows)
    rows: dict[int, PerToken] = {}
    for batch in batches(windows, size=backend.batch_size, tokens=backend.batch_tokens):
        if all(w.text in portion.done for w in batch):
            continue
        finished, tokens = {}, 0
        for window, found in zip(batch, answer(batch), strict=True):
            if window.text in portion.done:
                continue
            part = found[window.skip :]
            if window.text not in rows:
                rows[window.text] = np.empty((len(portion.ids[window.text]), *part.shape[1:]), part.dtype)
            rows[window.text][window.first : window.first + len(part)] = part
            tokens += len(part)
            left[window.text] -= 1
            if not left[window.text]:
                finished[window.text] = rows.pop(window.text)
        yield PortionResult(finished, tokens)


def ask(backend: Backend, portion: Portion, batch: Sequence[Window]) -> list[Nats]:
    """A backend's answer for one batch; every number in it is checked."""
    who = f"model {portion.model!r}, backend {backend.name}"
    try:
        found = in_halves(backend.score, [w.ids for w in batch])
    except SequenceError as error:
        raise InputError(f"{who}, text {portion.names[batch[error.index].text]!r}: {error}") from error
    except InputError as error:
        first = portion.names[batch[0].text]
        raise InputError(f"{who}, {len(batch)} texts from {first!r} on: {error}") from error
    if len(found) != len(batch):
        raise InputError(f"{who}: {len(found)} answers for {len(batch)} sequences")
    where = [f"{who}, text {portion.names[w.text]!r}: the backend" for w in batch]
    return [checked(nats, w.ids, at) for nats, w, at in zip(found, batch, where, strict=True)]
