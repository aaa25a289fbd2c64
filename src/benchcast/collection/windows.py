"""Tokenize the texts, cut them into portions, the unit of work here and on a cluster, and score one portion.

Portions and their batches depend only on the texts and the model. The last bits of a loss depend on the other
sequences of its batch; with fixed batches a resumed or distributed run gives the same bytes as an uninterrupted one.

Texts longer than a model's context are cut into overlapping windows. Every token is scored once. Each window starts
with the model's BOS, and a token scored outside the first window has at least `overlap` tokens of the text before it.

An option is scored in the windows of the text that has it in place of the answer; of these, windows before the option
are left out. A text and its options begin alike, so their windows form a group, whose common start a backend can
compute once. The rows of a text are those of its own tokens, followed by those of each option's last tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from benchcast.collection.answer_options import EncodedOptions, Tail, encode_options
from benchcast.collection.backends.base import (
    Backend,
    Nats,
    PerToken,
    SequenceError,
    SharesPrefixes,
    checked,
    in_halves,
    packed_length,
)
from benchcast.collection.tokenizers import Tokenizer, bounds_of
from benchcast.errors import InputError, StudyError
from benchcast.records import Ints, TextSet

PORTION_BYTES = 1 << 16  # of text per portion: several batches on a CPU, one or two on a GPU


@dataclass(frozen=True)
class EncodedTexts:
    """All texts under one tokenizer."""

    texts: TextSet
    ids: list[list[int]]
    bounds: list[Ints]
    refused: dict[int, str] = field(default_factory=dict)  # reason why a text has no tokens, by text index
    options: EncodedOptions = field(default_factory=EncodedOptions)
    only_options: bool = False  # score options, and each answer again, but no whole text

    @cached_property
    def digest(self) -> str:
        """Hash of all ids; detects shards of another tokenizer."""
        by_option = [tail.ids for index in self.options.answers for tail in self._tails(index)]
        return hashlib.sha256(json.dumps(self.ids + by_option).encode()).hexdigest()[:16]

    @property
    def counts(self) -> Ints:
        """Number of tokens of each text."""
        return np.array([len(token_ids) for token_ids in self.ids], np.int64)

    @property
    def row_counts(self) -> Ints:
        """Number of rows of each text: tokens of the text itself, and of its options."""
        own = 0 * self.counts if self.only_options else self.counts
        return own + np.array([sum(t.kept for t in self._tails(i)) for i in range(len(self.ids))], np.int64)

    @property
    def longest(self) -> int:
        """Tokens of the longest text or option."""
        by_option = (len(tail.ids) for index in self.options.answers for tail in self._tails(index))
        return max(max(map(len, self.ids), default=0), max(by_option, default=0))

    def _tails(self, index: int) -> tuple[Tail, ...]:
        """What is scored of a text beside the text itself; its answer only where the text is not scored."""
        answers = self.options.answers.get(index, ())
        return tuple(answer.tail for answer in (answers if self.only_options else answers[1:]))

    def require_all(self, who: str, advice: str) -> None:
        """Raise InputError if any text, or an option of one, was refused."""
        refused = self.refused or self.options.refused
        if refused:
            what = "texts are refused" if self.refused else "texts have options that are refused"
            first = next(iter(refused.values()))
            raise InputError(f"{who}, {first} ({len(refused)} of {len(self.ids)} {what}; {advice})")

    @property
    def edges(self) -> Ints:
        """Token boundaries in bytes of all texts concatenated."""
        ends = [b[1:] + start for b, start in zip(self.bounds, self.texts.starts[:-1], strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *ends])

    def portion(self, model: str, indices: Iterable[int], finished: Iterable[int] = ()) -> Portion:
        """The portion that holds the texts with these indices."""
        names = {i: self.texts.texts[i].id for i in indices}
        ids = {i: () if self.only_options else tuple(self.ids[i]) for i in names}
        options = {i: tails for i in names if (tails := self._tails(i))}
        return Portion(model, names, ids, options=options, done=frozenset(finished) & names.keys())

    def portions(self, model: str, done: Iterable[int]) -> list[Portion]:
        """Portions with unfinished texts; their boundaries do not depend on `done`."""
        finished = {*done, *self.refused}
        return [self.portion(model, indices, finished) for indices in cut(self.texts) if not finished >= {*indices}]


@dataclass(frozen=True, slots=True)
class Portion:
    """Some texts for one model; plain data that any worker can score."""

    model: str  # its name in the study, for messages
    names: dict[int, str]  # text ids by text index
    ids: dict[int, tuple[int, ...]]  # token ids by text index; empty where only the options are scored
    options: dict[int, tuple[Tail, ...]] = field(default_factory=dict)  # by text index
    done: frozenset[int] = frozenset()  # indices of texts that are already scored

    @property
    def left(self) -> int:
        """Number of tokens in texts that are not done."""
        return sum(self.row_count(index) for index in self.ids if index not in self.done)

    def row_count(self, index: int) -> int:
        """Number of rows of a text: its own tokens, and those that are kept of its options."""
        return len(self.ids[index]) + sum(tail.kept for tail in self.options.get(index, ()))

    def groups(self, prefix: Sequence[int], context: int, *, shared_context: int = 0) -> list[Group]:
        """The sequences to score, grouped where they begin alike and fit into `shared_context` together."""
        groups: list[Group] = []
        for index, token_ids in self.ids.items():
            tails = self.options.get(index, ())
            windows = plan(index, token_ids, prefix, context=context)
            for row, tail in zip(accumulate((t.kept for t in tails), initial=len(token_ids)), tails, strict=False):
                windows += plan_tail(index, tail, prefix, context=context, row=row)
            groups += together(windows, shared_context) if tails else [(window,) for window in windows]
        return groups

    def batches(self, backend: Backend) -> list[list[Group]]:
        """The sequences to score, in the batches that a backend gets."""
        shared = backend.shared_context if self.options and isinstance(backend, SharesPrefixes) else 0
        groups = self.groups(backend.vocabulary.prefix, backend.context, shared_context=shared)
        return list(batches(groups, size=backend.batch_size, tokens=backend.batch_tokens))


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


def encode_texts(tokenizer: Tokenizer, texts: TextSet, *, threads: bool = True, options: bool = False) -> EncodedTexts:
    """Tokenize all texts; a text that the tokenizer cannot cover exactly is refused and has no tokens.

    Parameters
    ----------
    tokenizer : the model's
    texts : the texts
    threads : let the tokenizer's library use all cores; it warns on standard error if the process forks later
    options : tokenize the options of the texts, too
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
    if not options:
        return encoded
    whole = {i: (encoded.ids[i], encoded.bounds[i]) for i in range(len(texts)) if i not in encoded.refused}
    return replace(encoded, options=encode_options(tokenizer, texts, whole))


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
    empty = [i for i in portion.ids if not portion.row_count(i) and i not in portion.done]
    if empty:
        yield PortionResult({i: np.zeros(0, np.float32) for i in empty}, 0)
    yield from walk(backend, portion, lambda batch: ask(backend, portion, batch))


def walk(
    backend: Backend, portion: Portion, answer: Callable[[list[Group]], Sequence[PerToken]]
) -> Iterator[PortionResult]:
    """Assemble the rows that `answer` returns for each window into texts; skips texts that are done."""
    all_batches = portion.batches(backend)
    left = Counter(w.text for batch in all_batches for group in batch for w in group)
    rows: dict[int, PerToken] = {}
    for batch in all_batches:
        windows = [window for group in batch for window in group]
        if all(w.text in portion.done for w in windows):
            continue
        finished, tokens = {}, 0
        for window, token_rows in zip(windows, answer(batch), strict=True):
            if window.text in portion.done:
                continue
            part = token_rows[window.skip :]
            if window.text not in rows:
                rows[window.text] = np.empty((portion.row_count(window.text), *part.shape[1:]), part.dtype)
            rows[window.text][window.first : window.first + len(part)] = part
            tokens += len(part)
            left[window.text] -= 1
            if not left[window.text]:
                finished[window.text] = rows.pop(window.text)
        yield PortionResult(finished, tokens)


def ask(backend: Backend, portion: Portion, batch: Sequence[Group]) -> list[Nats]:
    """Nats of the windows of one batch, with every number checked."""
    who = f"model {portion.model!r}, backend {backend.name}"
    windows = [window for group in batch for window in group]
    first = portion.names[windows[0].text]
    try:
        if len(windows) > len(batch):
            assert isinstance(backend, SharesPrefixes)  # only then are windows grouped
            by_group = in_halves(backend.score_groups, [[w.ids for w in group] for group in batch])
            answers = [nats for group_nats in by_group for nats in group_nats]
        else:
            answers = in_halves(backend.score, [w.ids for w in windows])
    except SequenceError as error:
        raise InputError(f"{who}, text {portion.names[windows[error.index].text]!r}: {error}") from error
    except InputError as error:
        raise InputError(f"{who}, {len(batch)} texts from {first!r} on: {error}") from error
    if len(answers) != len(windows):
        raise InputError(f"{who}: {len(answers)} answers for {len(windows)} sequences")
    where = [f"{who}, text {portion.names[w.text]!r}: the backend" for w in windows]
    return [checked(answer, w.ids, at) for answer, w, at in zip(answers, windows, where, strict=True)]


@dataclass(frozen=True, slots=True)
class Window:
    """One sequence to score and the part of its text that it covers."""

    text: int  # index of the text
    ids: tuple[int, ...]  # including the prefix
    skip: int  # number of leading ids that are prefix, or whose rows are not kept or come from the previous window
    first: int  # row of the text for the token ids[skip]
    start: int  # position in its sequence of the first id after the prefix


Group = tuple[Window, ...]  # windows that are scored together because they begin alike, or one alone


def plan(text: int, ids: Sequence[int], prefix: Sequence[int], *, context: int) -> list[Window]:
    """Windows of one text with `context` tokens at most; empty for a text without tokens."""
    room = context - len(prefix)
    overlap = room // 2
    if room < 2:
        raise InputError(f"a context of {context} tokens leaves no room for a text; 2 tokens and BOS are needed")
    if not ids:
        return []
    windows = [Window(text, (*prefix, *ids[:room]), skip=len(prefix), first=0, start=0)]
    done = min(room, len(ids))
    while done < len(ids):
        start = min(done - overlap, len(ids) - room)
        part = (*prefix, *ids[start : start + room])
        windows.append(Window(text, part, skip=len(prefix) + done - start, first=done, start=start))
        done = start + room
    return windows


def plan_tail(text: int, tail: Tail, prefix: Sequence[int], *, context: int, row: int) -> list[Window]:
    """Windows of the tokens that are kept of a sequence, the first of which has this row of the text."""
    windows = []
    for window in plan(text, tail.ids, prefix, context=context):
        left_out = max(0, tail.first - window.first)
        if left_out < len(window.ids) - window.skip:
            first = row + window.first + left_out - tail.first
            windows.append(replace(window, skip=window.skip + left_out, first=first))
    return windows


def together(windows: Iterable[Window], longest: int) -> list[Group]:
    """Windows of one text, grouped by where they start; a group of more than `longest` tokens is taken apart."""
    by_start: dict[int, list[Window]] = {}
    for window in windows:
        by_start.setdefault(window.start, []).append(window)
    groups: list[Group] = []
    for same in by_start.values():
        fits = 0 < packed_length([w.ids for w in same]) <= longest
        groups += [tuple(same)] if fits else [(window,) for window in same]
    return groups


def batches(groups: Iterable[Group], *, size: int, tokens: int) -> Iterator[list[Group]]:
    """Groups and then single windows, longest first, in batches of at most `size` of them and `tokens` padded tokens.

    With the longest first, a lack of memory shows at once and the estimated time left is not too low.
    """
    measured = [(len(group) == 1, -packed_length([w.ids for w in group]), group) for group in groups]
    batch: list[Group] = []
    longest = 0  # of the batch
    for alone, length, group in sorted(measured, key=lambda x: (*x[:2], x[2][0].text, x[2][0].first)):
        full = len(batch) >= size or (len(batch) + 1) * longest > tokens
        if batch and (full or alone != (len(batch[0]) == 1)):
            yield batch
            batch = []
        longest = -length if not batch else longest
        batch.append(group)
    if batch:
        yield batch
