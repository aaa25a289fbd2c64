"""Show what a forecast depends on: salience of every displayed token, or weights of the columns of a table study.

Reference tokens that end inside a character are displayed together with the next as one unit.
Axes: N reference tokens, U units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError
from benchcast.forecasts.fit import fit as fit_task
from benchcast.forecasts.fit import stored_fits
from benchcast.forecasts.mean_tasks import aggregate_fits
from benchcast.forecasts.staleness import stale_line
from benchcast.forecasts.stored_fit import Fit
from benchcast.losses.choice_losses import choice_arrays, noting
from benchcast.messages import TOKEN_KINDS, character_starts, did_you_mean, few, kind_of, nan_to_none, plain
from benchcast.methods.capability import one_weighted_loss
from benchcast.records import Bools, Floats, Ints, ModelMetadata, NamedTexts, TextSet, family_names
from benchcast.steps import steps
from benchcast.study.study import Study, StudyLike

CONTEXT = 26  # characters on either side of a quoted token
MOST_SHARES = 8  # averaged candidates of an explanation
PARTS = ("prompt", "answer")
Tell = Callable[[str], None]  # receives one line


def explain(study: StudyLike, task: str, *, tell: Tell = lambda line: None) -> Explanation | ColumnWeights:
    """Show which tokens the forecast of a task depends on.

    Parameters
    ----------
    study : an opened study or its folder
    task : a task of study.toml
    tell : called with a line if the stored fit is outdated, or cannot be used and a new one is made, or `predict` uses
        the fits of the task's members instead

    Returns
    -------
    the salience of every token, from the stored fit or, without one, from a new one that is not stored. For a study
    made from a table, the weight of each column, the largest first

    >>> import benchcast as bc
    >>> explained = bc.explain("study", "code")
    >>> explained
    <Explanation of 'code' by label-token: 24 texts, 646 tokens>
    >>> explained.quote(explained.most(1)[0])["part"]
    'answer'
    """
    opened = Study.of(study)
    fit = fit_to_explain(opened, task, tell)
    for aggregate in aggregate_fits(opened, [fit]):
        if aggregate.by_members:
            members = few(aggregate.task.members)
            tell(f"{task}: `predict` uses the mean of the forecasts of {members}; this shows its own fit")
    shares = largest_shares(fit.task_fit.notes.get("shares", {}), MOST_SHARES, fit.task)
    names = opened.models_with_losses()
    inputs: list[dict[str, Floats]] = []
    nats = fit.align(noting((opened.losses(m) for m in steps(names, "models read")), inputs))
    choices = choice_arrays(inputs, of_columns=isinstance(fit.texts, NamedTexts))
    metadata = ModelMetadata.of(opened.infos(names), (), choices)
    if isinstance(fit.texts, NamedTexts):
        known = {w: nats[np.isfinite(nats[:, w.index]), w.index] for w in weigh_columns(fit, metadata)}
        columns = (replace(w, mean_loss=float(x.mean()) if len(x) else math.nan) for w, x in known.items())
        return ColumnWeights(task=task, method=fit.task_fit.method, columns=tuple(columns), shares=shares)
    units = make_units(fit.texts, fit.edges)
    explained = weigh_units(units, fit.salience, fit.supported, task=fit.task, method=fit.task_fit.method)
    families = [str(f) for f in family_names(opened.infos(names))]
    return replace(
        explained,
        losses=family_losses(nats, families, units),
        shares=shares,
        choice_share=choice_share(fit, nats, metadata),
    )


def choice_share(fit: Fit, nats: npt.NDArray[np.float32], metadata: ModelMetadata) -> float:
    """How much of the spread of capability among models is that of its part from choice losses, 0 to 1.

    Both parts, from tokens and from choice losses, are spread alone; models that lack a loss do not count.
    """
    loss = one_weighted_loss(fit.task_fit.capability)
    if loss is None or loss.choices is None:
        return 0.0
    choices = np.broadcast_to(loss.choices.of(metadata, loss.views), len(nats))
    known = np.isfinite(nats[:, fit.supported]).all(axis=1) & np.isfinite(choices)
    if known.sum() < 2:
        return 0.0
    tokens = replace(loss, choices=None).of(np.where(fit.supported, nats, 0)[known])
    parts = float(np.std(choices[known])), float(np.std(tokens))
    return parts[0] / sum(parts) if sum(parts) > 0 else 0.0


def fit_to_explain(study: Study, task: str, on_message: Tell = lambda line: None) -> Fit:
    """The stored fit of a task if it reads losses on the study's texts, else a new one."""
    study.task(task)
    if task in study.fitted_tasks():
        (stored,) = stored_fits(study, [task])
        if not stored.task_fit.reads_losses:
            raise InputError(
                f"{task}: the stored fit is by {stored.task_fit.method}, which reads no tokens; "
                f"fit again with `benchcast fit {study.root} --task {task}`"
            )
        if stored.texts.annotated_digest == study.texts.annotated_digest:
            line = stale_line(study, [stored])
            if line:
                on_message(f"warning: {line} (`benchcast fit {study.root}` fits again)")
            return stored
        on_message(f"{task}: the stored fit is of other texts; fitting again")
    return fit_task(study, task)


def largest_shares(shares: dict[str, float], most: int, task: str = "") -> dict[str, float]:
    """What the candidates that a fit averages read, in plain words, with their shares, the largest first.

    Candidates that read the same, with other penalties or views, are summed.

    >>> largest_shares({"nats: answer": 0.1, "saturated: answer + clusters at 1e-07, stronger models": 0.3}, 2, "code")
    {'answers of code and similar tokens': 0.3, 'answers of code': 0.1}
    """
    summed: dict[str, float] = {}
    for name, share in shares.items():
        words = plain_name(name, task)
        summed[words] = summed.get(words, 0.0) + share
    return dict(sorted(summed.items(), key=lambda item: -item[1])[:most])


def plain_name(candidate: str, task: str) -> str:
    """What a candidate reads, from its name in the notes of a fit: "view: anchor + groups at penalty, recipe".

    >>> plain_name("saturated: choice", "code")
    'choice losses of code'
    """
    form = candidate.split(": ", 1)[-1].removesuffix(", stronger models")
    if "signed direction" in form:
        return "all texts, with signed weights"
    own = {"all": "all tokens", "source": f"texts of {task}", "answer": f"answers of {task}"}
    words = own | {"choice": f"choice losses of {task}", "clusters": "similar tokens", "kinds": "kinds of tokens"}
    parts = [part.split(" at ")[0] for part in form.split(" + ")]
    return " and ".join(words.get(part, part) for part in parts)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Salience of a task on displayed tokens, relative to its mean over all tokens."""

    task: str
    method: str
    units: Units
    salience: Floats  # of each unit, divided by the mean; NaN if a model has no loss (U)
    losses: dict[str, Floats] = field(default_factory=dict)  # mean loss of each family's models on each unit, nats
    shares: dict[str, float] = field(default_factory=dict)  # of the candidates that the method averages, the largest
    choice_share: float = 0.0  # of the differences between models, that of choice losses beside tokens

    def __repr__(self) -> str:
        return (
            f"<Explanation of {self.task!r} by {self.method}: {len(self.units.texts)} texts, {len(self.units)} tokens>"
        )

    def of_text(self, index: int) -> Floats:
        """Salience of one text's units."""
        return self.salience[self.units.of_text(index)]

    def weightiest(self) -> int:
        """Index of the text with the largest mean salience."""
        supported = np.isfinite(self.salience)
        size = np.bincount(self.units.text, supported, minlength=len(self.units.texts))
        total = np.bincount(self.units.text, np.abs(np.where(supported, self.salience, 0.0)), minlength=len(size))
        return int(np.argmax(np.divide(total, size, out=np.zeros(len(size)), where=size > 0)))

    def most(self, count: int) -> list[int]:
        """Units with the largest salience, one for each different token."""
        order = np.lexsort((np.arange(len(self.units)), -np.nan_to_num(self.salience, nan=-np.inf)))
        return self._distinct(order, count)

    def least(self, count: int, nats: Floats | None = None) -> list[int]:
        """Units with the smallest absolute salience, one for each different token; ties by the largest of `nats`.

        Without `nats` the mean of `losses` over families is used.
        """
        weight = np.round(np.abs(np.nan_to_num(self.salience, nan=np.inf)), 3)
        mean = np.mean(list(self.losses.values()), axis=0) if nats is None and self.losses else nats
        loss = np.zeros(len(weight)) if mean is None else np.nan_to_num(mean)
        return self._distinct(np.lexsort((np.arange(len(weight)), -loss, weight)), count)

    def _distinct(self, order: npt.NDArray[np.intp], count: int) -> list[int]:
        chosen: dict[str, int] = {}
        for i in order:
            if len(chosen) == count or not np.isfinite(self.salience[i]):
                break
            chosen.setdefault(self.units.shown(i).strip() or self.units.shown(i), int(i))
        return list(chosen.values())

    def quote(self, i: int) -> dict[str, Any]:
        """A unit with its text, kind, part (prompt or answer) and context; salience is None if it is unknown."""
        before, token, after = self.units.context(i)
        text = self.units.texts.texts[self.units.text[i]]
        return {
            "text": text.id,
            "source": text.source,
            "token": token,
            "salience": nan_to_none(float(self.salience[i])),
            "kind": TOKEN_KINDS[self.units.kind[i]],
            "part": PARTS[int(self.units.answer[i])],
            "before": before,
            "after": after,
        }

    def to_dict(self, text_id: str = "", *, listed: int = 10) -> dict[str, Any]:
        """Plain values, as `benchcast explain --json` prints them.

        They hold the tokens of one text (empty: the one with the largest mean salience), the `listed` most and least
        salient tokens, and the means by source and kind.
        """
        index = find_text(self.units.texts, text_id) if text_id else self.weightiest()
        span = self.units.of_text(index)
        keys = ("token", "salience", "kind", "part")
        tokens = [{k: self.quote(i)[k] for k in keys} for i in range(span.start, span.stop)]
        return {
            "task": self.task,
            "method": self.method,
            "unit": "times the mean salience of all tokens",
            "shares": self.shares,
            **({"choice_share": self.choice_share} if self.choice_share else {}),
            "text": {"id": self.units.texts.texts[index].id, "tokens": tokens},
            "most": [self.quote(i) for i in self.most(listed)],
            "least": [self.quote(i) for i in self.least(listed)],
            "by_source": plain(self.by_source()),
            "by_kind": plain(self.by_kind()),
        }

    def by_source(self) -> list[dict[str, Any]]:
        """Mean salience of each source in texts, prompts and answers, and its share of the total."""
        names = self.units.texts.sources
        source = np.array([names.index(t.source) for t in self.units.texts])[self.units.text]
        return self._groups(names, source)

    def by_kind(self) -> list[dict[str, Any]]:
        """Mean salience of each kind of token that occurs, and its share of the total."""
        return self._groups(TOKEN_KINDS, self.units.kind)

    def _groups(self, names: Sequence[str], group: Ints) -> list[dict[str, Any]]:
        supported = np.isfinite(self.salience)
        weight = np.abs(np.where(supported, self.salience * self.units.tokens, 0.0))
        rows = []
        for i, name in enumerate(names):
            members = supported & (group == i)
            if not members.any():
                continue
            part = {p: members & (self.units.answer == (p == "answer")) for p in PARTS}
            rows.append(
                {
                    "name": name,
                    "tokens": int(self.units.tokens[members].sum()),
                    "mean": self._mean(members),
                    **{p: self._mean(mask) for p, mask in part.items()},
                    "share": float(weight[members].sum() / weight.sum()) if weight.sum() else float("nan"),
                }
            )
        return rows

    def _mean(self, mask: Bools) -> float:
        if not mask.any():
            return float("nan")
        return float(np.average(self.salience[mask], weights=self.units.tokens[mask]))


def weigh_units(
    units: Units, salience: npt.NDArray[np.float32], supported: Bools, *, task: str, method: str
) -> Explanation:
    """Salience of units, relative to the mean over reference tokens.

    Parameters
    ----------
    units : the displayed tokens
    salience : of each reference token (N)
    supported : mask of the tokens on which every model has a loss (N)
    task, method : names, for display

    Returns
    -------
    the salience of each unit
    """
    size = float(np.abs(salience[supported]).mean()) if supported.any() else 0.0
    relative = np.where(supported, salience.astype(np.float64) / (size or 1.0), np.nan)
    return Explanation(task=task, method=method, units=units, salience=units.mean(relative))


def family_losses(nats: npt.NDArray[np.float32], families: Sequence[str], units: Units) -> dict[str, Floats]:
    """Mean loss in nats of each family's models on every unit, without models that have no loss there."""
    names = np.asarray(families)
    out = {}
    for name in sorted(set(families)):
        family_nats = nats[names == name]
        finite = np.isfinite(family_nats)
        count = finite.sum(axis=0)
        total = np.where(finite, family_nats, 0).sum(axis=0, dtype=np.float64)
        mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
        out[name] = units.total(mean)
    return out


def find_text(texts: TextSet, text_id: str) -> int:
    """Index of the text with the given id; InputError if there is none."""
    if text_id not in texts.index:
        hint = did_you_mean(text_id, texts.index) or "; ids are in texts.jsonl"
        raise InputError(f"unknown text {text_id!r}{hint}")
    return texts.index[text_id]


@dataclass(frozen=True)
class Units:
    """Displayed tokens, each a run of reference tokens that ends between two characters."""

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
        """Number of reference tokens in each unit."""
        return np.diff(self.first)

    def shown(self, i: int) -> str:
        """The characters of a unit."""
        return self.texts.texts[self.text[i]].text[self.start[i] : self.stop[i]]

    def of_text(self, index: int) -> slice:
        """The units of one text."""
        low, high = np.searchsorted(self.text, [index, index + 1])
        return slice(int(low), int(high))

    def context(self, i: int) -> tuple[str, str, str]:
        """The text before a unit, the unit, and the text after it."""
        text = self.texts.texts[self.text[i]].text
        a, b = int(self.start[i]), int(self.stop[i])
        cuts = [*character_starts(text), len(text)]  # do not cut a character
        first = next(k for k in cuts if k >= min(a, max(0, a - CONTEXT)))
        last = max(k for k in cuts if k <= max(b, min(len(text), b + CONTEXT)))
        return "…" * (first > 0) + text[first:a], text[a:b], text[b:last] + "…" * (last < len(text))

    def mean(self, values: npt.NDArray[Any]) -> Floats:
        """Mean of the reference tokens' values over each unit; NaN if no token has a value."""
        finite = np.isfinite(values)
        total = np.add.reduceat(np.where(finite, values, 0.0).astype(np.float64), self.first[:-1])
        count = np.add.reduceat(finite.astype(np.int64), self.first[:-1])
        return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)

    def total(self, values: npt.NDArray[Any]) -> Floats:
        """Sum of the reference tokens' values over each unit; NaN if one is missing."""
        return np.add.reduceat(values.astype(np.float64), self.first[:-1])


def make_units(texts: TextSet, edges: Ints) -> Units:
    """Group reference tokens into units.

    Parameters
    ----------
    texts : the texts
    edges : N + 1 token boundaries in bytes of all texts concatenated; they include the starts of all texts

    Returns
    -------
    the units of all texts
    """
    cuts = np.searchsorted(edges, texts.starts)
    rows: list[tuple[int, int, int, int, bool, int]] = []
    for index, text in enumerate(texts):
        bounds = edges[cuts[index] : cuts[index + 1] + 1] - texts.starts[index]
        characters = _characters(text.text, bounds)
        answer = len(text.text.encode()) if text.answer_start is None else text.answer_start
        visible = [k for k, p in enumerate(characters) if p >= 0]
        for a, b in pairwise(visible):
            shown = text.text[characters[a] : characters[b]]
            kind = TOKEN_KINDS.index(kind_of(shown, text.text[characters[a] - 1 : characters[a]]))
            rows.append((index, characters[a], characters[b], int(cuts[index]) + a, bool(bounds[a] >= answer), kind))
    index_of, starts, stops, firsts, answers, kinds = (np.array(c) for c in zip(*rows, strict=True))
    first = np.append(firsts, len(edges) - 1).astype(np.int64)
    return Units(texts=texts, text=index_of, start=starts, stop=stops, first=first, answer=answers, kind=kinds)


def _characters(text: str, bounds: Ints) -> list[int]:
    """Index of the character that starts at each byte bound; −1 inside a character. The text's ends are never −1."""
    if text.isascii() and "\r" not in text:
        return [int(b) for b in bounds]
    starts = list(character_starts(text))
    width = np.cumsum([0] + [len(c.encode()) for c in text])
    at = {int(width[i]): i for i in starts} | {0: 0, int(width[-1]): len(text)}
    return [at.get(int(b), -1) for b in bounds]


@dataclass(frozen=True, slots=True, repr=False)
class ColumnWeights:
    """The weights of all columns of a table of losses in a task's forecast, the largest first."""

    task: str
    method: str
    columns: tuple[ColumnWeight, ...]
    shares: dict[str, float] = field(default_factory=dict)  # of the candidates that the method averages, the largest

    def __repr__(self) -> str:
        return f"<ColumnWeights of {self.task!r} by {self.method}: {len(self)} columns>"

    def __iter__(self) -> Iterator[ColumnWeight]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, index: int) -> ColumnWeight:
        return self.columns[index]


@dataclass(frozen=True, slots=True)
class ColumnWeight:
    """Weight of one column of a table of losses in a task's forecast."""

    index: int  # of the column
    column: str
    unit: str
    answers: bool  # whether the column is the loss of the task's correct answers
    choices: bool  # whether the column holds choice losses, of this task or another
    salience: float  # relative to the mean; NaN if the fit does not read it
    share: float  # of the absolute salience of all columns
    mean_loss: float = math.nan  # over the models of the study that have one, in the column's unit


def weigh_columns(fit: Fit, metadata: ModelMetadata | None = None) -> list[ColumnWeight]:
    """One entry for each column of a fit on a table of losses, by absolute salience, unused columns last.

    Choice losses have weights of their own; their slopes are averaged over the models of `metadata`.
    """
    salience, used = fit.salience.astype(np.float64), fit.supported.copy()
    loss, of_choices = one_weighted_loss(fit.task_fit.capability), np.zeros(len(used), bool)
    if metadata is not None and loss is not None and loss.choices is not None:
        of_choices = loss.choices.used
        salience = np.where(of_choices, loss.choices.slopes(metadata, loss.views) * loss.unit, salience)
        used |= of_choices
    size = np.where(used, np.abs(salience), 0.0)
    mean, total = (float(size[used].mean()) if used.any() else 0.0) or 1.0, float(size.sum()) or 1.0
    return [
        ColumnWeight(
            index=int(i),
            column=fit.texts.texts[i].id,
            unit=fit.texts.texts[i].unit or "",
            answers=fit.texts.texts[i].id in fit.task_fit.task.answers,
            choices=bool(of_choices[i]) or fit.texts.texts[i].id in fit.task_fit.task.choices,
            salience=float(salience[i]) / mean if used[i] else math.nan,
            share=float(size[i]) / total if used[i] else math.nan,
        )
        for i in np.argsort(np.where(used, -size, 1.0), kind="stable")
    ]
