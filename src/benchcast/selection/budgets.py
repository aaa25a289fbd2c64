"""What a choice of texts costs: error on held-out models against the number of texts.

The choice is made inside each fold, from models that the fold has seen; the fit on the chosen texts then forecasts
models that neither the choice nor the fit has met. Axes: T tasks, M models, S texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchcast.dataset import Dataset, Fold
from benchcast.errors import NotEnoughDataError
from benchcast.evaluate import HeldOutForecasts, geometric_mean, hold, measure
from benchcast.methods import METHODS
from benchcast.records import Ints
from benchcast.selection.choosing import TaskObjective, choose_texts, cut_fit, task_objectives
from benchcast.task_fit import TaskFit

METHOD = "salience"
CHOSEN, RANDOM, SPREAD = "chosen", "at random", "at random from each source"
WAYS = (CHOSEN, SPREAD, RANDOM)
DRAWS = 2  # of the random ways


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """Forecasts of held-out models from some of the texts, task by task."""

    way: str
    texts: int
    draw: int
    mse: dict[str, float]
    coverage: dict[str, float]  # of the 90% interval

    def ratio(self, full: BudgetResult) -> float:
        """Error ÷ error with all texts, geometric mean over tasks; NaN where a task has none."""
        parts = [self.mse[t] / full.mse[t] if full.mse[t] > 0 else math.nan for t in full.mse]
        return geometric_mean(parts)

    def as_row(self, full: BudgetResult, split: str) -> dict[str, Any]:
        """For tables and JSON; numbers that cannot be said are NaN."""
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


@dataclass(frozen=True)
class FullTextFits:
    """Fits on all texts in every fold, and what the chosen texts are to do."""

    dataset: Dataset
    folds: tuple[Fold, ...]
    fits: tuple[list[TaskFit], ...]  # by fold and task
    objectives: tuple[list[TaskObjective], ...]  # by fold

    @property
    def texts(self) -> int:
        """How many texts there are."""
        return int(self.objectives[0][0].parts.shape[1])


def prepare(dataset: Dataset, folds: Sequence[Fold]) -> FullTextFits:
    """Fit all texts in every fold."""
    fits = tuple(METHODS[METHOD](dataset, folds))
    objectives = tuple(task_objectives(dataset, fold, row) for fold, row in zip(folds, fits, strict=True))
    if not all(objectives):
        raise NotEnoughDataError("no task has a law to choose texts for; see `benchcast compare`")
    return FullTextFits(dataset, tuple(folds), fits, objectives)


def cost(full_fits: FullTextFits, way: str, texts: int, *, draw: int = 0) -> BudgetResult:
    """Choose so many texts in every fold and forecast the fold's test models from them."""
    dataset, held = full_fits.dataset, []
    for k, (fold, row, objectives) in enumerate(
        zip(full_fits.folds, full_fits.fits, full_fits.objectives, strict=True)
    ):
        wanted = np.sort(pick(dataset, objectives, way, texts, np.random.default_rng([draw, k])))
        small = dataset.for_texts(wanted)
        cut = [cut_fit(dataset, fold, t, fit, wanted) for t, fit in enumerate(row)]
        held.append([hold(small, [fold], [fit], t) for t, fit in enumerate(cut)])
    cells = [_measured(parts) for parts in zip(*held, strict=True)]
    names = [t.name for t in dataset.tasks]
    mse, coverage = ({n: c[what] for n, c in zip(names, cells, strict=True)} for what in ("mse", "coverage"))
    return BudgetResult(way, min(texts, full_fits.texts), draw, mse, coverage)


def costs(full_fits: FullTextFits, texts: int, full: BudgetResult, split: str) -> list[dict[str, Any]]:
    """One row for the choice, and one for each draw of as many texts at random."""
    tried = [(way, draw) for way in WAYS for draw in range(1 if way == CHOSEN else DRAWS)]
    return [cost(full_fits, way, texts, draw=draw).as_row(full, split) for way, draw in tried]


def _measured(parts: Sequence[HeldOutForecasts]) -> dict[str, float]:
    observed, forecast, low, high = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("observed", "forecast", "low", "high")
    )
    return measure(observed, forecast, low, high)


def pick(dataset: Dataset, objectives: Sequence[TaskObjective], way: str, texts: int, rng: np.random.Generator) -> Ints:
    """Numbers of texts, chosen one way or another."""
    total = objectives[0].parts.shape[1]
    if texts >= total:
        return np.arange(total)
    if way == CHOSEN:
        return choose_texts(objectives, texts)
    if way == RANDOM:
        return rng.choice(total, texts, replace=False)
    source = np.zeros(total, np.int64)
    source[dataset.reference_tokens.text] = dataset.reference_tokens.source
    turn = np.empty(total)
    for s in np.unique(source):  # the n-th text of every source comes before the n + 1st of any
        own = np.flatnonzero(source == s)
        turn[own] = rng.permutation(len(own)) + rng.random(len(own))
    return np.argsort(turn)[:texts]
