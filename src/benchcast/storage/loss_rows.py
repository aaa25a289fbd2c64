"""Check one model's losses against the texts and concatenate them in the order of the texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchcast.errors import InputError
from benchcast.formatting import is_unicode
from benchcast.records import Floats, Ints, TextSet, TokenLosses

MOST_NATS = 1e9  # for one token; a larger value cannot be a loss


@dataclass(frozen=True, slots=True)
class LossRows:
    """Unchecked losses of one model: rows in any order, one for each text, concatenated."""

    where: Path | str  # origin, for messages
    model: str
    ids: Sequence[str]  # text id of each row
    bounds: Ints  # in bytes
    bound_counts: Ints  # number of bounds in each row: number of tokens + 1
    nats: Floats
    counts: Ints  # number of tokens in each row

    @classmethod
    def of(
        cls, where: Path | str, model: str, ids: Sequence[str], bounds: Sequence[Ints], nats: Sequence[Floats]
    ) -> LossRows:
        """Build from lists with one entry for each text."""
        if not ids:
            raise InputError(f"{where}: no texts")
        bound_counts, counts = (np.array([*map(len, parts)], np.int64) for parts in (bounds, nats))
        return cls(where, model, ids, np.concatenate(bounds), bound_counts, np.concatenate(nats), counts)

    @property
    def first(self) -> Ints:
        """Index of the first bound of each row."""
        return np.concatenate([[0], np.cumsum(self.bound_counts)[:-1]])


def most_tokens(texts: TextSet) -> int:
    """Upper limit on the tokens of the texts under any tokenizer, including zero-width tokens."""
    return 8 * int(texts.starts[-1]) + 64 * len(texts) + 1000


def lay_out(rows: LossRows, texts: TextSet, about: dict[str, str]) -> TokenLosses:
    """Check rows against the texts and put them in the order of the texts.

    Parameters
    ----------
    rows : the losses of one model
    texts : the texts that were scored
    about : tokenizer, backend and other metadata of the losses

    Returns
    -------
    The losses. A text without a row is one token without a loss, so it is outside the common support.
    """
    counts, nats = rows.counts, rows.nats
    name = rows.model.strip()  # as in models.csv and scores.csv
    if not name:
        raise InputError(f"{rows.where}: a model needs a name")
    if not is_unicode(name):
        raise InputError(
            f"{rows.where}: model {rows.model!r} contains half a surrogate pair, which is not valid Unicode"
        )
    order = _row_of_text(rows, texts)
    number = [texts.index[i] for i in rows.ids]
    _check_rows(rows, np.diff(texts.starts)[number])
    right = np.delete(rows.bounds, rows.first) + np.repeat(texts.starts[number], counts)
    if len(rows.ids) == len(texts) and np.array_equal(order, np.arange(len(texts))):
        edges = right
    else:
        ends = np.split(right, np.cumsum(counts)[:-1])
        edges = np.concatenate([ends[r] if r >= 0 else texts.starts[i + 1 : i + 2] for i, r in enumerate(order)])
        parts = np.split(nats, np.cumsum(counts)[:-1])
        nats = np.concatenate([parts[r] if r >= 0 else [np.nan] for r in order])
        counts = np.array([counts[r] if r >= 0 else 1 for r in order], np.int64)
    return TokenLosses(
        name,
        counts,
        np.concatenate([[0], edges]).astype(np.int64),
        np.maximum(nats, 0.0),
        {**about, "texts": texts.digest},
    )


def _row_of_text(rows: LossRows, texts: TextSet) -> Ints:
    """Index of the row of each text; −1 without a row."""
    if len(rows.ids) == len(texts) and all(i == t.id for i, t in zip(rows.ids, texts, strict=True)):
        return np.arange(len(texts))
    order = np.full(len(texts), -1)
    for row, text_id in enumerate(rows.ids):
        where = f"{rows.where}: text {text_id!r}"
        if text_id not in texts.index:
            raise InputError(f"{where} is not in the study; are these losses of another set of texts?")
        if order[texts.index[text_id]] >= 0:
            raise InputError(f"{where} occurs twice for model {rows.model!r}")
        order[texts.index[text_id]] = row
    return order


def _check_rows(rows: LossRows, length: Ints) -> None:
    """Raise an error for bounds that do not increase from 0 to the text's length, and for impossible nats."""
    bounds, nats = rows.bounds, rows.nats
    row_of_bound = np.repeat(np.arange(len(rows.ids)), rows.bound_counts)
    row_of_token = np.repeat(np.arange(len(rows.ids)), rows.counts)

    def where(row: int) -> str:
        return f"{rows.where}: text {rows.ids[row]!r}"

    uneven = rows.bound_counts != rows.counts + 1
    if uneven.any():
        row = int(np.argmax(uneven))
        tokens, bound_count = rows.counts[row], rows.bound_counts[row]
        raise InputError(f"{where(row)}: {tokens} nats need {tokens + 1} bounds, found {bound_count}")
    begin, end = bounds[rows.first], bounds[rows.first + rows.counts]
    if (begin != 0).any():
        row = int(np.argmax(begin != 0))
        raise InputError(f"{where(row)}: bounds start at {begin[row]}, they must start at 0")
    falls = (np.diff(bounds) < 0) & (np.diff(row_of_bound) == 0)
    if falls.any():
        at = int(np.argmax(falls))
        raise InputError(f"{where(row_of_bound[at])}: bounds decrease from {bounds[at]} to {bounds[at + 1]}")
    if (end != length).any():
        row = int(np.argmax(end != length))
        raise InputError(
            f"{where(row)} covers bytes 0..{end[row]}, the text has {length[row]}; "
            "was another version of the texts scored, or are bounds in characters?"
        )
    wrong = (nats > MOST_NATS) | (nats < -1e-6)
    if wrong.any():
        at = int(np.argmax(wrong))
        hint = "; are these log-probabilities? nats are −log p" if np.nanmax(nats) <= 0 else ""
        kind = "negative" if nats[at] < 0 else "infinite" if np.isinf(nats[at]) else "impossible"
        raise InputError(f"{where(row_of_token[at])} has {kind} nats ({nats[at]:.4g}){hint}")
