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
from benchcast.selection.choosing import Aim, aims, choose_texts, cut_fit
from benchcast.task_fit import TaskFit

METHOD = "salience"
CHOSEN, RANDOM, SPREAD = "chosen", "at random", "at random from each source"
WAYS = (CHOSEN, SPREAD, RANDOM)
DRAWS = 2  # of the random ways


@dataclass(frozen=True, slots=True)
class Cost:
    """Forecasts of held-out models from some of the texts, task by task."""

    way: str
    texts: int
    draw: int
    mse: dict[str, float]
    coverage: dict[str, float]  # of the 90% interval

    def ratio(self, full: Cost) -> float:
        """Error ÷ error with all texts, geometric mean over tasks; NaN where a task has none."""
        parts = [self.mse[t] / full.mse[t] if full.mse[t] > 0 else math.nan for t in full.mse]
        return geometric_mean(parts)

    def as_row(self, full: Cost, split: str) -> dict[str, Any]:
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
class Ground:
    """Fits on all texts in every fold, and what the chosen texts are to do."""

    dataset: Dataset
    folds: tuple[Fold, ...]
    fits: tuple[list[TaskFit], ...]  # by fold and task
    goals: tuple[list[Aim], ...]  # by fold

    @property
    def texts(self) -> int:
        """How many texts there are."""
        return int(self.goals[0][0].parts.shape[1])


def prepare(dataset: Dataset, folds: Sequence[Fold]) -> Ground:
    """Fit all texts in every fold."""
    fits = tuple(METHODS[METHOD](dataset, folds))
    goals = tuple(aims(dataset, fold, row) for fold, row in zip(folds, fits, strict=True))
    if not all(goals):
        raise NotEnoughDataError("no task has a law to choose texts for; see `benchcast compare`")
    return Ground(dataset, tuple(folds), fits, goals)


def cost(ground: Ground, way: str, texts: int, *, draw: int = 0) -> Cost:
    """Choose so many texts in every fold and forecast the fold's test models from them."""
    dataset, held = ground.dataset, []
    for k, (fold, row, goals) in enumerate(zip(ground.folds, ground.fits, ground.goals, strict=True)):
        wanted = np.sort(pick(dataset, goals, way, texts, np.random.default_rng([draw, k])))
        small = dataset.for_texts(wanted)
        cut = [cut_fit(dataset, fold, t, fit, wanted) for t, fit in enumerate(row)]
        held.append([hold(small, [fold], [fit], t) for t, fit in enumerate(cut)])
    cells = [_measured(parts) for parts in zip(*held, strict=True)]
    names = [t.name for t in dataset.tasks]
    mse, coverage = ({n: c[what] for n, c in zip(names, cells, strict=True)} for what in ("mse", "coverage"))
    return Cost(way, min(texts, ground.texts), draw, mse, coverage)


def costs(ground: Ground, texts: int, full: Cost, split: str) -> list[dict[str, Any]]:
    """One row for the choice, and one for each draw of as many texts at random."""
    tried = [(way, draw) for way in WAYS for draw in range(1 if way == CHOSEN else DRAWS)]
    return [cost(ground, way, texts, draw=draw).as_row(full, split) for way, draw in tried]


def _measured(parts: Sequence[HeldOutForecasts]) -> dict[str, float]:
    observed, forecast, low, high = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("observed", "forecast", "low", "high")
    )
    return measure(observed, forecast, low, high)


def pick(dataset: Dataset, goals: Sequence[Aim], way: str, texts: int, rng: np.random.Generator) -> Ints:
    """Numbers of texts, chosen one way or another."""
    total = goals[0].parts.shape[1]
    if texts >= total:
        return np.arange(total)
    if way == CHOSEN:
        return choose_texts(goals, texts)
    if way == RANDOM:
        return rng.choice(total, texts, replace=False)
    source = np.zeros(total, np.int64)
    source[dataset.tokens.text] = dataset.tokens.source
    turn = np.empty(total)
    for s in np.unique(source):  # the n-th text of every source comes before the n + 1st of any
        own = np.flatnonzero(source == s)
        turn[own] = rng.permutation(len(own)) + rng.random(len(own))
    return np.argsort(turn)[:texts]
