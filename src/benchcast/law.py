"""The sigmoid law from capability to accuracy (equation 2) and its Levenberg–Marquardt fit.

One implementation fits any number of laws at once, on numpy arrays or torch tensors.
Axes: … problems (tasks, folds, restarts), M models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from benchcast.devices import Array, on_host
from benchcast.records import Floats

KNOTS = (-3.0, -1.5, 0.0, 1.5, 3.0)  # log-odds at which a calibrated law may change its slope
SOFTNESS = 0.5  # width of the transitions at the knots, in log-odds
STEEPEST = 60.0  # bound on log-odds per standard deviation of capability; a step function would be infinite
HIGHEST = 30.0  # bound on log-odds at the mean capability


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(−x)) without overflow."""
    return 0.5 * (1 + array_namespace(x).tanh(0.5 * x))


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
    chance: float  # γ: accuracy of random guessing; 0 for open-ended tasks
    failure: str = ""  # why the fit failed; empty if it succeeded
    ceiling: float = 1.0  # upper asymptote of accuracy; other than 1 only where a method fits it
    calibration: MonotoneCalibration | None = None  # None for a plain sigmoid

    @property
    def midpoint(self) -> float:
        """β: the capability halfway between chance and the ceiling, before calibration."""
        return -self.offset / self.slope if self.slope else math.nan

    def accuracy(self, capability: npt.ArrayLike) -> Floats:
        """Forecast accuracy (0..1) at each capability; NaN if the fit failed."""
        log_odds = self.slope * np.asarray(capability, np.float64) + self.offset
        return self.chance + (self.ceiling - self.chance) * sigmoid(
            self.calibration(log_odds) if self.calibration else log_odds
        )


@dataclass(frozen=True, slots=True)
class Laws:
    """Many fitted laws: log-odds = slope · capability + offset."""

    slope: Array
    offset: Array
    mse: Array
    converged: Array


def fit_monotone_calibration(log_odds: Floats, q: Floats, weight: Floats) -> MonotoneCalibration:
    """Fit the calibration of log-odds to accuracies, with slopes shrunk towards 1.

    Ridge regression on the logarithms of the slopes by damped Gauss–Newton steps. The penalty corresponds to a prior
    of unit variance: the mean error of the uncalibrated log-odds.

    Parameters
    ----------
    log_odds : M log-odds of the law
    q : M accuracies, rescaled so that chance is 0 and the ceiling is 1
    weight : M weights of the squared errors
    """
    x = ramps(log_odds)
    penalty = float(weight @ (sigmoid(log_odds) - q) ** 2) / len(q)
    theta, damping = np.zeros(1 + x.shape[1]), 1e-3
    prior = np.append(1e-9 * penalty, np.full(x.shape[1], penalty))
    s = sigmoid(theta[0] + x @ np.exp(theta[1:]))
    error = float(weight @ (s - q) ** 2)
    for _ in range(40):
        jacobian = (s * (1 - s))[:, None] * np.hstack([np.ones((len(x), 1)), x * np.exp(theta[1:])])
        gradient = jacobian.T @ (weight * (s - q)) + prior * theta
        curvature = (jacobian * weight[:, None]).T @ jacobian + np.diag(prior)
        step = np.linalg.solve(curvature + np.diag(damping * np.diag(curvature) + 1e-15), gradient)
        new = np.clip(theta - step, -6.0, 4.0)
        s_new = sigmoid(new[0] + x @ np.exp(new[1:]))
        error_new = float(weight @ (s_new - q) ** 2 + prior @ new**2)
        if error_new > error:
            damping *= 6
            continue
        converged = error - error_new <= 1e-9 * error
        theta, s, error, damping = new, s_new, error_new, damping / 5
        if converged:
            break
    shift, *slopes = map(float, theta)
    return MonotoneCalibration(shift, tuple(slopes), float(log_odds.min()), float(log_odds.max()))


def fit_law(
    capability: npt.ArrayLike, accuracy: npt.ArrayLike, chance: float, *, weight: npt.ArrayLike | None = None
) -> SigmoidLaw:
    """Fit one law by least squares in accuracy (equation 4).

    Parameters
    ----------
    capability, accuracy : one value per model; accuracy in 0..1. Models with a NaN are ignored.
    chance : accuracy of random guessing, 0..1
    weight : weight of each model's squared error; by default 1

    Returns
    -------
    The law. If the fit fails, its parameters are NaN and `failure` gives the reason.

    >>> law = fit_law([3.0, 2.5, 2.0, 1.5], [0.25, 0.4, 0.7, 0.9], 0.2)
    >>> law.slope < 0
    True
    """
    c = np.asarray(capability, np.float64)
    a = np.asarray(accuracy, np.float64)
    w = np.ones_like(a) if weight is None else np.asarray(weight, np.float64)
    usable = np.isfinite(c) & np.isfinite(a) & (w > 0)

    def failed(why: str) -> SigmoidLaw:
        return SigmoidLaw(math.nan, math.nan, chance, why)

    if usable.sum() < 2:
        return failed(f"{usable.sum()} usable models, a law has two parameters")
    if np.ptp(c[usable]) <= 1e-12 * max(1.0, float(np.abs(c[usable]).max())):
        return failed("all capabilities are equal")
    laws = fit_laws(c[usable], a[usable], np.asarray(chance), weight=w[usable])
    if not bool(laws.converged):
        return failed("Levenberg–Marquardt did not converge from any start")
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
    if start is None:
        u, v = _starts(z, a, gamma, w)
        tried = _levenberg_marquardt(u, v, (z[None], a[None], gamma[None], w[None]), steps)
        u, v, sse, converged = _best_of(tried)
    else:
        u = (start.slope * spread[..., 0])[..., None]
        v = (start.offset + start.slope * mean[..., 0])[..., None]
        u, v, sse, converged = _levenberg_marquardt(u, v, (z, a, gamma, w), steps)
    slope = u / spread
    offset = v - slope * mean
    return Laws(slope[..., 0], offset[..., 0], sse[..., 0], converged[..., 0])


Point = tuple[Array, Array, Array, Array]


def _starts(z: Array, a: Array, gamma: Array, w: Array) -> tuple[Array, Array]:
    """Starting slopes and offsets on standardised capability: a regression of the clipped log-odds, and
    decreasing and increasing curves with midpoints at −1.5, 0 and 1.5."""
    xp = array_namespace(z)
    q = xp.clip((a - gamma) / (1 - gamma), 0.02, 0.98)
    log_odds = xp.log(q / (1 - q))
    v0 = xp.sum(w * log_odds, axis=-1, keepdims=True)
    u0 = xp.sum(w * z * (log_odds - v0), axis=-1, keepdims=True)
    guesses = [(u0, v0), (3 * u0, 3 * v0)]
    one = xp.ones_like(u0)
    guesses += [(u * one, -u * at * one) for u in (-3.0, 3.0) for at in (-1.5, 0.0, 1.5)]
    return xp.stack([u for u, _ in guesses]), xp.stack([v for _, v in guesses])


def _best_of(tried: Point) -> Point:
    """The result with the lowest error over starting points, for each problem."""
    xp = array_namespace(tried[0])
    best = tuple(x[0] for x in tried)
    for k in range(1, tried[0].shape[0]):
        better = tried[2][k] < best[2]
        best = tuple(xp.where(better, x[k], old) for x, old in zip(tried, best, strict=True))
    return best


def _errors(u: Array, v: Array, data: Point) -> tuple[Array, Array, Array]:
    """Residuals, the derivative of accuracy by log-odds, and the weighted squared error."""
    z, a, gamma, w = data
    s = sigmoid(u * z + v)
    residual = gamma + (1 - gamma) * s - a
    return (
        residual,
        (1 - gamma) * s * (1 - s),
        array_namespace(z).sum(w * residual**2, axis=-1, keepdims=True),
    )


def _levenberg_marquardt(u: Array, v: Array, data: Point, steps: int) -> Point:
    """Damped Gauss–Newton steps in slope and offset, with one damping factor per problem."""
    xp = array_namespace(u)
    z, _, _, w = data
    powers = xp.stack([xp.ones_like(z), z, z * z], axis=-1)  # gradient and curvature are sums over these
    residual, rise, sse = _errors(u, v, data)
    damping = 1e-2 * xp.ones_like(sse)
    settled = sse < 0
    halfway = sse
    for step in range(steps):
        halfway = sse if step == steps // 2 else halfway
        sums = (w * rise)[..., None, :] * xp.stack([residual, rise], axis=-2) @ powers
        g_v, g_u = sums[..., 0, 0:1], sums[..., 0, 1:2]
        h_vv, h_uv, h_uu = sums[..., 1, 0:1], sums[..., 1, 1:2], sums[..., 1, 2:3]
        h_vv, h_uu = h_vv * (1 + damping) + 1e-15, h_uu * (1 + damping) + 1e-15
        det = h_uu * h_vv - h_uv * h_uv
        u_new = (u - (h_vv * g_u - h_uv * g_v) / det).clip(-STEEPEST, STEEPEST)
        v_new = (v - (h_uu * g_v - h_uv * g_u) / det).clip(-HIGHEST, HIGHEST)
        residual_new, rise_new, sse_new = _errors(u_new, v_new, data)
        better = sse_new <= sse
        moved = xp.abs(u_new - u) + xp.abs(v_new - v)
        flat = better & (sse - sse_new <= 1e-10 * sse + 1e-18) & (damping < 1e3)
        level = xp.abs(g_u) + xp.abs(g_v) <= 1e-13  # scores below chance: the best curve stays at chance, flat
        settled = settled | flat | level | (moved <= 1e-9 * (1 + xp.abs(u) + xp.abs(v)))
        u, v = xp.where(better, u_new, u), xp.where(better, v_new, v)
        residual, rise = xp.where(better, residual_new, residual), xp.where(better, rise_new, rise)
        sse = xp.where(better, sse_new, sse)
        damping = xp.where(better, damping / 8, damping * 6).clip(1e-12, 1e12)
        if on_host(settled) and bool(xp.all(settled)):
            break
    # At a bound, or if the optimum is at infinite log-odds, steps continue without reducing the error.
    steady = halfway - sse <= 1e-3 * sse + 1e-18
    return u, v, sse, (settled | steady) & xp.isfinite(sse)
