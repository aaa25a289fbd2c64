"""Convert a benchmark item to a prompt and an answer, in the wording of evaluation harnesses.

The answer includes the space before it: tokenizers put that space into the answer's first token, and a
boundary inside a token would assign part of the answer's loss to the question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchcast.errors import InputError
from benchcast.records import Text

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TAG = re.compile(r"\s*\[[^\]]*\]\s*")  # markup of WikiHow in HellaSwag, such as [header]


@dataclass(frozen=True, slots=True)
class Example:
    """A benchmark item as it is scored: the prompt, followed by the answer."""

    id: str
    prompt: str
    answer: str
    content: str  # the part that distinguishes it from other items; empty if the item is empty
    spare: bool = False  # drawn only if there are too few other items

    def as_text(self, source: str) -> Text:
        """The item as a text of a study."""
        try:
            return Text(self.id, source, self.prompt + self.answer, len(self.prompt.encode()))
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.id}: the text contains half a surrogate pair, which is not valid Unicode"
            ) from error


@dataclass(frozen=True, slots=True)
class Row:
    """One item as read from a file or the hub."""

    where: str  # origin, for messages
    id: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        if name not in self.fields:
            present = ", ".join(str(k) for k in self.fields)
            raise InputError(f"{self.where}: no field {name!r}; found {present}")
        return self.fields[name]

    def text(self, name: str) -> str:
        """A text field without surrounding white space; an error if it is not text."""
        value = self[name]
        if not isinstance(value, str):
            raise InputError(f"{self.where}: {name} must be text, found {value!r}")
        return value.strip()


def mmlu(row: Row) -> Example:
    """Question, four lettered options, `Answer:` and the letter."""
    options = row["choices"]
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise InputError(f"{row.where}: choices must be a list, found {options!r}")
    answer = row["answer"]
    index = LETTERS.find(answer) if isinstance(answer, str) and len(answer) == 1 else answer
    return _multiple_choice(row, row.text("question"), [str(o) for o in options], index, "\nAnswer:", " ")


def cmmlu(row: Row) -> Example:
    """As `mmlu`, in Chinese, with the columns of CMMLU."""
    return _chinese(row, "Question", "Answer")


def ceval(row: Row) -> Example:
    """As `mmlu`, in Chinese, with the columns of C-Eval."""
    return _chinese(row, "question", "answer")


def _chinese(row: Row, question: str, answer: str) -> Example:
    options = [row.text(letter) for letter in "ABCD"]
    return _multiple_choice(row, row.text(question), options, "ABCD".find(row.text(answer) or "?"), "\n答案：", "")


def _multiple_choice(row: Row, question: str, options: Sequence[str], correct: Any, ask: str, space: str) -> Example:
    if isinstance(correct, bool) or not isinstance(correct, int) or not 0 <= correct < len(options):
        raise InputError(f"{row.where}: the answer is none of the {len(options)} options")
    listed = "\n".join(f"{letter}. {option.strip()}" for letter, option in zip(LETTERS, options, strict=False))
    content = f"{question}\n{listed}" if question else ""
    return Example(row.id, f"{question}\n{listed}{ask}", space + LETTERS[correct], content)


def hellaswag(row: Row) -> Example:
    """Context and correct ending; no options are shown, as harnesses compare whole endings."""
    endings = row["endings"]
    label = str(row["label"])
    if not isinstance(endings, Sequence) or not label.isdigit() or int(label) >= len(endings):
        raise InputError(f"{row.where}: label {label!r} is none of the endings")
    ctx = _tidy(row.text("ctx"))
    return Example(row.id, f"{row.text('activity_label')}: {ctx}", f" {_tidy(endings[int(label)])}", ctx)


def _tidy(text: str) -> str:
    return TAG.sub(" ", text.replace(" [title]", ". ")).replace("  ", " ").strip()


def gsm8k(row: Row) -> Example:
    """Question and worked solution; the answer includes the steps."""
    question = row.text("question")
    answer = row.text("answer")
    return Example(row.id, f"Question: {question}\nAnswer:", f" {answer}" if answer else "", question)


def bbh(row: Row) -> Example:
    """Question and target."""
    question, target = row.text("input"), row.text("target")
    return Example(row.id, f"Q: {question}\nA:", f" {target}" if target else "", question)


def bbh_cot(row: Row) -> Example:
    """A worked example of the chain-of-thought prompts; or, as a spare, a BBH item preceded by one."""
    if "worked" in row.fields:
        item = bbh(row)
        return Example(item.id, f"{row.text('worked')}\n\n{item.prompt}", item.answer, item.content, spare=True)
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
