"""Figure 9: which tokens of a text count for a task."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError, NotEnoughDataError
from benchcast.losses.dataset import Dataset
from benchcast.messages import did_you_mean
from benchcast.methods import METHODS
from benchcast.methods.spec import check_methods
from benchcast.records import Task, TextSet
from lab.reproduce.context import StudyContext, need_features
from lab.reproduce.figures import strip_figure
from lab.reproduce.outcome import Outcome, Table, cell

LINE = 92  # columns of a line of the figure


@dataclass(frozen=True, slots=True)
class Weighed:
    """A token with its weight."""

    token: str
    weight: float  # of the largest in its text, 0 to 1
    answer: bool


def fig9(context: StudyContext, task: str | None = None, text: str | None = None, method: str = "salience") -> Outcome:
    """Weights of one task on the tokens of one text, from a fit to the study's training models."""
    check_methods([method])
    if METHODS[method].needs_features:
        need_features(context.dataset, f"fig9 with {method}")
    texts = context.study.texts
    chosen = context.study.task(task) if task else longest_task(context.dataset.tasks, texts)
    index = _text_index(texts, chosen, text)
    dataset = context.dataset.for_tasks([chosen.name])
    context.on_step(f"{method}: {chosen.name}")
    fit = METHODS[method].learn(dataset, [context.fold])[0][0]
    if not fit.reads_losses:
        raise InputError(f"method {method!r} weighs no tokens; take one of salience, paper, label-token")
    salience = fit.salience(dataset.nats[context.fold.seen])
    tokens = weigh(dataset, salience, texts, index)
    numbers = {
        **context.about(),
        "task": chosen.name,
        "method": method,
        "text": texts.texts[index].id,
        "tokens": [{"token": t.token, "weight": t.weight, "answer": t.answer} for t in tokens],
        "by_source": source_means(dataset, salience),
    }
    title = f"{method} weights for {chosen.name} on text {texts.texts[index].id}"
    table = Table(
        ("texts of", "mean weight", "of their answers"),
        tuple((s, cell(m["all"], ".3f"), cell(m["answers"], ".3f")) for s, m in numbers["by_source"].items()),
        f"{method} for {chosen.name}; 1 is the mean of all",
    )
    return Outcome("fig9", numbers, (table,), {"": strip_figure(lay_out(tokens), title)})


def longest_task(tasks: tuple[Task, ...], texts: TextSet) -> Task:
    """The task whose own texts are longest: reasoning is written out there."""
    length = {t: [len(x.text) for x in texts if x.source in t.sources] for t in tasks}
    with_texts = [t for t in tasks if length[t]]
    if not with_texts:
        raise NotEnoughDataError("fig9 needs texts of a task's own sources; no task of study.toml has any")
    return max(with_texts, key=lambda t: max(length[t]))


def _text_index(texts: TextSet, task: Task, named: str | None) -> int:
    """The named text, else the middle one by length of the task's longest source."""
    if named is not None:
        if named not in texts.index:
            raise InputError(f"unknown text {named!r}{did_you_mean(named, texts.index)}")
        return texts.index[named]
    of_task = [i for i, t in enumerate(texts) if t.source in task.sources]
    if not of_task:
        raise NotEnoughDataError(f"{task.name} has no texts of its own; name one with --text")
    longest = texts.texts[max(of_task, key=lambda i: len(texts.texts[i].text))].source
    ranked = sorted((i for i in of_task if texts.texts[i].source == longest), key=lambda i: len(texts.texts[i].text))
    return ranked[len(ranked) // 2]


def weigh(dataset: Dataset, weights: npt.NDArray[np.float32], texts: TextSet, index: int) -> list[Weighed]:
    """The tokens of one text with their weights, the largest being 1."""
    tokens, blob = dataset.reference_tokens, texts.utf8.tobytes()
    in_text = np.flatnonzero(tokens.text == index)
    largest = float(np.abs(weights[in_text]).max()) or 1.0
    return [
        Weighed(
            blob[tokens.edges[i] : tokens.edges[i + 1]].decode(errors="replace"),
            float(weights[i]) / largest,
            bool(tokens.answer[i]),
        )
        for i in in_text
    ]


def source_means(dataset: Dataset, weights: npt.NDArray[np.float32]) -> dict[str, dict[str, float]]:
    """Mean weight of each source's tokens and of its answers, relative to the mean of all tokens."""
    tokens = dataset.reference_tokens
    mean = float(weights[tokens.supported].mean()) or 1.0
    out = {}
    for i, name in enumerate(tokens.sources):
        of_source = (tokens.source == i) & tokens.supported
        answers = of_source & tokens.answer
        out[name] = {
            "all": float(weights[of_source].mean()) / mean if of_source.any() else np.nan,
            "answers": float(weights[answers].mean()) / mean if answers.any() else np.nan,
        }
    return out


def lay_out(tokens: list[Weighed], width: int = LINE) -> list[dict[str, Any]]:
    """Boxes of tokens in lines of text, in columns and lines; a line break ends a line."""
    boxes, x, y = [], 0, 0
    for token in tokens:
        shown = token.token.replace("\n", "⏎")
        wide = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in shown)
        if x and x + wide > width:
            x, y = 0, y + 1
        boxes.append(
            {
                "shown": shown.strip(),
                "left": x + len(shown) - len(shown.lstrip()),  # drawn text drops spaces at its ends
                "weight": max(0.0, token.weight),
                "x": x,
                "x2": x + wide,
                "y": y,
                "y2": y + 1,
                "middle": y + 0.5,
            }
        )
        x += wide
        if "\n" in token.token:
            x, y = 0, y + 1
    return boxes
