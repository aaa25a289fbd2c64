"""Plausibility of losses in nats: each model is compared with the others on the same words.

Words are ordered by the median loss over models. Models of different strength differ most on easy words and least on
hard, unpredictable ones. A wrong unit changes all words by the same factor, so it is visible on the hard words. If
losses are known for whole texts only, texts replace words and only large differences are reported.
Axes: M models, N words or texts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.errors import InputError
from benchcast.losses.assemble import word_edges
from benchcast.losses.regroup import regroup
from benchcast.records import Floats, Ints, NamedTexts, TextSet, TokenLosses

FEWEST_MODELS = 8  # with fewer, the median itself may come from a wrong model
SAMPLED_TEXTS = 120
MOST_COMPARED = 64  # models that a new one is compared with
FEWEST_WORDS, FEWEST_TEXTS = 80, 8
TOKENS_PER_TEXT = 3.0  # with fewer tokens per text, losses of single words are unknown
# A loss is a difference of logits plus at most ln V. Logits of trained and of untrained networks differ by at most some
# hundreds; 1e4 nats is a probability of 1e-4343. A token may be a whole text, so the limit is per byte.
MOST_NATS = 1e4
GUESSED_BITS = 8.0  # per byte, if every byte is as likely
MOST_BITS = 64.0  # per byte, over all texts: far above those of networks that were never trained
# Logarithms of a model's loss over the median loss. On the hardest eighth of the words, 225 real models are between
# −0.13 and 0.78, and those above 0.2 are several times worse on easier words; bits add 0.37 everywhere.
BITS, BITS_SLACK, BITS_TILT = math.log(1 / math.log(2)), 0.16, 1.5
TOO_HIGH, TOO_LOW = math.log(5), math.log(0.5)
OUTLIER = 3.7  # times the median model's distance from the median: 2.5 standard deviations of a normal distribution
PROBABILITIES = "they lie in 0..1 and fall where other models' losses rise: are they probabilities? nats are −log p"
OPPOSITE = -0.2  # rank correlation with the median model; losses of real models correlate at 0.5 and more


def refuse_impossible(losses: TokenLosses, texts: TextSet | None = None) -> None:
    """Raise an error if losses are larger than a model can have: of one token, or on average over these texts."""
    limit = MOST_NATS * np.maximum(1, np.diff(losses.edges))
    over = losses.nats > limit  # False where there is no loss
    if over.any():
        token = int(np.argmax(over))
        raise InputError(
            f"model {losses.model!r}: {int(over.sum())} tokens have impossible losses, such as {losses.nats[token]:.4g}"
            f" nats; no softmax gives more than {limit[token]:g} there (--allow-implausible stores them all the same)"
        )
    bits = math.nan if texts is None else bits_per_byte(losses, texts)
    if bits > MOST_BITS:
        raise InputError(
            f"model {losses.model!r}: its losses are {bits:.3g} bits per byte; guessing bytes gives {GUESSED_BITS:g}, "
            f"and no model has more than {MOST_BITS:g} (--allow-implausible stores them all the same)"
        )


def bits_per_byte(losses: TokenLosses, texts: TextSet) -> float:
    """Mean loss over all bytes that have one, or over the columns of a table in this unit; NaN without any."""
    known = np.isfinite(losses.nats)
    if isinstance(texts, NamedTexts):
        known &= np.array([t.unit == "bits-per-byte" for t in texts], bool)
        return float(losses.nats[known].mean()) if known.any() else math.nan
    width = float(np.diff(losses.edges)[known].sum())
    return float(losses.nats[known].sum()) / width / math.log(2) if width else math.nan


@dataclass(frozen=True, slots=True)
class WordLosses:
    """One model's losses on the words of a sample; NaN where it has none."""

    nats: Floats
    by_word: bool  # whether tokens are short enough to have losses of single words
    highest: float  # nats of one token
    bits: float = math.nan  # per byte of all texts; NaN where bytes are unknown


@dataclass(frozen=True)
class WordSample:
    """The words of a sample of texts."""

    picked: Ints  # indices of the sampled texts
    edges: Ints  # of the words, in bytes of the concatenated sample
    text: Ints  # index in `picked` of the text of each word
    texts: TextSet  # all of them

    @classmethod
    def of(cls, texts: TextSet, *, without: Collection[str] = ()) -> WordSample:
        """At most `SAMPLED_TEXTS` texts, evenly spaced; `without` these ids, of columns that hold choice losses."""
        allowed = np.array([i for i, t in enumerate(texts) if t.id not in without] or range(len(texts)), np.int64)
        picked = allowed[np.unique(np.linspace(0, len(allowed) - 1, min(SAMPLED_TEXTS, len(allowed))).astype(np.int64))]
        part = type(texts)(tuple(texts.texts[i] for i in picked))
        edges = word_edges(part)
        return cls(picked, edges, np.searchsorted(part.starts[1:], edges[:-1], side="right"), texts)

    def read(self, losses: TokenLosses) -> WordLosses:
        """A model's losses on these words."""
        counts = losses.counts[self.picked]
        here = np.isin(np.repeat(np.arange(len(losses.counts)), losses.counts), self.picked)
        edges = np.concatenate([[0], np.cumsum(np.diff(losses.edges)[here])])
        nats = regroup(losses.nats[here], edges, self.edges, counts=counts)
        highest = float(np.nanmax(losses.nats[here], initial=0.0))
        by_word = bool(counts.mean() >= TOKENS_PER_TEXT)
        return WordLosses(nats, by_word, highest, bits=bits_per_byte(losses, self.texts))

    def by_text(self, words: WordLosses) -> Floats:
        """Nats per byte of each text."""
        widths = np.bincount(self.text, np.diff(self.edges), len(self.picked))
        return np.bincount(self.text, words.nats, len(self.picked)) / np.where(widths > 0, widths, np.nan)


def sampled(losses: Iterable[TokenLosses], sample: WordSample, words: dict[str, WordLosses]) -> Iterator[TokenLosses]:
    """Pass losses on, one model at a time, and add what the sample holds of each to `words`."""
    for of_model in losses:
        words[of_model.model] = sample.read(of_model)
        yield of_model


def suspicious(sample: WordSample, models: Mapping[str, WordLosses]) -> dict[str, str]:
    """Models whose losses are implausible as nats, each with the likely mistake.

    Parameters
    ----------
    sample : the sampled words
    models : model → its losses on these words; with few models or texts only losses worse than guessing are found
    """
    highest = {m: x.highest for m, x in models.items()}
    fine = {m: x.nats for m, x in models.items() if x.by_word}
    if len(fine) < FEWEST_MODELS or len(sample.text) < FEWEST_WORDS:
        fine = {}
    mistakes = _mistakes(fine, highest, by_word=True)
    if len(models) >= FEWEST_MODELS and len(sample.picked) >= FEWEST_TEXTS and len(fine) < len(models):
        coarse = {m: sample.by_text(x) for m, x in models.items()}
        mistakes |= {m: why for m, why in _mistakes(coarse, highest, by_word=False).items() if m not in fine}
    return {m: _worse_than_guessing(x.bits) for m, x in models.items() if x.bits > GUESSED_BITS} | mistakes


def guessing_line(losses: TokenLosses, texts: TextSet) -> list[str]:
    """The line on a model whose losses are worse than those of guessing bytes, where there are no others to compare."""
    bits = bits_per_byte(losses, texts)
    return describe({losses.model: _worse_than_guessing(bits)}) if bits > GUESSED_BITS else []


def _worse_than_guessing(bits: float) -> str:
    return (
        f"they are {bits:.3g} bits per byte, where guessing bytes gives {GUESSED_BITS:g}: are they in another unit, or "
        "the loss of a whole text at every token?"
    )


def describe(mistakes: Mapping[str, str]) -> list[str]:
    """One line for each model with its likely mistake."""
    return [f"losses of model {m} look wrong: {mistake}" for m, mistake in mistakes.items()]


def _mistakes(models: Mapping[str, Floats], highest: Mapping[str, float], *, by_word: bool) -> dict[str, str]:
    nats = np.stack(list(models.values())) if models else np.empty((0, 0))
    nats = nats[:, np.isfinite(nats).sum(axis=0) >= FEWEST_MODELS]
    if not nats.size:
        return {}
    median = np.median(nats, axis=0) if np.isfinite(nats).all() else np.nanmedian(nats, axis=0)
    order = np.argsort(median, kind="stable")
    n = len(order)
    hard, middle = (order[-(n // 8) :], order[n * 5 // 8 : n * 6 // 8]) if by_word else (order[-(n // 4) :], order[:0])
    on_hard = [_log_ratio(row, median, hard) for row in nats]
    usual = OUTLIER * float(np.nanmedian(np.abs(on_hard))) if np.isfinite(on_hard).any() else math.inf
    mistakes = {}
    for model, row, ratio in zip(models, nats, on_hard, strict=True):
        if highest[model] <= 1 and _correlation(row, median) < OPPOSITE:
            mistakes[model] = PROBABILITIES
        elif abs(ratio) > usual and (why := _mistake(ratio, _log_ratio(row, median, middle))):
            mistakes[model] = why
    return mistakes


def _mistake(on_hard: float, on_middle: float) -> str:
    """The likely mistake, from the logarithms of a model's loss over the median loss; empty if there is none."""
    times = math.exp(on_hard) if math.isfinite(on_hard) else 0.0
    if on_hard > TOO_HIGH:
        return (
            f"they are {times:.3g} times the median model's: are they perplexities, or the loss of a whole text "
            "at every token?"
        )
    if abs(on_hard - BITS) < BITS_SLACK and on_middle < BITS_TILT * on_hard:
        return (
            f"they are {times:.2f} times the median model's on the words that are hardest for all models, and no "
            "more on others: are they in bits? nats are 0.693 × bits"
        )
    if on_hard < TOO_LOW:
        return (
            f"they are {times:.2g} of the median model's: are they means per byte or per token instead of sums, or "
            "logarithms to base 10?"
        )
    return ""


def _log_ratio(nats: Floats, median: Floats, at: Ints) -> float:
    """Logarithm of a model's total loss over the median loss on the words `at`; NaN with losses on under half."""
    known = at[np.isfinite(nats[at])]
    if 2 * len(known) < len(at) or not len(known) or not median[known].sum():
        return math.nan
    ratio = float(nats[known].sum() / median[known].sum())
    return math.log(ratio) if ratio > 0 else -math.inf


def _correlation(nats: Floats, median: Floats) -> float:
    """Rank correlation of a model's losses with the median; NaN if it is undefined."""
    known = np.isfinite(nats)
    if known.sum() < FEWEST_TEXTS or not np.ptp(nats[known]) or not np.ptp(median[known]):
        return math.nan
    ranks = np.stack([np.argsort(np.argsort(x[known])) for x in (nats, median)])
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


def reference_models(names: Sequence[str]) -> list[str]:
    """At most `MOST_COMPARED` of the models, evenly spaced, to compare a new one with."""
    return [names[i] for i in np.unique(np.linspace(0, len(names) - 1, min(MOST_COMPARED, len(names))).astype(int))]
