"""The items of one task as one model answered them, by column.

Models of a team answer the same items, so what was asked is kept once for all of them, and each model adds a few
numbers for each item.
Axes: I items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchcast.importers.logs.items import LoggedItem
from benchcast.records import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class AskedItems:
    """What was asked, with one entry for each item; see `LoggedItem`."""

    task: str
    numbers: tuple[int | str, ...]
    documents: tuple[str, ...]
    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    options: tuple[int, ...]
    doc_hashes: tuple[str, ...]
    prompt_hashes: tuple[str, ...]
    passages: tuple[str, ...]
    text_ids: tuple[str, ...]

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal items; hashes stand for prompts and documents."""
        columns = (self.documents, self.options, self.doc_hashes, self.prompt_hashes, self.passages, self.text_ids)
        return hashlib.sha256(repr((self.task, self.numbers, columns)).encode(errors="surrogatepass")).digest()

    @cached_property
    def bounds(self) -> tuple[Ints, ...]:
        """Ends of the tokens of each text in bytes: its prompt is one token, its answer another."""
        lengths = [(len(p.encode()), len(a.encode())) for p, a in zip(self.prompts, self.answers, strict=True)]
        return tuple(np.array([0, p, p + a] if p else [0, a], np.int64) for p, a in lengths)

    @cached_property
    def item_names(self) -> tuple[str, ...]:
        """Number and document of each item, which tell it from the other items of its task."""
        return tuple(f"{n}-{document}" for n, document in zip(self.numbers, self.documents, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What one model made of the items; see `LoggedItem`."""

    nats: Floats  # I
    choice: Floats  # I
    choice_norm: Floats  # I
    metrics: Mapping[str, Floats]  # metric → I values, NaN for items without it


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ItemTable:
    """The items of one task as one model answered them; a sequence of `LoggedItem`."""

    asked: AskedItems
    answers: Answers

    @classmethod
    def of(cls, task: str, items: Sequence[LoggedItem]) -> ItemTable:
        """The columns of these items."""
        names = dict.fromkeys(name for item in items for name in item.metrics)
        asked = AskedItems(
            task=task,
            numbers=tuple(i.number for i in items),
            documents=tuple(i.document for i in items),
            prompts=tuple(i.prompt for i in items),
            answers=tuple(i.answer for i in items),
            options=tuple(i.options for i in items),
            doc_hashes=tuple(i.doc_hash for i in items),
            prompt_hashes=tuple(i.prompt_hash for i in items),
            passages=tuple(i.passage for i in items),
            text_ids=tuple(i.text_id for i in items),
        )
        answers = Answers(
            nats=np.array([i.nats for i in items]),
            choice=np.array([i.choice for i in items]),
            choice_norm=np.array([i.choice_norm for i in items]),
            metrics={name: np.array([i.metrics.get(name, np.nan) for i in items]) for name in names},
        )
        return cls(asked, answers)

    def __repr__(self) -> str:
        return f"<ItemTable of {self.asked.task}: {len(self)} items>"

    def __len__(self) -> int:
        return len(self.asked.numbers)

    def __getitem__(self, i: int) -> LoggedItem:
        asked, answers = self.asked, self.answers
        return LoggedItem(
            task=asked.task,
            number=asked.numbers[i],
            document=asked.documents[i],
            prompt=asked.prompts[i],
            answer=asked.answers[i],
            nats=float(answers.nats[i]),
            options=asked.options[i],
            metrics={name: float(values[i]) for name, values in answers.metrics.items() if np.isfinite(values[i])},
            doc_hash=asked.doc_hashes[i],
            prompt_hash=asked.prompt_hashes[i],
            choice=float(answers.choice[i]),
            choice_norm=float(answers.choice_norm[i]),
            text_hash=asked.text_ids[i].rpartition("-")[2],
            passage=asked.passages[i],
        )

    def __iter__(self) -> Iterator[LoggedItem]:
        return (self[i] for i in range(len(self)))

    @property
    def has_loss(self) -> Bools:
        """Items whose answer has a loss (I)."""
        return np.isfinite(self.answers.nats)

    def metric(self, name: str) -> Floats:
        """The values of a metric (I), NaN for items without it."""
        found = self.answers.metrics.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def has_losses_of(self, other: ItemTable) -> bool:
        """Whether both hold the same texts with the same losses."""
        same = self.asked is other.asked or self.asked.text_ids == other.asked.text_ids
        return same and np.array_equal(self.answers.nats, other.answers.nats, equal_nan=True)

    def equals(self, other: ItemTable) -> bool:
        """Whether both hold the same items with the same answers."""
        one, two = self.answers, other.answers
        pairs = [(one.nats, two.nats), (one.choice, two.choice), (one.choice_norm, two.choice_norm)]
        pairs += [(self.metric(name), other.metric(name)) for name in {**one.metrics, **two.metrics}]
        same = self.asked is other.asked or self.asked.digest == other.asked.digest
        return same and all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
