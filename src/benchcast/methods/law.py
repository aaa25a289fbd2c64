"""The sigmoid law from capability to accuracy (equation 2) and its fits by damped Gauss–Newton steps.

One implementation fits any number of laws at once, on numpy arrays or torch tensors.
Axes: … problems (tasks, folds, restarts), M models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from benchcast.devices import Array
from benchcast.messages import nan_to_none
from benchcast.methods.solvers import LeastSquares, gauss_newton
from benchcast.records import Floats

KNOTS = (-3.0, -1.5, 0.0, 1.5, 3.0)  # log-odds at which a calibrated law may change its slope
SOFTNESS = 0.5  # width of the transitions at the knots, in log-odds
STEEPEST = 60.0  # bound on log-odds per standard deviation of capability; a step function would be infinite
HIGHEST = 30.0  # bound on log-odds at the mean capability


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(−x)) without overflow."""
    tanh = (
        np.tanh if isinstance(x, np.ndarray) else array_namespace(x).tanh
    )  # looking it up costs as much as 1,000 tanh
    return 0.5 * (1 + tanh(0.5 * x))


def share_above_chance(accuracy: Array, chance: Array, ceiling: Array = 1.0) -> Array:
    """Accuracy rescaled so that chance is 0 and the ceiling is 1; the inverse of `at_share`."""
    return (accuracy - chance) / (ceiling - chance)


def at_share(share: Array, chance: Array, ceiling: Array = 1.0) -> Array:
    """Accuracy at a share of the range from chance to the ceiling."""
    return chance + (ceiling - chance) * share


def clipped_log_odds(accuracy: Array, chance: Array, *, margin: float = 0.01) -> Array:
    """Log-odds of scores above chance, clipped to `margin` from the ends: a score at chance has no log-odds."""
    share = share_above_chance(accuracy, chance).clip(margin, 1 - margin)
    return array_namespace(share).log(share / (1 - share))


def log_odds_above(floor: float, log_odds: Floats, *, own: float) -> Floats:
    """Log-odds of the share above one floor, given those above another (`own`); clipped like those of scores.

    >>> log_odds_above(0.25, np.array([-3.0, 0.0, 2.0]), own=0.0).round(2)
    array([-4.6 , -0.69,  1.67])
    """
    if own == floor:
        return log_odds
    return np.asarray(clipped_log_odds(at_share(sigmoid(log_odds), own), floor))


def ramps(log_odds: npt.ArrayLike) -> Floats:
    """Increasing basis functions, one for each segment between knots, that sum to the log-odds (… × segments).

    Each increases over its own segment and is constant elsewhere, so any positive combination is increasing.
    """
    x = np.asarray(log_odds, np.float64)[..., None]
    soft = SOFTNESS * np.logaddexp(0.0, (x - np.array(KNOTS)) / SOFTNESS)
    below = x - soft[..., :1]
    return np.concatenate([below, soft[..., :-1] - soft[..., 1:], soft[..., -1:]], axis=-1)


@dataclass(frozen=True, slots=True)
class MonotoneCalibration:
    """Increasing piecewise-linear map of log-odds, with one slope per segment between knots.

    Outside the range of the training models the slope is 1: their pattern at the edge may not extrapolate.
    """

    shift: float
    slopes: tuple[float, ...]  # natural logarithms; 0 leaves the slope of the law unchanged
    low: float  # lowest log-odds among the training models
    high: float  # highest

    def __call__(self, log_odds: npt.ArrayLike) -> Floats:
        """Calibrated log-odds."""
        x = np.asarray(log_odds, np.float64)
        seen = np.clip(x, self.low, self.high)
        return self.shift + ramps(seen) @ np.exp(self.slopes) + (x - seen)


@dataclass(frozen=True, slots=True)
class SigmoidLaw:
    """Accuracy as a function of capability (equation 2).

    Capability is a weighted loss, so lower is better and `slope` is negative for any task that
    improves with capability. `offset` is the log-odds at capability 0: unlike the midpoint it is
    finite when the slope is 0.
    """

    slope: float  # α
    offset: float  # −α β
    chance: float  # γ: accuracy of random guessing, or the floor that a method learned; 0 for open-ended tasks
    failure: str = ""  # why the fit failed; empty if it succeeded
    ceiling: float = 1.0  # upper asymptote of accuracy; other than 1 only where a method fits it
    calibration: MonotoneCalibration | None = None  # None for a plain sigmoid

    @classmethod
    def failed(cls, chance: float, why: str) -> SigmoidLaw:
        """A law that forecasts NaN, with the reason."""
        return cls(slope=math.nan, offset=math.nan, chance=chance, failure=why)

    @property
    def midpoint(self) -> float:
        """β: the capability halfway between chance and the ceiling, before calibration."""
        return -self.offset / self.slope if self.slope else math.nan

    def log_odds(self, capability: npt.ArrayLike) -> Floats:
        """Log-odds of the share of the range from chance to the ceiling, at each capability."""
        log_odds = self.slope * np.asarray(capability, np.float64) + self.offset
        return self.calibration(log_odds) if self.calibration else log_odds

    def accuracy(self, capability: npt.ArrayLike) -> Floats:
        """Forecast accuracy (0..1) at each capability; NaN if the fit failed.

        It is 0 where the floor of a centred mean of tasks is lower.
        """
        return np.maximum(at_share(sigmoid(self.log_odds(capability)), self.chance, self.ceiling), 0.0)

    def fields(self) -> dict[str, Any]:
        """The values of fit.json, in which the calibration is "bend"."""
        return {"bend" if k == "calibration" else k: nan_to_none(v) for k, v in asdict(self).items()}

    @classmethod
    def from_fields(cls, stored: Mapping[str, Any]) -> SigmoidLaw:
        """The inverse of `fields`."""
        numbers: dict[str, Any] = {k: math.nan if v is None else v for k, v in stored.items() if k != "bend"}
        bend = stored.get("bend")
        curve = bend and MonotoneCalibration(**{**bend, "slopes": tuple(bend["slopes"])})
        return cls(**numbers, calibration=curve)


class Laws(NamedTuple):
    """Many fitted laws: log-odds = slope · capability + offset."""

    slope: Array
    offset: Array
    mse: Array
    converged: Array

    def accuracy(self, capability: Array, chance: Array) -> Array:
        """Forecast accuracy of … × M capabilities; `chance` has one value per law."""
        log_odds = self.slope[..., None] * capability + self.offset[..., None]
        return at_share(sigmoid(log_odds), chance[..., None])


def fit_monotone_calibrations(log_odds: Floats, q: Floats, weight: Floats) -> list[MonotoneCalibration]:
    """Fit calibrations of log-odds to accuracies, with slopes shrunk towards 1.

    Ridge regression on the logarithms of the slopes by damped Gauss–Newton steps, all problems at once. The penalty
    corresponds to a prior of unit variance: the mean error of the uncalibrated log-odds.

    Parameters
    ----------
    log_odds : log-odds of the law (P × M)
    q : M accuracies, rescaled so that chance is 0 and the ceiling is 1
    weight : weights of the squared errors (P × M); a model of weight 0 takes no part
    """
    x = ramps(log_odds).swapaxes(-1, -2)  # P × segments × M
    used = weight > 0
    error = (weight * (sigmoid(log_odds) - q) ** 2).sum(axis=1) / used.sum(axis=1)
    prior = np.sqrt(error)[:, None] * np.sqrt(np.append(1e-9, np.ones(x.shape[1])))  # P × parameters
    root = np.sqrt(weight)
    pull = prior[:, None] * np.eye(prior.shape[1])

    def evaluate(theta: Array) -> tuple[Array, Array]:
        slopes = np.exp(theta[:, 1:, None]) * x
        s = sigmoid(theta[:, :1] + slopes.sum(axis=1))
        rise = root * s * (1 - s)
        jacobian = np.concatenate([rise[:, None], slopes * rise[:, None]], axis=1)
        return np.concatenate([root * (s - q), prior * theta], axis=1), np.concatenate([jacobian, pull], axis=2)

    theta = gauss_newton(np.zeros_like(prior), evaluate, lambda t: t.clip(-6.0, 4.0), steps=40).theta
    low, high = np.where(used, log_odds, np.inf).min(axis=1), np.where(used, log_odds, -np.inf).max(axis=1)
    return [
        MonotoneCalibration(shift, tuple(slopes), *ends)
        for (shift, *slopes), ends in zip(theta.tolist(), np.stack([low, high], axis=1).tolist(), strict=True)
    ]


def fit_law(capability: npt.ArrayLike, accuracy: npt.ArrayLike, chance: float) -> SigmoidLaw:
    """Fit one law by least squares in accuracy (equation 4).

    Parameters
    ----------
    capability, accuracy : one value per model; accuracy in 0..1. Models with a NaN are ignored.
    chance : accuracy of random guessing, 0..1

    Returns
    -------
    The law. If the fit fails, its parameters are NaN and `failure` gives the reason.

    >>> law = fit_law([3.0, 2.5, 2.0, 1.5], [0.25, 0.4, 0.7, 0.9], 0.2)
    >>> law.slope < 0
    True
    """
    c = np.asarray(capability, np.float64)
    a = np.asarray(accuracy, np.float64)
    usable = np.isfinite(c) & np.isfinite(a)

    if usable.sum() < 2:
        return SigmoidLaw.failed(chance, f"{usable.sum()} usable models, a law has two parameters")
    if np.ptp(c[usable]) <= 1e-12 * max(1.0, float(np.abs(c[usable]).max())):
        return SigmoidLaw.failed(chance, "all capabilities are equal")
    laws = fit_laws(c[usable], a[usable], np.asarray(chance))
    if not bool(laws.converged):
        return SigmoidLaw.failed(chance, "Levenberg–Marquardt did not converge from any start")
    return SigmoidLaw(float(laws.slope), float(laws.offset), chance)


def fit_laws(
    capability: Array,
    accuracy: Array,
    chance: Array,
    *,
    weight: Array | None = None,
    start: Laws | None = None,
    steps: int = 200,
) -> Laws:
    """Fit a law to every row by least squares in accuracy (equation 4), from several starting points each.

    On a GPU all steps are made: a test for convergence would wait for the device.

    Parameters
    ----------
    capability, accuracy : … × M
    chance : …, accuracy of random guessing in each problem
    weight : … × M; models of weight 0 are ignored and may have NaN accuracy
    start : laws to start from, instead of several starting points; Algorithm 2 passes the law of its last step
    steps : most Levenberg–Marquardt steps
    """
    xp = array_namespace(capability)
    w = xp.ones_like(accuracy) if weight is None else weight
    w = w / xp.sum(w, axis=-1, keepdims=True)
    a = xp.where(w > 0, accuracy, xp.zeros_like(accuracy))
    mean = xp.sum(w * capability, axis=-1, keepdims=True)
    spread = xp.sqrt(xp.sum(w * (capability - mean) ** 2, axis=-1, keepdims=True))
    spread = xp.where(spread > 0, spread, xp.ones_like(spread))
    z = (capability - mean) / spread
    gamma = chance[..., None]
    root = xp.sqrt(w)

    def evaluate(theta: Array) -> tuple[Array, Array]:
        s = sigmoid(theta[..., 0:1] * z + theta[..., 1:2])
        rise = root * (1 - gamma) * s * (1 - s)
        return root * (at_share(s, gamma) - a), xp.stack([rise * z, rise], axis=-2)

    def limit(theta: Array) -> Array:
        return xp.stack([theta[..., 0].clip(-STEEPEST, STEEPEST), theta[..., 1].clip(-HIGHEST, HIGHEST)], axis=-1)

    if start is None:
        best = _best_of(gauss_newton(_starts(z, a, gamma, w), evaluate, limit, steps=steps))
    else:
        theta = xp.stack([start.slope * spread[..., 0], start.offset + start.slope * mean[..., 0]], axis=-1)
        best = gauss_newton(theta, evaluate, limit, steps=steps)
    slope = best.theta[..., 0] / spread[..., 0]
    return Laws(slope, best.theta[..., 1] - slope * mean[..., 0], best.error, best.converged)


def _starts(z: Array, a: Array, gamma: Array, w: Array) -> Array:
    """Starting slopes and offsets on standardised capability (starts × … × 2): a regression of the clipped log-odds,
    and decreasing and increasing curves with midpoints at −1.5, 0 and 1.5."""
    xp = array_namespace(z)
    log_odds = clipped_log_odds(a, gamma, margin=0.02)
    v0 = xp.sum(w * log_odds, axis=-1)
    u0 = xp.sum(w * z * (log_odds - v0[..., None]), axis=-1)
    guesses = [(u0, v0), (3 * u0, 3 * v0)]
    one = xp.ones_like(u0)
    guesses += [(u * one, -u * at * one) for u in (-3.0, 3.0) for at in (-1.5, 0.0, 1.5)]
    return xp.stack([xp.stack(guess, axis=-1) for guess in guesses])


def _best_of(tried: LeastSquares) -> LeastSquares:
    """The result with the lowest error over starting points, for each problem."""
    xp = array_namespace(tried.theta)
    theta, error, converged = tried.theta[0], tried.error[0], tried.converged[0]
    for k in range(1, len(tried.theta)):
        better = tried.error[k] < error
        theta = xp.where(better[..., None], tried.theta[k], theta)
        error, converged = xp.where(better, tried.error[k], error), xp.where(better, tried.converged[k], converged)
    return LeastSquares(theta, error, converged)
