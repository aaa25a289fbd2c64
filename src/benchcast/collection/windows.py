"""Tokenize the texts, cut them into portions, the unit of work here and on a cluster, and score one portion.

Portions and their batches depend only on the texts and the model. The last bits of a loss depend on the other
sequences of its batch; with fixed batches a resumed or distributed run gives the same bytes as an uninterrupted one.

Texts longer than a model's context are cut into overlapping windows. Every token is scored once. Each window starts
with the model's BOS, and a token scored outside the first window has at least `overlap` tokens of the text before it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from benchcast.collection.backends.base import Backend, Nats, SequenceError, checked, in_halves
from benchcast.collection.shards import PerToken
from benchcast.collection.tokenizers import Tokenizer, bounds_of
from benchcast.errors import InputError, StudyError
from benchcast.records import Ints, TextSet, TokenLosses
from benchcast.study.loss_files import LossRows, lay_out

PORTION_BYTES = 1 << 16  # of text per portion: several batches on a CPU, one or two on a GPU


@dataclass(frozen=True)
class EncodedTexts:
    """All texts under one tokenizer."""

    texts: TextSet
    ids: list[list[int]]
    bounds: list[Ints]
    refused: dict[int, str] = field(default_factory=dict)  # reason why a text has no tokens, by text index

    @cached_property
    def digest(self) -> str:
        """Hash of all ids; detects shards of another tokenizer."""
        return hashlib.sha256(json.dumps(self.ids).encode()).hexdigest()[:16]

    @property
    def counts(self) -> Ints:
        return np.array([len(token_ids) for token_ids in self.ids], np.int64)

    def require_all(self, who: str, advice: str) -> None:
        """Raise InputError if any text was refused."""
        if self.refused:
            first = next(iter(self.refused.values()))
            raise InputError(f"{who}, {first} ({len(self.refused)} of {len(self.ids)} texts are refused; {advice})")

    @property
    def edges(self) -> Ints:
        """Token boundaries in bytes of all texts concatenated."""
        ends = [b[1:] + start for b, start in zip(self.bounds, self.texts.starts[:-1], strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *ends])

    def losses(self, model: str, by_text: Mapping[int, PerToken], about: dict[str, str], *, where: str) -> TokenLosses:
        """A model's losses on all texts that were not refused; `where` starts error messages."""
        scored = [i for i in range(len(self.ids)) if i not in self.refused]
        ids, bounds = [self.texts.texts[i].id for i in scored], [self.bounds[i] for i in scored]
        nats = [by_text[i].astype(np.float64) for i in scored]
        return lay_out(LossRows.of(where, model, ids, bounds=bounds, nats=nats), self.texts, about)

    def portion(self, model: str, indices: Iterable[int], finished: Iterable[int] = ()) -> Portion:
        """The portion that holds the texts with these indices."""
        names = {i: self.texts.texts[i].id for i in indices}
        ids = {i: tuple(self.ids[i]) for i in names}
        return Portion(model, names, ids, done=frozenset(finished) & names.keys())

    def portions(self, model: str, done: Iterable[int]) -> list[Portion]:
        """Portions with unfinished texts; their boundaries do not depend on `done`."""
        finished = {*done, *self.refused}
        return [self.portion(model, indices, finished) for indices in cut(self.texts) if not finished >= {*indices}]


@dataclass(frozen=True, slots=True)
class Portion:
    """Some texts for one model; plain data that any worker can score."""

    model: str  # its name in the study, for messages
    names: dict[int, str]  # text ids by text index
    ids: dict[int, tuple[int, ...]]  # token ids by text index
    done: frozenset[int] = frozenset()  # indices of texts that are already scored

    @property
    def left(self) -> int:
        """Number of tokens in texts that are not done."""
        return sum(len(token_ids) for index, token_ids in self.ids.items() if index not in self.done)

    def windows(self, prefix: Sequence[int], context: int) -> list[Window]:
        """The sequences to score."""
        return [w for index, token_ids in self.ids.items() for w in plan(index, token_ids, prefix, context=context)]

    def batches(self, backend: Backend) -> list[list[Window]]:
        """The sequences to score, in the batches that a backend gets."""
        windows = self.windows(backend.vocabulary.prefix, backend.context)
        return list(batches(windows, size=backend.batch_size, tokens=backend.batch_tokens))


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """Description of a backend with its model loaded; results are combined only if it is equal."""

    about: dict[str, str]
    context: int  # tokens

    @classmethod
    def of(cls, backend: Backend) -> BackendInfo:
        return cls(backend.about(), backend.context)

    @classmethod
    def parse(cls, line: str) -> BackendInfo:
        """Read the JSON that `line` writes."""
        try:
            fields = json.loads(line)
            about = {str(key): str(value) for key, value in fields["about"].items()}
            return cls(about, int(fields["context"]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StudyError(
                f"unfinished results do not name their backend ({line[:40]!r}); run with --force"
            ) from error

    @property
    def line(self) -> str:
        """One line of JSON, stored in each shard."""
        return json.dumps({"about": self.about, "context": self.context}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class PortionResult:
    """Results of one batch."""

    rows: dict[int, PerToken]  # the texts it finished, by index; one row for each token
    tokens: int  # scored in the batch


def encode_texts(tokenizer: Tokenizer, texts: TextSet, *, threads: bool = True) -> EncodedTexts:
    """Tokenize all texts; a text that the tokenizer cannot cover exactly is refused and has no tokens.

    `threads` lets the tokenizer's library use all cores; it warns on standard error if the process forks later.
    """
    texts.require_texts("scoring a model")
    encoded = EncodedTexts(texts, [], [])
    plain = [text.text for text in texts]
    ids = tokenizer.encode_all(plain) if threads else map(tokenizer.encode, plain)
    for i, (text, token_ids) in enumerate(zip(texts, ids, strict=True)):
        try:
            edges = bounds_of(tokenizer, text.text, token_ids)
        except InputError as error:
            encoded.refused[i] = f"text {text.id!r}: {error}"
            token_ids, edges = [], np.zeros(1, np.int64)
        encoded.ids.append(token_ids)
        encoded.bounds.append(edges)
    return encoded


def cut(texts: TextSet) -> list[list[int]]:
    """Indices of all texts, longest first, in portions of about `PORTION_BYTES`.

    With the longest first, a lack of memory shows at once and the estimated time left is not too low.
    """
    lengths = np.diff(texts.starts)
    order = np.argsort(-lengths, kind="stable")
    offsets = np.cumsum(lengths[order]) - lengths[order]
    _, starts = np.unique(offsets // PORTION_BYTES, return_index=True)
    return [part.tolist() for part in np.split(order, starts[1:])]


def score(backend: Backend, portion: Portion) -> Iterator[PortionResult]:
    """Nats of the portion's texts that are not done, batch by batch."""
    empty = [i for i, token_ids in portion.ids.items() if not token_ids and i not in portion.done]
    if empty:
        yield PortionResult({i: np.zeros(0, np.float32) for i in empty}, 0)
    yield from walk(backend, portion, lambda batch: ask(backend, portion, batch))


def walk(
    backend: Backend, portion: Portion, answer: Callable[[list[Window]], Sequence[PerToken]]
) -> Iterator[PortionResult]:
    """Assemble the rows that `answer` returns for each window into texts; skips texts that are done."""
    all_batches = portion.batches(backend)
    left = Counter(w.text for batch in all_batches for w in batch)
    rows: dict[int, PerToken] = {}
    for batch in all_batches:
        if all(w.text in portion.done for w in batch):
            continue
        finished, tokens = {}, 0
        for window, token_rows in zip(batch, answer(batch), strict=True):
            if window.text in portion.done:
                continue
            part = token_rows[window.skip :]
            if window.text not in rows:
                rows[window.text] = np.empty((len(portion.ids[window.text]), *part.shape[1:]), part.dtype)
            rows[window.text][window.first : window.first + len(part)] = part
            tokens += len(part)
            left[window.text] -= 1
            if not left[window.text]:
                finished[window.text] = rows.pop(window.text)
        yield PortionResult(finished, tokens)


def ask(backend: Backend, portion: Portion, batch: Sequence[Window]) -> list[Nats]:
    """Nats of one batch of windows, with every number checked."""
    who = f"model {portion.model!r}, backend {backend.name}"
    try:
        answers = in_halves(backend.score, [w.ids for w in batch])
    except SequenceError as error:
        raise InputError(f"{who}, text {portion.names[batch[error.index].text]!r}: {error}") from error
    except InputError as error:
        first = portion.names[batch[0].text]
        raise InputError(f"{who}, {len(batch)} texts from {first!r} on: {error}") from error
    if len(answers) != len(batch):
        raise InputError(f"{who}: {len(answers)} answers for {len(batch)} sequences")
    where = [f"{who}, text {portion.names[w.text]!r}: the backend" for w in batch]
    return [checked(answer, w.ids, at) for answer, w, at in zip(answers, batch, where, strict=True)]


@dataclass(frozen=True, slots=True)
class Window:
    """One sequence to score and the part of its text that it covers."""

    text: int  # index of the text
    ids: tuple[int, ...]  # including the prefix
    skip: int  # number of leading ids that are prefix or are scored in the previous window
    first: int  # position in the text of the token ids[skip]


def plan(text: int, ids: Sequence[int], prefix: Sequence[int], *, context: int) -> list[Window]:
    """Windows of one text with `context` tokens at most; empty for a text without tokens."""
    room = context - len(prefix)
    overlap = room // 2
    if room < 2:
        raise InputError(f"a context of {context} tokens leaves no room for a text; 2 tokens and BOS are needed")
    if not ids:
        return []
    windows = [Window(text, (*prefix, *ids[:room]), skip=len(prefix), first=0)]
    done = min(room, len(ids))
    while done < len(ids):
        start = min(done - overlap, len(ids) - room)
        part = (*prefix, *ids[start : start + room])
        windows.append(Window(text, part, skip=len(prefix) + done - start, first=done))
        done = start + room
    return windows


def batches(windows: Iterable[Window], *, size: int, tokens: int) -> Iterator[list[Window]]:
    """Windows by length, longest first, in batches of at most `size` sequences and `tokens` padded tokens.

    With the longest first, a lack of memory shows at once and the estimated time left is not too low.
    """
    batch: list[Window] = []
    for window in sorted(windows, key=lambda w: (-len(w.ids), w.text, w.first)):
        if batch and (len(batch) >= size or (len(batch) + 1) * len(batch[0].ids) > tokens):
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch
