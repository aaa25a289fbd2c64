"""What the width of a prediction interval depends on, chosen for each task on left-out training families.

The variance of a forecast's error, as an angle (arcsin √accuracy), is taken as S · g · d²ᵖ with

    g = 1 − b − c + b · L² + c · D²

    L   slope of the law at the forecast, as angle per log-odds, over that of a law without floor at 0.5
    D²  variance of the candidates' forecasts, as angles, over its mean on the out-of-fold rows (see `disagreement`)
    d   root of the squared distance of the loss profile (see `profile`), at least 1
    S   mean over families of the mean square of error ÷ √(g d²ᵖ)

b, c and p are those of the least interval score (Winkler 1972) of left-out families, each with the S of the others. An
interval needs S and Student's t alone; a quantile of the errors themselves, pooled over tasks, was no better
(lab/LOG.md). Beyond the largest distance of an out-of-fold row, the width grows in proportion to d, whatever p is.

Axis: R out-of-fold rows.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from benchcast.choices import DEFAULT_LEVEL
from benchcast.methods.law import SigmoidLaw, share_above_chance
from benchcast.methods.task_fit import IntervalWidth, OutOfFoldErrors, TaskFit
from benchcast.records import Floats
from benchcast.splits import family_balanced

SHARES = (0.0, 0.3, 0.6, 0.9)  # b and c to try, with a sum below 1
POWERS = (0.0, 0.5, 1.0)  # p to try
FEWEST_FAMILIES = 3  # with two, the errors of one family would choose for the other
AS_BEFORE = IntervalWidth(steepness=0.0, disagreement=0.0, distance=1.0)
SMALLEST = 1e-12  # squares and variances below it are rounding errors


def angle(accuracy: npt.ArrayLike) -> Floats:
    """arcsin √accuracy: from 0 to π/2."""
    return np.arcsin(np.sqrt(np.clip(np.asarray(accuracy, np.float64), 0.0, 1.0)))


def from_angle(angles: npt.ArrayLike) -> Floats:
    """The accuracy that belongs to an angle; 0 or 1 beyond the ends."""
    return np.sin(np.clip(np.asarray(angles, np.float64), 0.0, np.pi / 2)) ** 2


def squared_slope(law: SigmoidLaw, accuracy: npt.ArrayLike) -> Floats:
    """L²: square of the law's slope where it forecasts an accuracy; 1 for a law from 0 to 1 at 0.5."""
    a = np.clip(np.asarray(accuracy, np.float64), 0.0, 1.0)
    share = np.clip(share_above_chance(a, law.chance, law.ceiling), 0.0, 1.0)
    rise = (law.ceiling - law.chance) * share * (1 - share)
    return np.asarray(16 * rise**2 / np.maximum(4 * a * (1 - a), SMALLEST))


def relative_width(
    fit: TaskFit, width: IntervalWidth, accuracy: Floats, *, distance: Floats, disagreement: Floats | None
) -> Floats:
    """√g · dᵖ at forecasts with these squared distances and variances of log-odds; None: unknown, so D² = 1."""
    steep = squared_slope(fit.law, accuracy)
    apart = np.ones_like(steep)
    if width.disagreement and disagreement is not None:
        apart = steep * disagreement / _usual_disagreement(fit)
    g = 1 - width.steepness - width.disagreement + width.steepness * steep + width.disagreement * apart
    farthest = max(1.0, float(fit.out_of_fold.distance.max(initial=1.0)))
    inside = np.clip(distance, 1.0, farthest)
    return np.asarray(np.sqrt(g * inside**width.distance * np.maximum(distance, farthest) / farthest))


def _usual_disagreement(fit: TaskFit) -> float:
    """Mean of L² times the variance of the candidates' log-odds on the out-of-fold rows; families weigh the same."""
    errors = fit.out_of_fold
    apart = squared_slope(fit.law, forecast_of(errors)) * errors.disagreement
    return max(float(family_balanced(errors.families) @ apart), SMALLEST)


def forecast_of(errors: OutOfFoldErrors) -> Floats:
    """Forecast accuracy of each held-out model (R)."""
    return np.clip(accuracy_of(errors) + errors.errors, 0.0, 1.0)


def accuracy_of(errors: OutOfFoldErrors) -> Floats:
    """Accuracy of each held-out model; where it is unknown, one that puts forecast and accuracy around 0.5 (R)."""
    return errors.observed if len(errors.observed) else 0.5 - errors.errors / 2


def errors_as_angles(errors: OutOfFoldErrors) -> Floats:
    """Forecast minus accuracy as angles (R)."""
    observed = accuracy_of(errors)
    return np.asarray(angle(observed + errors.errors) - angle(observed))


def width_of_rows(fit: TaskFit, width: IntervalWidth) -> Floats:
    """Relative width of the out-of-fold rows (R)."""
    errors = fit.out_of_fold
    distance = errors.distance if len(errors.distance) else np.ones(len(errors.errors))
    known = errors.disagreement if len(errors.disagreement) else None
    return relative_width(fit, width, forecast_of(errors), distance=distance, disagreement=known)


def with_width(fit: TaskFit) -> TaskFit:
    """The fit with the interval width of the least interval score on left-out families.

    Fits without candidates, and those of few families, keep the width that depends on the distance alone.
    """
    errors = fit.out_of_fold
    names, family = np.unique(errors.families, return_inverse=True)
    if len(names) < FEWEST_FAMILIES or not len(errors.disagreement):
        return replace(fit, width=AS_BEFORE)
    reach = float(stdtrit(len(names) - 1, 0.5 + DEFAULT_LEVEL / 2)) * np.sqrt(1 - 1 / len(names))
    weight, error = family_balanced(errors.families), errors_as_angles(errors)

    def interval_score(width: IntervalWidth) -> float:
        relative = width_of_rows(fit, width)
        squares = np.bincount(family, weights=(error / relative) ** 2) / np.bincount(family)
        of_others = (squares.sum() - squares[family]) / (len(names) - 1)
        half = reach * np.sqrt(of_others) * relative
        return float(weight @ (2 * half + 2 / (1 - DEFAULT_LEVEL) * np.maximum(np.abs(error) - half, 0.0)))

    tried = [
        IntervalWidth(steepness=b, disagreement=c, distance=p)
        for p, b, c in product(reversed(POWERS), SHARES, SHARES)
        if b + c < 1
    ]
    return replace(fit, width=min(tried, key=interval_score))
