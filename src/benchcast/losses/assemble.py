"""Build a dataset from records: regroup all losses onto the reference tokens and align the scores.

Axes: M models, N reference tokens, T tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchcast.choices import RegroupUnit
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.families import find_relatives
from benchcast.losses.choice_losses import choice_arrays, choice_support, noting
from benchcast.losses.dataset import Dataset, Features, ReferenceTokens
from benchcast.losses.regroup import align_models, characters_per_token, common_support
from benchcast.losses.support import Support, costly_models, describe_support
from benchcast.messages import did_you_mean
from benchcast.records import (
    Bools,
    Floats,
    Ints,
    ModelInfo,
    ModelMetadata,
    NamedTexts,
    Score,
    Task,
    TextSet,
    TokenLosses,
)

# A word with its leading white space, one character of a script without spaces, or a run of punctuation.
WORD = re.compile(r"\s*(?:[⺀-鿿豈-﫿぀-ヿ가-힯]|[^\W⺀-鿿豈-﫿぀-ヿ가-힯]+|[^\w\s]+)|\s+")


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """How the dataset of a fit is built."""

    features: Features | None = None  # hidden states of the scorer
    support: Bools | None = None  # mask of reference tokens; only these are used
    unit: RegroupUnit = "byte"  # over which a token's loss is spread evenly
    # Tasks whose own text is protected: a model that would remove too much of it is excluded. None: all tasks.
    guarded: Sequence[Task] | None = None
    choices: Sequence[str] = ()  # columns of a table that hold choice losses of any task
    choice_texts: Bools | None = None  # mask of texts; only their choice losses are used


def assemble(
    texts: TextSet,
    losses: Iterable[TokenLosses],
    models: Sequence[ModelInfo],
    *,
    scores: Sequence[Score],
    tasks: Sequence[Task],
    options: AssemblyOptions | None = None,
) -> Dataset:
    """Build the dataset of a fit.

    A reference token is used only if every model has a loss there.

    Parameters
    ----------
    texts : the texts of the study
    losses, models : losses and rows of models.csv, in the same order
    scores : rows of scores.csv, of other models and tasks too
    tasks : tasks to forecast
    options : features, and rules for tokens and models
    """
    chosen = options or AssemblyOptions()
    features = chosen.features
    _check_answers(texts, tasks)
    columns = choice_columns(texts, chosen.choices, tasks)
    tokens, part_of = reference_of(texts, features)
    inputs: list[dict[str, Floats]] = []
    nats = align_models(noting(losses, inputs), tokens.edges, texts, unit=chosen.unit)
    other = ~np.isin(tokens.text, columns)  # tokens that are no choice losses
    lacking = {m.model: mask for m, row in zip(models, nats, strict=True) if (mask := np.isnan(row) & other).any()}
    common = shared_text(lacking, len(models), tokens, guarded=tasks if chosen.guarded is None else chosen.guarded)
    kept = np.array([m.model not in common.excluded for m in models])
    if not kept.all():
        nats, models = nats[kept], [m for m, keep in zip(models, kept, strict=True) if keep]
        inputs = [row for row, keep in zip(inputs, kept, strict=True) if keep]
    choices = choice_arrays(inputs, of_columns=len(columns) > 0)
    names = tuple(m.model for m in models)
    supported = common_support(nats) & other
    if chosen.support is not None:
        supported &= chosen.support
    if not supported.any():
        raise NotEnoughDataError("no token has a loss from every model; `benchcast status` names models that lack text")
    nats[:, ~supported] = 0.0
    tokens = replace(tokens, supported=supported)
    accuracy, n_items = score_table(models, scores, tasks)
    if features is not None and not np.array_equal(part_of, np.arange(len(features.edges) - 1)):
        features = replace(features, rows=part_of)
    return Dataset(
        models=names,
        metadata=ModelMetadata.of(models, scores, choices),
        relatives=find_relatives(models, tokens.sum_by_text(nats)).groups,
        nats=nats,
        characters=float(characters_per_token(tokens.edges, texts.utf8)[supported].sum()),
        tasks=tuple(tasks),
        accuracy=accuracy,
        n_items=n_items,
        reference_tokens=tokens,
        features=features,
        support=common,
        choices=choice_support(choices, names, columns=columns, allowed=chosen.choice_texts),
    )


def _check_answers(texts: TextSet, tasks: Sequence[Task]) -> None:
    for task in tasks:
        for name in task.answers:
            if name not in texts.index:
                raise NotEnoughDataError(
                    f"task {task.name}: answers name {name!r}, not a text of the study{did_you_mean(name, texts.index)}"
                )


def choice_columns(texts: TextSet, choices: Sequence[str], tasks: Sequence[Task]) -> Ints:
    """Indices of the columns of a table that hold choice losses, checked; they are losses of no task."""
    if not choices:
        return np.zeros(0, np.int64)
    if not isinstance(texts, NamedTexts):
        raise InputError(
            "study.toml: `choices` name columns of a table; choice losses of texts are imported with their losses"
        )
    for task in tasks:
        for name in task.choices:
            if name not in texts.index:
                similar = did_you_mean(name, texts.index)
                raise NotEnoughDataError(f"task {task.name}: choices name {name!r}, not a column of the study{similar}")
        both = sorted(set(task.answers) & set(choices))
        if both:
            raise InputError(f"task {task.name}: answers name {both[0]!r}, which is among the choices of a task")
    return np.array([texts.index[name] for name in dict.fromkeys(choices) if name in texts.index], np.int64)


def reference_of(texts: TextSet, features: Features | None) -> tuple[ReferenceTokens, Ints]:
    """Reference tokens of a study, from its scorer's tokens or, without a scorer, from words.

    `features` and the return value are as in `assemble` and `reference_tokens`.
    """
    return reference_tokens(texts, word_edges(texts) if features is None else features.edges)


def reference_tokens(texts: TextSet, edges: Ints) -> tuple[ReferenceTokens, Ints]:
    """Reference tokens with the given edges, split where an answer starts so that the loss of an answer is exact.

    Parameters
    ----------
    texts : the texts
    edges : edges of the scorer's tokens or of the words, on the axis of all bytes

    Returns
    -------
    The tokens, and for each the index of the unsplit token that it is part of.
    """
    starts = texts.starts
    answers = np.array(
        [starts[i + 1] if t.answer_start is None else starts[i] + t.answer_start for i, t in enumerate(texts)],
        np.int64,
    )
    split_edges = np.union1d(edges, np.concatenate([starts, answers]))
    left = split_edges[:-1]
    text = np.searchsorted(starts[1:], left, side="right")
    names = texts.sources
    source_of_text = np.array([names.index(t.source) for t in texts], np.int64)
    part_of = np.searchsorted(np.asarray(edges)[1:], left, side="right")
    tokens = ReferenceTokens(
        edges=split_edges,
        text=text,
        source=source_of_text[text],
        answer=left >= answers[text],
        sources=names,
        supported=np.ones(len(left), bool),
        ids=tuple(t.id for t in texts),
    )
    return tokens, part_of


def word_edges(texts: TextSet) -> Ints:
    """Edges of the words of all texts, in bytes: the reference tokens of a study without a scorer.

    A text that is known by name only is one word.
    """
    if isinstance(texts, NamedTexts):
        return texts.starts
    ends = [0]
    for text, start in zip(texts, texts.starts[:-1], strict=True):
        at = int(start)
        for match in WORD.finditer(text.text):
            at += len(match.group().encode())
            ends.append(at)
    return np.array(ends, np.int64)


def shared_text(
    lacking: Mapping[str, Bools], count: int, tokens: ReferenceTokens, *, guarded: Sequence[Task]
) -> Support:
    """Measure the text that all models share, and choose the models to exclude.

    Parameters
    ----------
    lacking : model → mask of reference tokens without a loss (N); only models that lack some
    count : number of all models
    tokens : the reference tokens
    guarded : tasks that may not lose much of their own text; a task without its own texts uses all texts
    """
    widths = np.diff(tokens.edges)
    text_of_task = {t.name: mask if (mask := tokens.of_task(t)).any() else widths > 0 for t in guarded}
    excluded = costly_models(lacking, count, text_of_task, widths=widths) if lacking else {}
    return describe_support(lacking, count, excluded, source=tokens.source, sources=tokens.sources, widths=widths)


def score_table(models: Sequence[ModelInfo], scores: Sequence[Score], tasks: Sequence[Task]) -> tuple[Floats, Floats]:
    """Accuracy (0..1) and number of items, both T × M; NaN where unknown."""
    column = {m.model: i for i, m in enumerate(models)}
    row = {t.name: i for i, t in enumerate(tasks)}
    accuracy = np.full((len(tasks), len(models)), np.nan)
    n_items = accuracy.copy()
    for score in scores:
        if score.model in column and score.task in row:
            accuracy[row[score.task], column[score.model]] = score.accuracy
            n_items[row[score.task], column[score.model]] = score.n_items
    return accuracy, n_items
