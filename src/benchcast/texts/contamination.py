"""Has a model seen these very texts? Twins tell: the same question with its options in another order.

To a model that never saw a text, the order in which its options were once printed means nothing, so
text and twin are equally likely to be the easier one. A model that learned the text by heart finds the
printed order easier. The loss of both is compared over many pairs (a sign-flip test).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchcast.errors import InputError, NotEnoughDataError
from benchcast.records import Floats, Text, TextSet, TokenLosses

MARK = "~twin"
FLIPS = 20_000
OPTION = re.compile(r"^(?P<open>\(?)(?P<letter>[A-Z])(?P<close>\.|\)) (?P<body>.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ContaminationCheck:
    """How much easier a model finds the texts as printed than their twins."""

    model: str
    pairs: int
    nats: float  # mean of twin − text over all pairs; above 0: the printed text is easier
    stderr: float
    easier: float  # share of pairs in which the printed text has the lower loss
    p_value: float  # chance of such a mean or a larger one, were the order of options unknown to the model


def with_options_moved(text: Text, *, seed: int = 0) -> Text | None:
    """The text with its options in another order and the answer renamed; None where it has no options."""
    if text.answer_start is None:
        return None
    raw = text.text.encode()
    prompt, answer = raw[: text.answer_start].decode(), raw[text.answer_start :].decode()
    options = list(OPTION.finditer(prompt))
    letters = [m["letter"] for m in options]
    right = answer.strip(" ().")
    if len(options) < 2 or letters != sorted(set(letters)) or right not in letters or not _adjoin(prompt, options):
        return None
    order = _other_order(len(options), letters.index(right), f"{seed}\n{text.id}")
    moved = prompt
    for place in reversed(range(len(options))):
        start, stop = options[place].span("body")
        moved = moved[:start] + options[order[place]]["body"] + moved[stop:]
    now = letters[order.index(letters.index(right))]
    return Text(f"{text.id}{MARK}", text.source, moved + answer.replace(right, now), len(moved.encode()))


def _adjoin(prompt: str, options: Sequence[re.Match[str]]) -> bool:
    """Whether options stand on a line each, one after the other, with one line after them."""
    gaps = [prompt[a.end() : b.start()] for a, b in pairwise(options)]
    return set(gaps) == {"\n"} and prompt[options[-1].end() :].count("\n") == 1


def _other_order(n: int, right: int, key: str) -> list[int]:
    """A permutation that moves the right option, the same for the same key."""
    digest = hashlib.sha256(key.encode()).digest()
    order = sorted(range(n), key=lambda i: hashlib.sha256(digest + bytes([i])).digest())
    return order if order[right] != right else [*order[1:], order[0]]


def make_twins(texts: TextSet, count: int, *, seed: int = 0, paraphrases: Sequence[Text] = ()) -> TextSet:
    """Up to `count` texts that have options, each followed by its twin; then texts with their paraphrases.

    A paraphrase carries the id of the text it says in other words.
    """
    pairs: list[Text] = []
    by_place = sorted(texts, key=lambda t: hashlib.sha256(f"{seed}\n{t.id}".encode()).digest())
    for text in by_place:
        twin = with_options_moved(text, seed=seed) if len(pairs) < 2 * count else None
        if twin is not None:
            pairs += [text, twin]
    for said in paraphrases:
        if said.id not in texts.index:
            raise InputError(f"paraphrase of {said.id!r}: the study has no text of that id")
        if f"{said.id}{MARK}" not in {t.id for t in pairs}:
            original = texts.texts[texts.index[said.id]]
            pairs += [original, Text(f"{said.id}{MARK}", original.source, said.text, said.answer_start)]
    if not pairs:
        raise NotEnoughDataError(
            "no text has lettered options and an answer; give twins of your own with --paraphrases"
        )
    return TextSet.of(pairs)


def check_contamination(losses: TokenLosses, texts: TextSet) -> ContaminationCheck:
    """Compare the loss of every text with that of its twin."""
    totals = _totals(losses)
    pairs = [(i, texts.index[t.id + MARK]) for i, t in enumerate(texts) if t.id + MARK in texts.index]
    lengths = np.diff(texts.starts)
    gaps = np.array([totals[j] * lengths[i] / lengths[j] - totals[i] for i, j in pairs])
    gaps = gaps[np.isfinite(gaps)]
    if len(gaps) < 5:
        raise NotEnoughDataError(
            f"{losses.model}: {len(gaps)} pairs of text and twin have losses, a check needs at least 5"
        )
    mean = float(gaps.mean())
    return ContaminationCheck(
        losses.model,
        len(gaps),
        mean,
        float(gaps.std(ddof=1) / np.sqrt(len(gaps))),
        float((gaps > 0).mean() + (gaps == 0).mean() / 2),
        _sign_flip(gaps),
    )


def _totals(losses: TokenLosses) -> Floats:
    """Nats of each text; positions without a loss are left out, a text without any is NaN.

    A first token without a loss is missing from both texts of a pair, so it takes nothing from either.
    """
    text = np.repeat(np.arange(len(losses.counts)), losses.counts)
    known = np.isfinite(losses.nats)
    sums = np.bincount(text[known], losses.nats[known], minlength=len(losses.counts))
    return np.where(np.bincount(text[known], minlength=len(losses.counts)) > 0, sums, np.nan)


def _sign_flip(gaps: Floats) -> float:
    """Share of random sign changes that give a mean as large; the observed signs count as one of them."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (FLIPS, len(gaps)))
    return float((1 + np.sum(signs @ gaps >= gaps.sum() - 1e-12)) / (FLIPS + 1))
