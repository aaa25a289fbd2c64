"""Prediction intervals from out-of-fold errors on held-out families.

Errors within a family are correlated, so F families give F independent observations, whatever their number of
checkpoints. The scale is therefore the root of the mean over families of their mean squared error, and the interval
is Student's t with F − 1 degrees of freedom. Each error comes from a fit with one family fewer than the final fit,
and errors fall about as 1 / √F: hence the factor √(1 − 1/F). Split-conformal intervals over families would need at
least nine families for 90%. Coverage is tested on synthetic studies (`lab/log/coverage.py`, LOG.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit  # scipy.stats has it, too, and takes a second to load

from benchcast.choices import DEFAULT_LEVEL
from benchcast.law import share_above_chance
from benchcast.records import Floats
from benchcast.task_fit import OutOfFoldErrors, TaskFit

SAME = 1e-6  # capabilities with a smaller relative difference count as equal
NEAR_CHANCE = 0.1  # as a share of the range from chance to 1
WIDER_AT_CHANCE = 0.25  # losses hardly show whether a model at chance is about to improve


@dataclass(frozen=True, slots=True)
class Spread:
    """Size of the forecast error on unseen families, in accuracy (0..1)."""

    scale: float  # root mean squared error on an unseen family; NaN without errors
    families: int
    half_width: float  # half the width of the interval inside the training range; NaN with fewer than two groups


def spread_of(out_of_fold: OutOfFoldErrors, level: float = DEFAULT_LEVEL) -> Spread:
    """Estimate the spread from out-of-fold errors; the half width is that of an interval of this level."""
    if not len(out_of_fold.errors):
        return Spread(np.nan, 0, np.nan)
    names, index = np.unique(out_of_fold.families, return_inverse=True)
    squares = np.bincount(index, weights=out_of_fold.errors**2) / np.bincount(index)
    groups = len(names)
    if groups == 1:  # with a single family, models take the place of families
        squares = out_of_fold.errors**2
        groups = len(squares)
    if groups < 2:
        return Spread(float(np.sqrt(squares.mean())), len(names), np.nan)
    scale = float(np.sqrt(squares.mean()))
    reach = float(stdtrit(groups - 1, 0.5 + level / 2)) * np.sqrt(1 - 1 / groups)
    return Spread(scale, len(names), scale * reach)


def out_of_fold_coverage(out_of_fold: OutOfFoldErrors) -> float:
    """Share of out-of-fold errors inside the interval from the other families' errors; NaN below three families."""
    errors, families = out_of_fold.errors, out_of_fold.families
    inside: list[bool] = []
    for family in np.unique(families):
        held_out = families == family
        if len(np.unique(families[~held_out])) < 2:
            continue
        others = OutOfFoldErrors(errors[~held_out], families[~held_out], out_of_fold.kind)
        inside += [*(np.abs(errors[held_out]) <= spread_of(others).half_width)]
    return float(np.mean(inside)) if inside else float("nan")


def interval(
    fit: TaskFit, capability: npt.ArrayLike, accuracy: npt.ArrayLike, level: float = DEFAULT_LEVEL
) -> tuple[Floats, Floats]:
    """Lower and upper end of the prediction interval of each forecast, within 0..1.

    Intervals are wider outside the capability range of the training models and near chance.

    Parameters
    ----------
    fit : the fit, with its out-of-fold errors
    capability, accuracy : capability and forecast accuracy of each model
    level : nominal coverage on unseen families, between 0 and 1
    """
    a = np.asarray(accuracy, np.float64)
    wider = widening(fit, capability, a)
    half = np.where(
        np.isinf(wider), np.inf, spread_of(fit.out_of_fold, level).half_width * np.where(np.isinf(wider), 0.0, wider)
    )
    return np.clip(a - half, 0, 1), np.clip(a + half, 0, 1)


def widening(fit: TaskFit, capability: npt.ArrayLike, accuracy: npt.ArrayLike) -> Floats:
    """Factor by which an interval is wider than inside the training range and away from chance."""
    return (1 + distance(fit, capability)) * (1 + WIDER_AT_CHANCE * nearness_to_chance(fit, accuracy))


def distance(fit: TaskFit, capability: npt.ArrayLike) -> Floats:
    """Distance of a capability from the range of the training models, in units of that range; 0 inside.

    If all training models have the same capability, the distance of any other is infinite.
    """
    c = np.asarray(capability, np.float64)
    low, high = fit.range
    outside = np.maximum(np.maximum(low - c, c - high), 0)
    if has_range(fit):
        return outside / (high - low)
    return np.where(outside > SAME * max(abs(low), abs(high)), np.inf, 0.0)


def has_range(fit: TaskFit) -> bool:
    """Whether the capabilities of the training models differ by more than rounding error."""
    low, high = fit.range
    return high - low > SAME * max(abs(low), abs(high))


def nearness_to_chance(fit: TaskFit, accuracy: npt.ArrayLike) -> Floats:
    """1 for a forecast at chance, decreasing linearly to 0 at `NEAR_CHANCE` above it."""
    above = share_above_chance(np.asarray(accuracy, np.float64), fit.task.chance)
    return np.clip(1 - above / NEAR_CHANCE, 0.0, 1.0)
