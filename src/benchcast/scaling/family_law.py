"""Fit each family's capability as a power law and estimate how its error grows with extrapolation distance.

A law reads params and tokens, or FLOPs; the form with the smaller error on hidden models (the largest, and the latest
checkpoints) is used. The same hidden models, pooled over families, give the drift: the error per unit of log distance
that the law's own uncertainty does not explain, one value for larger models and one for longer training. A task's fit
then gives the accuracy, with an interval for the errors of both steps. Pure.
Axes: P points (models of one family) or targets, J inputs, K nodes of the distribution of capability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import stdtrit

from benchcast.choices import DEFAULT_LEVEL
from benchcast.forecasts.intervals import ScoreDistribution, locate, score_distribution
from benchcast.methods.interval_width import from_angle
from benchcast.methods.power_law import PowerLaw, fit_power_law
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats

SIZE_AND_TOKENS, COMPUTE = FORMS = ("params and tokens", "compute")  # inputs of a law
FEWEST = {SIZE_AND_TOKENS: 7, COMPUTE: 4}  # points that a law needs; it has five or three parameters
FEWEST_VALUES = 3  # distinct values that a law needs of each input
HOLDOUT_KINDS = ("largest", "latest")
NEAR = 0.05  # log distance below which a hidden point is not used for the drift
# Drift of families of the zoo (0 to 0.14 in size, 0 to 0.5 in training), and the number of families that it counts as.
USUAL_DRIFT, USUAL_WEIGHT = 0.1, 0.25
NODES = 201  # equally likely values of the distribution of capability
BISECTIONS = 40  # of the range of scores, for a quantile


@dataclass(frozen=True, slots=True)
class ScalePoints:
    """Sizes, training tokens and training compute of models; NaN if unknown."""

    params: Floats
    tokens: Floats
    flops: Floats

    def __len__(self) -> int:
        return len(self.flops)

    def take(self, rows: Bools) -> ScalePoints:
        """The points with true entries in `rows`."""
        return ScalePoints(self.params[rows], self.tokens[rows], self.flops[rows])

    def inputs(self, form: str) -> Floats:
        """Logs of the inputs of a form of law (P × J)."""
        x = np.column_stack([self.params, self.tokens] if form == SIZE_AND_TOKENS else [self.flops])
        return np.log(x, where=x > 0, out=np.full(x.shape, np.nan))

    def known(self, form: str) -> Bools:
        """Mask of points that have all inputs of a form of law."""
        return np.asarray(np.isfinite(self.inputs(form)).all(axis=1))

    def supports(self, form: str) -> bool:
        """Whether there are enough points and distinct values for a form of law."""
        x = self.inputs(form)
        known = bool(len(x)) and bool(np.isfinite(x).all())
        return known and len(x) >= FEWEST[form] and all(len(np.unique(c)) >= FEWEST_VALUES for c in x.T)


def hide_largest(points: ScalePoints) -> Bools:
    """Mask of the models of the largest size, or of the most compute if sizes are unknown or all equal."""
    size = points.params if np.isfinite(points.params).all() and np.ptp(points.params) > 0 else points.flops
    return np.asarray(size == np.nanmax(size))


def hide_latest(points: ScalePoints) -> Bools:
    """Mask of the last checkpoint of each size that has at least three."""
    out = np.zeros(len(points), bool)
    for size in np.unique(points.params):
        in_size = np.flatnonzero(points.params == size)
        tokens = points.tokens[in_size]
        if len(np.unique(tokens)) >= FEWEST_VALUES:
            out[in_size[tokens == tokens.max()]] = True
    return out


HOLDOUT_RULES = {"largest": hide_largest, "latest": hide_latest}


def distances(known: ScalePoints, target: ScalePoints, form: str) -> Floats:
    """Log distances of targets beyond the known points, in size and in training length (P × 2).

    Training length is compared with the longest run of the nearest known size. A law of compute has only the first
    distance.
    """
    out = np.zeros((len(target), 2))
    if form == COMPUTE:
        out[:, 0] = np.log(target.flops / known.flops.max())
        return np.maximum(out, 0)
    sizes = np.unique(known.params)
    nearest = sizes[np.abs(np.log(target.params[:, None] / sizes)).argmin(axis=1)]
    longest = np.array([known.tokens[known.params == size].max() for size in nearest])
    out[:, 0] = np.log(target.params / sizes[-1])
    out[:, 1] = np.log(target.tokens / longest)
    return np.maximum(out, 0)


@dataclass(frozen=True, slots=True)
class HoldoutErrors:
    """Errors of a family's law on hidden points."""

    error: Floats  # of log capability
    spread: Floats  # standard deviation that the law itself predicts
    distance: Floats  # log distances (P × 2)


@dataclass(frozen=True, slots=True)
class Drift:
    """Error per unit of log distance beyond the laws' own uncertainty, over all families of a study."""

    size: float  # root mean square over families; NaN if no model could be hidden
    training: float
    groups: int  # number of independent observations

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the errors."""
        return max(self.groups - 1, 1)

    @property
    def both(self) -> Floats:
        """Drift in size and in training length; an unknown one is replaced by the other."""
        pair = np.array([self.size, self.training])
        pair = np.where(np.isfinite(pair), pair, pair[::-1])
        return np.where(np.isfinite(pair), pair, 0.0)


@dataclass(frozen=True, slots=True)
class FamilyLaw:
    """The power law of one family's capability and its errors on hidden points."""

    form: str
    law: PowerLaw
    points: ScalePoints
    holdout: Mapping[str, HoldoutErrors]  # by kind

    def log_loss(self, target: ScalePoints) -> Floats:
        """Log capability that the law predicts at the targets."""
        return self.law.log_loss(target.inputs(self.form))

    def uncertainty(self, target: ScalePoints, drift: Drift) -> tuple[Floats, Floats]:
        """Standard deviation of the predicted log capability, and its degrees of freedom.

        The variance is the sum of the law's own and of the drift with distance. The degrees of freedom are combined
        by the Welch–Satterthwaite equation: the first rests on many points, the second on few families.
        """
        law_variance = self.law.spread(target.inputs(self.form)) ** 2
        drift_variance = ((distances(self.points, target, self.form) * drift.both) ** 2).sum(axis=1)
        drift_variance *= 1 + 1 / max(drift.groups, 1)  # prediction variance: the drift is itself an estimate
        freedom = (law_variance + drift_variance) ** 2 / (
            law_variance**2 / self.law.freedom + drift_variance**2 / drift.freedom
        )
        return np.sqrt(law_variance + drift_variance), freedom


def fit_family(points: ScalePoints, log_loss: Floats, *, allowed: Sequence[str] = FORMS) -> FamilyLaw | None:
    """The family's law in the form with the smallest error on hidden points; None if there are too few points.

    Parameters
    ----------
    points : the family's models
    log_loss : log capability of each (P)
    allowed : forms of law to try

    Returns
    -------
    the law with its errors on hidden points, or None
    """
    best: tuple[float, str, dict[str, HoldoutErrors]] | None = None
    for form in allowed:
        rows = points.known(form)
        usable, loss = points.take(rows), log_loss[rows]
        if not usable.supports(form):
            continue
        errors = {
            kind: m
            for kind in HOLDOUT_KINDS
            if (m := holdout_errors(usable, loss, form, hidden=HOLDOUT_RULES[kind](usable))) is not None
        }
        # Infinite if no point could be hidden, so that the first form is kept.
        total = float(np.mean([float(np.mean(m.error**2)) for m in errors.values()])) if errors else np.inf
        if best is None or total < best[0]:
            best = (total, form, errors)
    if best is None:
        return None
    _, form, holdout = best
    rows = points.known(form)
    usable = points.take(rows)
    law = fit_power_law(usable.inputs(form), log_loss[rows])
    return FamilyLaw(form=form, law=law, points=usable, holdout=holdout)


def holdout_errors(points: ScalePoints, log_loss: Floats, form: str, *, hidden: Bools) -> HoldoutErrors | None:
    """Errors on the hidden points of a law fitted without them; None if too few points remain or none is hidden."""
    known = points.take(~hidden)
    if not hidden.any() or not known.supports(form):
        return None
    law = fit_power_law(known.inputs(form), log_loss[~hidden])
    target = points.take(hidden)
    x = target.inputs(form)
    return HoldoutErrors(
        error=law.log_loss(x) - log_loss[hidden], spread=law.spread(x), distance=distances(known, target, form)
    )


def estimate_drift(laws: Sequence[FamilyLaw]) -> Drift:
    """Estimate the drift from the families' errors on hidden points; every family has the same weight.

    A squared error e² exceeds the law's own variance s² by drift² · d². Least squares over points gives drift² =
    Σ (e² − s²) d² / Σ d⁴, in which far points count most, because e² − s² of near ones says little of the drift. The
    usual drift counts as a part of one more family at the mean distance, because by chance most e² may lie below s².
    """
    excess: list[list[float]] = [[], []]  # Σ (e² − s²) d² of each family, in size and in training length
    fourth: list[list[float]] = [[], []]  # Σ d⁴
    for law in laws:
        for way, kind in enumerate(HOLDOUT_KINDS):
            if kind not in law.holdout:
                continue
            held, axis = law.holdout[kind], 0 if law.form == COMPUTE else way
            far = held.distance[:, axis] > NEAR
            if far.any():
                squared = held.distance[far, axis] ** 2
                excess[axis].append(float(np.mean((held.error[far] ** 2 - held.spread[far] ** 2) * squared)))
                fourth[axis].append(float(np.mean(squared**2)))
    size, training = (_drift(*sums) for sums in zip(excess, fourth, strict=True))
    return Drift(size=size, training=training, groups=sum(bool(law.holdout) for law in laws))


def _drift(excess: Sequence[float], fourth: Sequence[float]) -> float:
    """Drift from the sums of each family; NaN without any."""
    if not fourth:
        return float("nan")
    usual = USUAL_WEIGHT * float(np.mean(fourth))
    square = (sum(excess) + USUAL_DRIFT**2 * usual) / (sum(fourth) + usual)
    return float(np.sqrt(max(square, 0.0)))


@dataclass(frozen=True, slots=True)
class ExtrapolatedForecast:
    """Forecasts of one task by one family's law, one entry for each target, with prediction intervals."""

    accuracy: Floats
    low: Floats
    high: Floats
    capability: Floats
    capability_low: Floats
    capability_high: Floats
    nodes: ScoreDistribution  # of the score at each of the equally likely capabilities (P × K)

    def at_target(self, i: int) -> dict[str, float]:
        """The forecast at target number `i`, as plain numbers."""
        return {f.name: float(getattr(self, f.name)[i]) for f in fields(self) if f.name != "nodes"}

    def probability_above(self, score: float) -> Floats:
        """Probability that the observed score at each target is at least `score` (0..1)."""
        return np.asarray(self.nodes.probability_above(score).mean(axis=1))


def extrapolate_task(fit: TaskFit, law: FamilyLaw, drift: Drift, *, target: ScalePoints) -> ExtrapolatedForecast:
    """Forecast accuracy at targets, with intervals that include the errors of both steps.

    Log capability has a Student-t distribution around the law. Each capability gives an accuracy, with the error of
    forecasts of unseen families around it. The interval covers `DEFAULT_LEVEL` of it. The errors are assumed to be
    independent: the first concerns the losses of larger models, the second the score at a given loss.

    Parameters
    ----------
    fit : the task's fit
    law : the family's law of capability
    drift : growth of the law's error with distance
    target : the P points to forecast

    Returns
    -------
    forecasts of accuracy and capability with the ends of their prediction intervals, each an array of P floats
    """
    middle = law.log_loss(target)
    deviation, freedom = law.uncertainty(target, drift)
    quantiles = (np.arange(NODES) + 0.5) / NODES
    capability = np.exp(middle[:, None] + deviation[:, None] * stdtrit(freedom[:, None], quantiles))
    nodes = score_distribution(fit, fit.law.accuracy(capability), locate(fit, capability))
    low, high = (mixture_quantile(nodes, p) for p in ((1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2))
    reach = deviation * stdtrit(freedom, (1 + DEFAULT_LEVEL) / 2)
    return ExtrapolatedForecast(
        accuracy=fit.law.accuracy(np.exp(middle)),
        low=low,
        high=high,
        capability=np.exp(middle),
        capability_low=np.exp(middle - reach),
        capability_high=np.exp(middle + reach),
        nodes=nodes,
    )


def mixture_quantile(nodes: ScoreDistribution, share: float) -> Floats:
    """Quantile of the score at each target, for equally likely capabilities (targets × nodes)."""
    unknown = np.asarray(~np.isfinite(nodes.above).all(axis=1))
    low, high = np.zeros(len(unknown)), np.full(len(unknown), np.pi / 2)  # as angles
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_low = nodes.probability_above(from_angle(middle)[:, None]).mean(axis=1) > 1 - share
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return np.where(unknown, np.nan, from_angle((low + high) / 2))
