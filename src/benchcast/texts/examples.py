"""One benchmark item → a text and where its answer starts, in the plain wording of evaluation harnesses.

The answer keeps the space before it: tokenizers put that space into the answer's first token, and a
boundary inside a token would give part of the answer's loss to the question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchcast.errors import InputError
from benchcast.records import Text

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TAG = re.compile(r"\s*\[[^\]]*\]\s*")  # marks that WikiHow left in HellaSwag, such as [header]


@dataclass(frozen=True, slots=True)
class Example:
    """An item as it will be scored: prompt, then answer to the end."""

    id: str
    prompt: str
    answer: str
    own: str  # what makes it different from others of its benchmark; empty where the item is empty
    spare: bool = False  # taken only when the others do not suffice

    def as_text(self, source: str) -> Text:
        """The text of a study, its answer's start counted in bytes."""
        try:
            return Text(self.id, source, self.prompt + self.answer, len(self.prompt.encode()))
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.id}: the text contains half a surrogate pair, which is not valid Unicode"
            ) from error


@dataclass(frozen=True, slots=True)
class Row:
    """One item as a file or the hub gives it."""

    where: str  # for messages
    id: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        if name not in self.fields:
            found = ", ".join(str(k) for k in self.fields)
            raise InputError(f"{self.where}: no field {name!r}; found {found}")
        return self.fields[name]

    def text(self, name: str) -> str:
        """A field that must be text, without white space at its ends."""
        value = self[name]
        if not isinstance(value, str):
            raise InputError(f"{self.where}: {name} must be text, found {value!r}")
        return value.strip()


def mmlu(row: Row) -> Example:
    """Question, four lettered options, `Answer:` and the letter."""
    options = row["choices"]
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise InputError(f"{row.where}: choices must be a list, found {options!r}")
    right = row["answer"]
    index = LETTERS.find(right) if isinstance(right, str) and len(right) == 1 else right
    return _multiple_choice(row, row.text("question"), [str(o) for o in options], index, "\nAnswer:", " ")


def cmmlu(row: Row) -> Example:
    """The same in Chinese, with the headings of CMMLU."""
    return _chinese(row, "Question", "Answer")


def ceval(row: Row) -> Example:
    """The same in Chinese, with the headings of C-Eval."""
    return _chinese(row, "question", "answer")


def _chinese(row: Row, question: str, answer: str) -> Example:
    options = [row.text(letter) for letter in "ABCD"]
    return _multiple_choice(row, row.text(question), options, "ABCD".find(row.text(answer) or "?"), "\n答案：", "")


def _multiple_choice(row: Row, question: str, options: Sequence[str], right: Any, ask: str, space: str) -> Example:
    if isinstance(right, bool) or not isinstance(right, int) or not 0 <= right < len(options):
        raise InputError(f"{row.where}: the answer is none of the {len(options)} options")
    listed = "\n".join(f"{letter}. {option.strip()}" for letter, option in zip(LETTERS, options, strict=False))
    own = f"{question}\n{listed}" if question else ""
    return Example(row.id, f"{question}\n{listed}{ask}", space + LETTERS[right], own)


def hellaswag(row: Row) -> Example:
    """The scene and how it goes on; no options are shown, as harnesses compare whole endings."""
    endings = row["endings"]
    label = str(row["label"])
    if not isinstance(endings, Sequence) or not label.isdigit() or int(label) >= len(endings):
        raise InputError(f"{row.where}: label {label!r} is none of the endings")
    ctx = _tidy(row.text("ctx"))
    return Example(row.id, f"{row.text('activity_label')}: {ctx}", f" {_tidy(endings[int(label)])}", ctx)


def _tidy(text: str) -> str:
    return TAG.sub(" ", text.replace(" [title]", ". ")).replace("  ", " ").strip()


def gsm8k(row: Row) -> Example:
    """Question and worked answer; the answer is all of it, the steps included."""
    question = row.text("question")
    answer = row.text("answer")
    return Example(row.id, f"Question: {question}\nAnswer:", f" {answer}" if answer else "", question)


def bbh(row: Row) -> Example:
    """Question and bare target."""
    question, target = row.text("input"), row.text("target")
    return Example(row.id, f"Q: {question}\nA:", f" {target}" if target else "", question)


def bbh_cot(row: Row) -> Example:
    """A worked example of the chain-of-thought prompts; or, as a spare, one before another BBH item."""
    if "worked" in row.fields:
        item = bbh(row)
        return Example(item.id, f"{row.text('worked')}\n\n{item.prompt}", item.answer, item.own, spare=True)
    question, steps = row.text("question"), row.text("steps")
    return Example(row.id, f"Q: {question}\nA:", f" {steps}" if steps else "", question)


TEMPLATES: dict[str, Callable[[Row], Example]] = {
    "mmlu": mmlu,
    "bbh": bbh,
    "gsm8k": gsm8k,
    "hellaswag": hellaswag,
    "cmmlu": cmmlu,
    "ceval": ceval,
    "bbh-cot": bbh_cot,
}
