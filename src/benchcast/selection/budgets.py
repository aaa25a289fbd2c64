"""Measure the cost of a selection of texts: error on held-out models against the number of texts.

Texts are selected inside each fold from its training models; the fit on the selected texts then forecasts models that
neither the selection nor the fit has used. Axes: T tasks, M models, S texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchcast.dataset import Dataset, Fold
from benchcast.errors import NotEnoughDataError
from benchcast.evaluate import HeldOutForecasts, geometric_mean, hold, measure
from benchcast.formatting import plain
from benchcast.methods import METHODS
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Ints
from benchcast.selection.choosing import TaskObjective, choose_texts, cut_fit, task_objectives

METHOD = "salience"
CHOSEN, RANDOM, SPREAD = "chosen", "at random", "at random from each source"
WAYS = (CHOSEN, SPREAD, RANDOM)
DRAWS = 2  # repetitions of the random selections


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """Errors of forecasts of held-out models from some of the texts."""

    way: str  # how the texts were selected, one of `WAYS`
    texts: int
    draw: int
    mse: dict[str, float]  # by task
    coverage: dict[str, float]  # of the prediction interval, by task

    def ratio(self, full: BudgetResult) -> float:
        """Error ÷ error with all texts, geometric mean over tasks; NaN if a task has no error."""
        parts = [self.mse[t] / full.mse[t] if full.mse[t] > 0 else math.nan for t in full.mse]
        return geometric_mean(parts)

    def as_row(self, full: BudgetResult, split: str) -> dict[str, Any]:
        """The result as a row for tables and JSON; undefined numbers are NaN."""
        return {
            "split": split,
            "texts": self.texts,
            "way": self.way,
            "draw": self.draw,
            "mse": geometric_mean([*self.mse.values()]),
            "ratio": self.ratio(full),
            "coverage": float(np.mean([*self.coverage.values()])),
            "tasks": self.mse,
        }


@dataclass(frozen=True, slots=True)
class SelectionCost:
    """Errors on held-out models with fewer texts, or the reason why they were not measured."""

    split: str | None = None  # how models were held out
    full: dict[str, float] = field(default_factory=dict)  # mean squared error with all texts, by task
    rows: tuple[dict[str, Any], ...] = ()  # one for each number of texts and way to select; see `BudgetResult.as_row`
    remark: str = ""  # why nothing was measured

    def __repr__(self) -> str:
        return f"<SelectionCost: {self.remark or f'{len(self.rows)} rows, split by {self.split}'}>"

    def to_dict(self) -> dict[str, Any]:
        """The cost as plain values; undefined numbers are None."""
        why = {"remark": self.remark} if self.remark else {"full": self.full}
        return dict(plain({"split": self.split, **why, "costs": list(self.rows)}))


@dataclass(frozen=True)
class FullTextFits:
    """Fits on all texts in every fold, and the objectives of the selection."""

    dataset: Dataset
    folds: tuple[Fold, ...]
    fits: tuple[list[TaskFit], ...]  # by fold and task
    objectives: tuple[list[TaskObjective], ...]  # by fold

    @property
    def texts(self) -> int:
        """Number of texts."""
        return int(self.objectives[0][0].parts.shape[1])


def prepare(dataset: Dataset, folds: Sequence[Fold]) -> FullTextFits:
    """Fit all texts in every fold.

    Parameters
    ----------
    dataset : losses and scores of the models
    folds : which models are trained on and tested

    Returns
    -------
    the fits and the objectives of the selection, by fold
    """
    fits = tuple(METHODS[METHOD](dataset, folds))
    objectives = tuple(task_objectives(dataset, fold, row) for fold, row in zip(folds, fits, strict=True))
    if not all(objectives):
        raise NotEnoughDataError("no task has a law to select texts for; see `benchcast compare`")
    return FullTextFits(dataset, tuple(folds), fits, objectives)


def cost(full_fits: FullTextFits, way: str, texts: int, *, draw: int = 0) -> BudgetResult:
    """Select texts in every fold and forecast the fold's test models from them.

    Parameters
    ----------
    full_fits : the fits on all texts
    way : how to select, one of `WAYS`
    texts : number of texts to select
    draw : number of the repetition, the seed of random selections

    Returns
    -------
    errors and coverage by task
    """
    dataset, held = full_fits.dataset, []
    for k, (fold, row, objectives) in enumerate(
        zip(full_fits.folds, full_fits.fits, full_fits.objectives, strict=True)
    ):
        chosen = np.sort(pick(dataset, objectives, way, texts, np.random.default_rng([draw, k])))
        small = dataset.for_texts(chosen)
        small_fits = [cut_fit(dataset, fold, t, fit, chosen) for t, fit in enumerate(row)]
        held.append([hold(small, [fold], [small_fits], t) for t in range(len(small_fits))])
    cells = [_measured(parts) for parts in zip(*held, strict=True)]
    names = [t.name for t in dataset.tasks]
    mse, coverage = ({n: c[what] for n, c in zip(names, cells, strict=True)} for what in ("mse", "coverage"))
    return BudgetResult(way, min(texts, full_fits.texts), draw, mse, coverage)


def costs(full_fits: FullTextFits, texts: int, full: BudgetResult, split: str) -> list[dict[str, Any]]:
    """One row for the selection, and one for each random draw of equally many texts."""
    draws = [(way, draw) for way in WAYS for draw in range(1 if way == CHOSEN else DRAWS)]
    return [cost(full_fits, way, texts, draw=draw).as_row(full, split) for way, draw in draws]


def measure_costs(
    full_fits: FullTextFits, budget: int, split: str, on_step: Callable[[str], None] = lambda step: None
) -> SelectionCost:
    """Cost of half the budget, the budget and twice the budget; `on_step` is called with a line for each."""
    full = cost(full_fits, CHOSEN, full_fits.texts)
    rows: list[dict[str, Any]] = []
    for texts in sorted({max(1, budget // 2), budget, 2 * budget}):
        if texts < full_fits.texts:
            on_step(f"{texts} texts")
            rows += costs(full_fits, texts, full, split)
    return SelectionCost(split, full.mse, tuple(rows))


def _measured(parts: Sequence[HeldOutForecasts]) -> dict[str, float]:
    observed, forecast, low, high = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("observed", "forecast", "low", "high")
    )
    return measure(observed, forecast, low, high)


def pick(dataset: Dataset, objectives: Sequence[TaskObjective], way: str, texts: int, rng: np.random.Generator) -> Ints:
    """Indices of texts selected in the given way."""
    total = objectives[0].parts.shape[1]
    if texts >= total:
        return np.arange(total)
    if way == CHOSEN:
        return choose_texts(objectives, texts)
    if way == RANDOM:
        return rng.choice(total, texts, replace=False)
    source = np.zeros(total, np.int64)
    source[dataset.reference_tokens.text] = dataset.reference_tokens.source
    rank = np.empty(total)
    for s in np.unique(source):  # the n-th text of every source precedes the n + 1st of any source
        in_source = np.flatnonzero(source == s)
        rank[in_source] = rng.permutation(len(in_source)) + rng.random(len(in_source))
    return np.argsort(rank)[:texts]
