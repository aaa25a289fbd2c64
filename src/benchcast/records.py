"""The frozen records that cross module borders.

Texts are laid end to end on one axis of UTF-8 bytes, and so are their tokens. A whole model is then
one array of nats and one array of edges, and nothing downstream loops over texts.
Axes: S texts, N tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Text:
    """One validation example."""

    id: str
    source: str
    text: str
    answer_start: int | None = None  # in bytes; the answer runs from here to the end
    unit: str | None = None  # of the losses of a text that is known by name only; a label

    def as_row(self) -> dict[str, Any]:
        """The line of texts.jsonl."""
        if self.unit is not None:
            return {"id": self.id, "source": self.source, "unit": self.unit}
        row: dict[str, Any] = {"id": self.id, "source": self.source, "text": self.text}
        return row if self.answer_start is None else {**row, "answer_start": self.answer_start}


@dataclass(frozen=True)
class TextSet:
    """The validation set: an ordered set of texts with distinct ids."""

    texts: tuple[Text, ...]

    @classmethod
    def of(cls, texts: Iterable[Text]) -> Self:
        """Check that ids are distinct and answers lie inside their texts."""
        made = cls(tuple(texts))
        if not made.texts:
            raise InputError("texts: none found; a study needs at least one")
        if len(made.index) < len(made.texts):
            twice = next(t.id for i, t in enumerate(made.texts) if made.index[t.id] != i)
            raise InputError(f"texts: id {twice!r} occurs twice; ids must be distinct")
        for text, length in zip(made.texts, np.diff(made.starts), strict=True):
            if text.answer_start is not None and not 0 <= text.answer_start <= length:
                raise InputError(
                    f"texts: {text.id!r} has answer_start {text.answer_start}, "
                    f"the text has {length} bytes (answer_start counts UTF-8 bytes)"
                )
        return made

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Text]:
        return iter(self.texts)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each text id."""
        return {text.id: i for i, text in enumerate(self.texts)}

    @cached_property
    def utf8(self) -> npt.NDArray[np.uint8]:
        """All texts end to end, as bytes."""
        return np.frombuffer(b"".join(t.text.encode() for t in self.texts), np.uint8)

    @cached_property
    def starts(self) -> Ints:
        """Where each text starts on the axis of all bytes, and where the last one ends (S + 1)."""
        return np.cumsum([0] + [len(t.text.encode()) for t in self.texts], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """Hash of everything a loss depends on: ids and texts, in order."""
        return _hash_rows([t.id, t.text] for t in self.texts)

    @cached_property
    def annotated_digest(self) -> str:
        """Hash of everything a fit depends on: also the source and the answer of each text."""
        return _hash_rows([self.digest, *([t.id, t.source, t.answer_start] for t in self.texts)])

    @property
    def sources(self) -> tuple[str, ...]:
        """Distinct sources in order of first appearance."""
        return tuple(dict.fromkeys(t.source for t in self.texts))

    def require_texts(self, what: str) -> None:
        """Refuse work that needs the texts themselves where they are not here; `what` names the work."""


def _hash_rows(rows: Iterable[Any]) -> str:
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class TextOutlines(TextSet):
    """Ids, sources and lengths of texts that stay where they are: enough to read losses on them, not to make any."""

    lengths: tuple[int, ...]  # in bytes
    known_digest: str

    @cached_property
    def starts(self) -> Ints:
        """As of the texts themselves."""
        return np.cumsum([0, *self.lengths], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """As of the texts themselves."""
        return self.known_digest

    @cached_property
    def utf8(self) -> npt.NDArray[np.uint8]:
        """Not here."""
        raise InputError("the texts themselves are not here: this fit was shared without them")

    def require_texts(self, what: str) -> None:
        """They are not here."""
        raise InputError(
            f"{what} needs the texts themselves, and the fit was shared without its texts; give them with texts=…"
        )


@dataclass(frozen=True)
class NamedTexts(TextSet):
    """Columns of a table of losses: texts that are known by name only.

    Each counts as one token of one character, so that all-token loss is the plain mean of the columns.
    """

    @cached_property
    def starts(self) -> Ints:
        """One byte for each text."""
        return np.arange(len(self.texts) + 1, dtype=np.int64)

    @cached_property
    def utf8(self) -> npt.NDArray[np.uint8]:
        """One character in place of each text."""
        return np.full(len(self.texts), ord("?"), np.uint8)

    @cached_property
    def digest(self) -> str:
        """Hash of the names, in order; the unit is a label."""
        return _hash_rows([t.id] for t in self.texts)

    def require_texts(self, what: str) -> None:
        """They are known by name only."""
        raise InputError(
            f"{what} needs the texts themselves; this study is a table of losses, whose texts are known by name only "
            "(`benchcast import losses STUDY FILE.csv` adds models)"
        )


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """Losses of one model on every text of a set, tokens of all texts end to end."""

    model: str
    counts: Ints  # tokens of each text (S)
    edges: Ints  # token edges on the axis of all bytes (N + 1)
    nats: Floats  # −log p of each token; NaN where the model gave none (N)
    about: dict[str, str] = field(default_factory=dict)  # tokenizer, backend, dtype, digest of the texts, …
    info: ModelInfo | None = None  # the model's row of models.csv, where a study knows it
    scores: tuple[Score, ...] = ()  # that the study has of the model

    @property
    def texts_digest(self) -> str:
        """`TextSet.digest` of the texts that were scored; empty where nobody said."""
        return self.about.get("texts", "")

    def text_bounds(self, starts: Ints) -> list[Ints]:
        """Each text's bounds, counted from its own first byte."""
        ends = np.cumsum(self.counts)
        return [
            self.edges[end - n : end + 1] - start for end, n, start in zip(ends, self.counts, starts[:-1], strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark to forecast."""

    name: str
    chance: float = 0.0  # what guessing gets; 0 for open-ended tasks
    sources: tuple[str, ...] = ()  # sources of the texts that belong to the task
    answers: tuple[str, ...] = ()  # ids of texts whose whole loss is measured on the task's right answers


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One row of models.csv; NaN and empty where unknown."""

    model: str
    family: str = ""
    params: float = float("nan")
    tokens: float = float("nan")
    flops: float = float("nan")
    split: str = ""  # train, validation, test or empty

    @property
    def compute(self) -> float:
        """Training FLOPs; 6 × params × tokens where only those are known."""
        return self.flops if np.isfinite(self.flops) else 6 * self.params * self.tokens


@dataclass(frozen=True, slots=True)
class Score:
    """One row of scores.csv: what a model scored on a task."""

    model: str
    task: str
    accuracy: float
    n_items: float = float("nan")
    harness: str = ""
    version: str = ""
    shots: str = ""
    right_even: float = float("nan")  # right answers among the even-numbered items: the split-half noise
    stderr: float = float("nan")  # of the accuracy, as the harness gives it
