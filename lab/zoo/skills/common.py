"""What all skills share: dice, items, splits and the shape of a skill."""

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

STEPS = "\nSteps:"
ANSWER = "\nAnswer:"

# Percent of problems kept out of training; each split is a range of a hash of the problem's key.
VALID_PERCENT = 3
SCORE_PERCENT = 9


class Dice:
    """A seeded source of choices; much faster than `random.choice` and the same on every machine."""

    __slots__ = ("_source", "random")

    def __init__(self, seed: str) -> None:
        self._source = random.Random(seed)
        self.random = self._source.random

    def pick(self, options: Sequence):
        return options[int(self.random() * len(options))]

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + int(self.random() * (high - low + 1))

    def sample(self, options: Sequence, count: int) -> list:
        """Distinct choices in random order; rejection is quick because `count` is always small."""
        taken: list[int] = []
        while len(taken) < count:
            index = int(self.random() * len(options))
            if index not in taken:
                taken.append(index)
        return [options[i] for i in taken]

    def shuffle(self, values: list) -> None:
        self._source.shuffle(values)


class Item(NamedTuple):
    """One problem. Its full text is prompt + steps + cue + answer."""

    key: str  # identity of the problem: texts with one key are all in one split
    prompt: str
    steps: str  # worked steps, possibly empty
    cue: str
    answer: str  # starts with the space that precedes it, if there is one
    options: tuple[str, ...] = ()  # the answer among them; empty for open-ended skills


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill: how to write training texts and items, and how it is scored."""

    name: str
    scoring: str  # "choice", "steps-choice", "steps-exact" or "exact"
    chance: float
    write: Callable[[Dice], str | None]  # a training text, or None when the draw is held out
    items: Callable[[str, int], list[Item]]  # split, count -> distinct items of that split


def split_of(key: str) -> str:
    """The split a problem belongs to: "train", "valid" or "score"."""
    percent = zlib.crc32(key.encode()) % 100
    if percent < VALID_PERCENT:
        return "valid"
    return "score" if percent < SCORE_PERCENT else "train"


def full_text(item: Item) -> str:
    return item.prompt + item.steps + item.cue + item.answer


def short_text(item: Item) -> str:
    """The item with its answer but without its steps."""
    return item.prompt + item.cue + item.answer


def item_skill(
    name: str, draw: Callable[[Dice], Item], *, scoring: str, chance: float, without_steps: float = 0.0
) -> Skill:
    """A skill whose training texts are items; a share of them may leave the steps out."""

    def write(dice: Dice) -> str | None:
        item = draw(dice)
        if split_of(item.key) != "train":
            return None
        return short_text(item) if dice.random() < without_steps else full_text(item)

    def items(split: str, count: int) -> list[Item]:
        dice = Dice(f"{name} {split}")
        item_of_key: dict[str, Item] = {}
        while len(item_of_key) < count:
            item = draw(dice)
            if split_of(item.key) == split:
                item_of_key.setdefault(item.key, item)
        return list(item_of_key.values())

    return Skill(name, scoring, chance, write, items)


def texts(skill: Skill, seed: str) -> Iterator[str]:
    """Training texts without end; the same for the same seed."""
    dice = Dice(f"{skill.name} {seed}")
    while True:
        text = skill.write(dice)
        if text is not None:
            yield text


def with_distractors(dice: Dice, answer: str, wrong: Sequence[str]) -> tuple[str, ...]:
    """The options of a question: the answer and its distractors in random order."""
    options = [answer, *wrong]
    dice.shuffle(options)
    return tuple(options)
