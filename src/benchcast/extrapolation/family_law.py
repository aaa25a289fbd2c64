"""Capability of models that are larger or trained longer than those known, family by family.

Each family gets a power law, in params and tokens where its points tell them apart, else in FLOPs; which of the
two is chosen by hiding the largest models and the latest checkpoints. The same hidden points, pooled over
families, say how fast the error grows with the distance: what the law's own uncertainty leaves unexplained is
put down to a drift per unit of log distance, one towards larger models and one towards longer training. Pure.
Axes: P points (models of one family), J inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.extrapolation.powerlaw import PowerLaw, fit_power_law
from benchcast.records import Bools, Floats

FORMS = ("params and tokens", "compute")
FEWEST = {"params and tokens": 7, "compute": 4}  # points; a law has five parameters, or three
FEWEST_VALUES = 3  # of each input
HOLDOUT_KINDS = ("largest", "latest")
NEAR = 0.05  # in logs: a hidden point nearer than this tells nothing of distance


@dataclass(frozen=True, slots=True)
class ScalePoints:
    """Where models stand; NaN where unknown."""

    params: Floats
    tokens: Floats
    flops: Floats

    def __len__(self) -> int:
        return len(self.flops)

    def take(self, rows: Bools) -> ScalePoints:
        """Some of the points."""
        return ScalePoints(self.params[rows], self.tokens[rows], self.flops[rows])

    def inputs(self, form: str) -> Floats:
        """Logs of what a form of law reads (P × J)."""
        x = np.column_stack([self.params, self.tokens] if form == FORMS[0] else [self.flops])
        return np.log(x, where=x > 0, out=np.full(x.shape, np.nan))

    def known(self, form: str) -> Bools:
        """Which points have all that a form of law reads."""
        return np.asarray(np.isfinite(self.inputs(form)).all(axis=1))

    def supports(self, form: str) -> bool:
        """Whether there are enough points, and enough distinct values, for a form of law."""
        x = self.inputs(form)
        known = bool(len(x)) and bool(np.isfinite(x).all())
        return known and len(x) >= FEWEST[form] and all(len(np.unique(c)) >= FEWEST_VALUES for c in x.T)


def hide_largest(points: ScalePoints) -> Bools:
    """The largest models: all of the largest size, or the one with most compute where sizes are not known."""
    by = points.params if np.isfinite(points.params).all() and np.ptp(points.params) > 0 else points.flops
    return np.asarray(by == np.nanmax(by))


def hide_latest(points: ScalePoints) -> Bools:
    """The last checkpoint of each size that has at least three."""
    out = np.zeros(len(points), bool)
    for size in np.unique(points.params):
        own = np.flatnonzero(points.params == size)
        tokens = points.tokens[own]
        if len(np.unique(tokens)) >= FEWEST_VALUES:
            out[own[tokens == tokens.max()]] = True
    return out


HOLDOUT_RULES = {"largest": hide_largest, "latest": hide_latest}


def distances(known: ScalePoints, target: ScalePoints, form: str) -> Floats:
    """How far targets lie beyond the known points, in logs: in size, and in training (P × 2).

    Training is measured against the longest run of the nearest known size. A law of compute has one
    direction only.
    """
    out = np.zeros((len(target), 2))
    if form == FORMS[1]:
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
    """What a law of one family said of hidden points, and what was there."""

    error: Floats  # of the log loss
    spread: Floats  # what the law itself admits
    distance: Floats  # P × 2


@dataclass(frozen=True, slots=True)
class Drift:
    """Error per unit of log distance that laws do not admit themselves, over all families of a study."""

    size: float  # root mean square over families; NaN where nothing could be hidden
    training: float
    groups: int  # independent observations behind it

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the errors."""
        return max(self.groups - 1, 1)

    @property
    def both(self) -> Floats:
        """Size and training; where one is not known the other stands in."""
        pair = np.array([self.size, self.training])
        pair = np.where(np.isfinite(pair), pair, pair[::-1])
        return np.where(np.isfinite(pair), pair, 0.0)


@dataclass(frozen=True, slots=True)
class FamilyLaw:
    """The law of one family's capability, and how it did on its own hidden points."""

    form: str
    law: PowerLaw
    points: ScalePoints
    holdout: Mapping[str, HoldoutErrors]  # by kind

    def log_loss(self, target: ScalePoints) -> Floats:
        """What it says of other points."""
        return self.law.log_loss(target.inputs(self.form))

    def uncertainty(self, target: ScalePoints, drift: Drift) -> tuple[Floats, Floats]:
        """Standard deviation of that in logs, and its degrees of freedom.

        Variances of the law's own doubt and of the drift with distance add up; so do, after Welch and
        Satterthwaite, their degrees of freedom: many points stand behind the one, families behind the other.
        """
        own = self.law.spread(target.inputs(self.form)) ** 2
        away = ((distances(self.points, target, self.form) * drift.both) ** 2).sum(axis=1)
        away *= 1 + 1 / max(drift.groups, 1)  # a new draw, around a mean that is not exactly known
        freedom = (own + away) ** 2 / (own**2 / self.law.freedom + away**2 / drift.freedom)
        return np.sqrt(own + away), freedom


def fit_family(points: ScalePoints, log_loss: Floats, *, allowed: Sequence[str] = FORMS) -> FamilyLaw | None:
    """The family's law in the form that misses hidden points least; None where there are too few points."""
    best: tuple[float, str, dict[str, HoldoutErrors]] | None = None
    for form in allowed:
        rows = points.known(form)
        own, loss = points.take(rows), log_loss[rows]
        if not own.supports(form):
            continue
        tried = {
            kind: m
            for kind in HOLDOUT_KINDS
            if (m := holdout_errors(own, loss, form, HOLDOUT_RULES[kind](own))) is not None
        }
        if best is None or _total(tried) < best[0]:
            best = (_total(tried), form, tried)
    if best is None:
        return None
    _, form, holdout = best
    rows = points.known(form)
    return FamilyLaw(form, fit_power_law(points.take(rows).inputs(form), log_loss[rows]), points.take(rows), holdout)


def holdout_errors(points: ScalePoints, log_loss: Floats, form: str, hidden: Bools) -> HoldoutErrors | None:
    """What a law without the hidden points says of them; None where too little is left or nothing hidden."""
    known = points.take(~hidden)
    if not hidden.any() or not known.supports(form):
        return None
    law = fit_power_law(known.inputs(form), log_loss[~hidden])
    target = points.take(hidden)
    x = target.inputs(form)
    return HoldoutErrors(law.log_loss(x) - log_loss[hidden], law.spread(x), distances(known, target, form))


def _total(holdout: Mapping[str, HoldoutErrors]) -> float:
    """Mean squared error over the kinds; infinite where nothing could be hidden, so the first form stays."""
    squares = [float(np.mean(m.error**2)) for m in holdout.values()]
    return float(np.mean(squares)) if squares else np.inf


def estimate_drift(laws: Sequence[FamilyLaw]) -> Drift:
    """Pool the families' misses: every family counts the same, however many checkpoints it has."""
    excess: list[list[float]] = [[], []]
    for law in laws:
        for axis, kind in enumerate(HOLDOUT_KINDS):
            one_way = 0 if law.form == FORMS[1] else axis
            squares = _excess(law.holdout.get(kind), one_way)
            if len(squares):
                excess[one_way].append(float(squares.mean()))
    size, training = (float(np.sqrt(np.maximum(np.mean(e), 0.0))) if e else np.nan for e in excess)
    return Drift(size, training, sum(bool(law.holdout) for law in laws))


def _excess(m: HoldoutErrors | None, axis: int) -> Floats:
    """Squared error beyond the admitted one, per squared distance."""
    if m is None:
        return np.empty(0)
    far = m.distance[:, axis] > NEAR
    return (m.error[far] ** 2 - m.spread[far] ** 2) / m.distance[far, axis] ** 2
