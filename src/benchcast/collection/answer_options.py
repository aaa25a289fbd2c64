"""Options of texts under one tokenizer, and the choice losses that follow from the nats of their tokens.

Each option is encoded whole, behind the prompt that it shares with the answer. Of its tokens, only those that reach
into the option are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchcast.collection.backends.base import PerToken
from benchcast.collection.tokenizers import Tokenizer, bounds_of
from benchcast.errors import InputError
from benchcast.records import Floats, Ints, Text, TextSet
from benchcast.study.item_choices import choice_losses, continuation_nats


class Tail(NamedTuple):
    """A sequence of which only the last tokens are kept; plain data that any worker can score."""

    ids: tuple[int, ...]
    first: int  # the first token that is kept

    @property
    def kept(self) -> int:
        """Number of tokens that are kept."""
        return len(self.ids) - self.first


@dataclass(frozen=True, slots=True)
class EncodedAnswer:
    """The answer of a text, or an option in its place."""

    tail: Tail
    bounds: Ints  # of the kept tokens, in bytes from the start of the text

    @classmethod
    def of(cls, ids: Sequence[int], bounds: Ints, start: int) -> EncodedAnswer:
        """The answer from byte `start` on: all tokens that reach into it, and those without width just before them."""
        reaching = int(np.searchsorted(bounds[1:], start, side="right"))
        first = int(np.searchsorted(bounds, bounds[reaching]))
        return cls(Tail(tuple(ids), first), bounds[first:])


@dataclass(frozen=True)
class EncodedOptions:
    """The answer and the options of every text that has options, by index of the text."""

    answers: dict[int, tuple[EncodedAnswer, ...]] = field(default_factory=dict)  # the right answer comes first
    refused: dict[int, str] = field(default_factory=dict)  # reason why the options of a text have no tokens


def encode_options(
    tokenizer: Tokenizer, texts: TextSet, encoded: Mapping[int, tuple[Sequence[int], Ints]]
) -> EncodedOptions:
    """Tokenize the options of the texts; those of a text are refused if the tokenizer cannot cover one exactly.

    Parameters
    ----------
    tokenizer : the model's
    texts : the texts
    encoded : ids and bounds of the texts that were not refused, by index
    """
    options = EncodedOptions()
    for index, (ids, bounds) in encoded.items():
        text = texts.texts[index]
        if text.options:
            try:
                options.answers[index] = _encode(tokenizer, text, ids, bounds)
            except InputError as error:
                options.refused[index] = f"an option of text {text.id!r}: {error}"
    return options


def _encode(tokenizer: Tokenizer, text: Text, ids: Sequence[int], bounds: Ints) -> tuple[EncodedAnswer, ...]:
    assert text.answer_start is not None  # `TextSet.of` checks it
    answers, prompt = [EncodedAnswer.of(ids, bounds, text.answer_start)], text.prompt
    whole = [prompt + option for option in text.options]
    for variant, option_ids in zip(whole, map(tokenizer.encode, whole), strict=True):
        answers.append(EncodedAnswer.of(option_ids, bounds_of(tokenizer, variant, option_ids), text.answer_start))
    return tuple(answers)


def answer_losses(text: Text, answers: Sequence[EncodedAnswer], kept: PerToken) -> Floats:
    """Loss of each of these answers in nats, from those of their kept tokens, one after the other."""
    assert text.answer_start is not None
    parts = np.split(kept, np.cumsum([answer.tail.kept for answer in answers])[:-1])
    pairs = zip(parts, answers, strict=True)
    return np.array([continuation_nats(part, answer.bounds, text.answer_start) for part, answer in pairs])


def item_choice_losses(text: Text, losses: Floats) -> tuple[float, float]:
    """The choice loss of an item, raw and per character; `losses` are those of the answer and of each option."""
    return choice_losses(-losses, [len(answer.strip()) for answer in (text.answer, *text.options)])
