"""Which tokens a forecast rests on: the salience of every token a reader can see, and where it lies.

Reference tokens that end inside a character are shown together with the next, as one unit.
Axes: N reference tokens, U units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError
from benchcast.formatting import did_you_mean
from benchcast.graphemes import TOKEN_KINDS, character_starts, kind_of
from benchcast.records import Bools, Floats, Ints, TextSet

CONTEXT = 26  # characters on either side of a token that is quoted
PARTS = ("prompt", "answer")


@dataclass(frozen=True)
class Units:
    """Tokens as they can be shown: runs of reference tokens that end between characters."""

    texts: TextSet
    text: Ints  # index of each unit's text (U)
    start: Ints  # first character in its text (U)
    stop: Ints  # the character after its last (U)
    first: Ints  # first reference token of each unit, and one past the last (U + 1)
    answer: Bools
    kind: Ints  # index into TOKEN_KINDS

    def __len__(self) -> int:
        return len(self.text)

    @property
    def tokens(self) -> Ints:
        """How many reference tokens each unit holds."""
        return np.diff(self.first)

    def shown(self, i: int) -> str:
        """The characters of a unit."""
        return self.texts.texts[self.text[i]].text[self.start[i] : self.stop[i]]

    def of_text(self, index: int) -> slice:
        """The units of one text."""
        low, high = np.searchsorted(self.text, [index, index + 1])
        return slice(int(low), int(high))

    def context(self, i: int) -> tuple[str, str, str]:
        """What stands before a unit, the unit, and what follows."""
        text = self.texts.texts[self.text[i]].text
        a, b = int(self.start[i]), int(self.stop[i])
        whole = [*character_starts(text), len(text)]  # no character is quoted in part
        first = next(k for k in whole if k >= min(a, max(0, a - CONTEXT)))
        last = max(k for k in whole if k <= max(b, min(len(text), b + CONTEXT)))
        return "…" * (first > 0) + text[first:a], text[a:b], text[b:last] + "…" * (last < len(text))

    def mean(self, values: npt.NDArray[Any]) -> Floats:
        """Values of reference tokens as means over each unit; NaN where no token of it has one."""
        there = np.isfinite(values)
        total = np.add.reduceat(np.where(there, values, 0.0).astype(np.float64), self.first[:-1])
        count = np.add.reduceat(there.astype(np.int64), self.first[:-1])
        return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)

    def total(self, values: npt.NDArray[Any]) -> Floats:
        """Values of reference tokens as sums over each unit; NaN where one is missing."""
        return np.add.reduceat(values.astype(np.float64), self.first[:-1])


def make_units(texts: TextSet, edges: Ints) -> Units:
    """The reference tokens between these edges as units; edges include the starts of all texts."""
    cuts = np.searchsorted(edges, texts.starts)
    rows: list[tuple[int, int, int, int, bool, int]] = []
    for index, text in enumerate(texts):
        own = edges[cuts[index] : cuts[index + 1] + 1] - texts.starts[index]
        place = _characters(text.text, own)
        answer = len(text.text.encode()) if text.answer_start is None else text.answer_start
        whole = [k for k, p in enumerate(place) if p >= 0]
        for a, b in pairwise(whole):
            shown = text.text[place[a] : place[b]]
            kind = TOKEN_KINDS.index(kind_of(shown, text.text[place[a] - 1 : place[a]]))
            rows.append((index, place[a], place[b], int(cuts[index]) + a, bool(own[a] >= answer), kind))
    columns = [np.array(c) for c in zip(*rows, strict=True)]
    first = np.append(columns[3], len(edges) - 1).astype(np.int64)
    return Units(texts, columns[0], columns[1], columns[2], first, columns[4], columns[5])


def _characters(text: str, bounds: Ints) -> list[int]:
    """Which character each byte bound stands before; −1 inside a character. The text's two ends always count."""
    if text.isascii() and "\r" not in text:
        return [int(b) for b in bounds]
    starts = list(character_starts(text))
    width = np.cumsum([0] + [len(c.encode()) for c in text])
    at = {int(width[i]): i for i in starts} | {0: 0, int(width[-1]): len(text)}
    return [at.get(int(b), -1) for b in bounds]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The salience of a task, seen by readers: 1 is the mean over all tokens."""

    task: str
    method: str
    units: Units
    salience: Floats  # of each unit, over the mean; NaN where a model has no loss (U)

    def of_text(self, index: int) -> Floats:
        """Salience of one text's units."""
        return self.salience[self.units.of_text(index)]

    def weightiest(self) -> int:
        """The text of the greatest mean salience."""
        there = np.isfinite(self.salience)
        size = np.bincount(self.units.text, there, minlength=len(self.units.texts))
        total = np.bincount(self.units.text, np.abs(np.where(there, self.salience, 0.0)), minlength=len(size))
        return int(np.argmax(np.divide(total, size, out=np.zeros(len(size)), where=size > 0)))

    def most(self, count: int) -> list[int]:
        """Units of the greatest salience, one for each different token."""
        order = np.lexsort((np.arange(len(self.units)), -np.nan_to_num(self.salience, nan=-np.inf)))
        return self._distinct(order, count)

    def least(self, count: int, nats: Floats | None = None) -> list[int]:
        """Units nearest to no salience, one for each different token; of equals, those that lose most first."""
        weight = np.round(np.abs(np.nan_to_num(self.salience, nan=np.inf)), 3)
        loss = np.zeros(len(weight)) if nats is None else np.nan_to_num(nats)
        return self._distinct(np.lexsort((np.arange(len(weight)), -loss, weight)), count)

    def _distinct(self, order: npt.NDArray[np.intp], count: int) -> list[int]:
        chosen: dict[str, int] = {}
        for i in order:
            if len(chosen) == count or not np.isfinite(self.salience[i]):
                break
            chosen.setdefault(self.units.shown(i).strip() or self.units.shown(i), int(i))
        return list(chosen.values())

    def by_source(self) -> list[dict[str, Any]]:
        """Mean salience of each source's texts, prompts and answers, and its share of the whole."""
        names = self.units.texts.sources
        source = np.array([names.index(t.source) for t in self.units.texts])[self.units.text]
        return self._groups(names, source)

    def by_kind(self) -> list[dict[str, Any]]:
        """The same by kind of token; kinds that do not occur are left out."""
        return self._groups(TOKEN_KINDS, self.units.kind)

    def _groups(self, names: Sequence[str], group: Ints) -> list[dict[str, Any]]:
        there = np.isfinite(self.salience)
        whole = np.abs(np.where(there, self.salience * self.units.tokens, 0.0))
        rows = []
        for i, name in enumerate(names):
            own = there & (group == i)
            if not own.any():
                continue
            part = {p: own & (self.units.answer == (p == "answer")) for p in PARTS}
            rows.append(
                {
                    "name": name,
                    "tokens": int(self.units.tokens[own].sum()),
                    "mean": self._mean(own),
                    **{p: self._mean(mask) for p, mask in part.items()},
                    "share": float(whole[own].sum() / whole.sum()) if whole.sum() else float("nan"),
                }
            )
        return rows

    def _mean(self, mask: Bools) -> float:
        if not mask.any():
            return float("nan")
        return float(np.average(self.salience[mask], weights=self.units.tokens[mask]))


def explain(task: str, method: str, units: Units, salience: npt.NDArray[np.float32], supported: Bools) -> Explanation:
    """The salience of reference tokens over their mean, on units."""
    size = float(np.abs(salience[supported]).mean()) if supported.any() else 0.0
    relative = np.where(supported, salience.astype(np.float64) / (size or 1.0), np.nan)
    return Explanation(task, method, units, units.mean(relative))


def family_losses(nats: npt.NDArray[np.float32], families: Sequence[str], units: Units) -> dict[str, Floats]:
    """Mean loss of each family's models on every unit; a family's models without a loss there do not count."""
    names = np.asarray(families)
    out = {}
    for name in sorted(set(families)):
        own = nats[names == name]
        there = np.isfinite(own)
        count = there.sum(axis=0)
        total = np.where(there, own, 0).sum(axis=0, dtype=np.float64)
        mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
        out[name] = units.total(mean)
    return out


@dataclass(frozen=True, slots=True)
class ColumnWeight:
    """How much one column of a table of losses carries of a task's forecast."""

    index: int  # among the columns
    column: str
    unit: str
    answers: bool  # whether it is the loss of the task's own right answers
    salience: float  # times the mean; NaN where a model that is learned from has no loss
    share: float  # of the salience of all columns, without sign


def weigh_columns(
    texts: TextSet, answers: Sequence[str], salience: npt.NDArray[np.float32], supported: Bools
) -> list[ColumnWeight]:
    """The columns of a table study, the weightiest first; columns that are not used come last."""
    size = np.where(supported, np.abs(salience.astype(np.float64)), 0.0)
    mean, total = (float(size[supported].mean()) if supported.any() else 0.0) or 1.0, float(size.sum()) or 1.0
    order = np.argsort(np.where(supported, -size, 1.0), kind="stable")
    return [
        ColumnWeight(
            int(i),
            texts.texts[i].id,
            texts.texts[i].unit or "",
            texts.texts[i].id in answers,
            float(salience[i]) / mean if supported[i] else np.nan,
            float(size[i]) / total if supported[i] else np.nan,
        )
        for i in order
    ]


def find_text(texts: TextSet, named: str) -> int:
    """Position of a text by its id."""
    if named not in texts.index:
        hint = did_you_mean(named, texts.index) or "; ids are in texts.jsonl"
        raise InputError(f"unknown text {named!r}{hint}")
    return texts.index[named]
