"""Prediction intervals from errors on families that a forecast was not shown.

Errors of one family are alike, so a new model is a draw of a family first: with F families there are F
independent observations, however many checkpoints each has. The scale is therefore the mean over
families of their mean squared error, and the interval is Student's t with F − 1 degrees of freedom. Each error was
made by a fit that lacked one family more than the final fit does, and errors of fits fall about as 1 / √F: hence the
factor √(1 − 1/F). Split-conformal intervals over families would need at least nine families to promise 90%.
Planted worlds are the judge (`lab/log/coverage.py`, LOG.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from benchcast.records import Floats
from benchcast.task_fit import OutOfFoldErrors, TaskFit

LEVEL = 0.90
SAME = 1e-6  # capabilities that differ by less, relative to their size, are the same
NEAR_CHANCE = 0.1  # of the way from chance to 1
WIDER_AT_CHANCE = 0.25  # a model at chance may be just about to leave it, and its losses hardly tell


@dataclass(frozen=True, slots=True)
class Spread:
    """How far forecasts of unseen models miss."""

    scale: float  # root mean squared error of an unseen family; NaN where it cannot be said
    families: int
    half_width: float  # of the 90% interval inside the training range


def spread_of(out_of_fold: OutOfFoldErrors) -> Spread:
    """The spread that a set of honest errors supports."""
    if not len(out_of_fold.errors):
        return Spread(np.nan, 0, np.nan)
    names, index = np.unique(out_of_fold.families, return_inverse=True)
    squares = np.bincount(index, weights=out_of_fold.errors**2) / np.bincount(index)
    groups = len(names)
    if groups == 1:  # nothing is known of other families: the models stand in for them
        squares = out_of_fold.errors**2
        groups = len(squares)
    if groups < 2:
        return Spread(float(np.sqrt(squares.mean())), len(names), np.nan)
    scale = float(np.sqrt(squares.mean()))
    reach = float(student.ppf(0.5 + LEVEL / 2, groups - 1)) * np.sqrt(1 - 1 / groups)
    return Spread(scale, len(names), scale * reach)


def out_of_fold_coverage(out_of_fold: OutOfFoldErrors) -> float:
    """Share of honest errors inside the interval that the other families' errors give; NaN with fewer than three."""
    inside: list[bool] = []
    for family in np.unique(out_of_fold.families):
        own = out_of_fold.families == family
        half = spread_of(
            OutOfFoldErrors(out_of_fold.errors[~own], out_of_fold.families[~own], out_of_fold.kind)
        ).half_width
        inside += (
            [*(np.abs(out_of_fold.errors[own]) <= half)] if len(np.unique(out_of_fold.families[~own])) >= 2 else []
        )
    return float(np.mean(inside)) if inside else float("nan")


def interval(fit: TaskFit, capability: npt.ArrayLike, accuracy: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Low and high end for forecasts; they widen with the distance from the training models, and near chance."""
    a = np.asarray(accuracy, np.float64)
    wider = widening(fit, capability, a)
    half = np.where(
        np.isinf(wider), np.inf, spread_of(fit.out_of_fold).half_width * np.where(np.isinf(wider), 0.0, wider)
    )
    return np.clip(a - half, 0, 1), np.clip(a + half, 0, 1)


def widening(fit: TaskFit, capability: npt.ArrayLike, accuracy: npt.ArrayLike) -> Floats:
    """How many times wider than in the midst of the training models."""
    return (1 + distance(fit, capability)) * (1 + WIDER_AT_CHANCE * nearness_to_chance(fit, accuracy))


def distance(fit: TaskFit, capability: npt.ArrayLike) -> Floats:
    """How far outside the training models a capability lies, in units of their range; 0 inside.

    Where they all have the same capability, any other one is infinitely far outside.
    """
    c = np.asarray(capability, np.float64)
    low, high = fit.range
    outside = np.maximum(np.maximum(low - c, c - high), 0)
    if has_range(fit):
        return outside / (high - low)
    return np.where(outside > SAME * max(abs(low), abs(high)), np.inf, 0.0)


def has_range(fit: TaskFit) -> bool:
    """Whether training models differ in capability by more than rounding does."""
    low, high = fit.range
    return high - low > SAME * max(abs(low), abs(high))


def nearness_to_chance(fit: TaskFit, accuracy: npt.ArrayLike) -> Floats:
    """1 for a forecast at chance, falling to 0 where it has left chance behind."""
    above = (np.asarray(accuracy, np.float64) - fit.task.chance) / (1 - fit.task.chance)
    return np.clip(1 - above / NEAR_CHANCE, 0.0, 1.0)
