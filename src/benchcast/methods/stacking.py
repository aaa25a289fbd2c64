"""Average several forecasts by how they do on models they were not shown, and calibrate the average there.

Everything works on the log-odds scale, where an average of weights times losses is again weights times losses.
Axes: R out-of-fold rows, C candidates, S sets of weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.folds import family_balanced
from benchcast.law import MonotoneCalibration, fit_laws, fit_monotone_calibrations, sigmoid
from benchcast.records import Bools, Floats, Ints

SHARE_STEPS = 300
LEAST_ERROR = 1e-12  # squared; below this there is only rounding
# What a curve must save of the error of left-out families, over their number. In synthetic worlds with a plain sigmoid
# it saves more than that by chance in one task of twenty (lab/log/bends.py).
MIN_CALIBRATION_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class OutOfFoldLogOdds:
    """Log-odds of hidden models under candidates that did not see them, with the scores of these models.

    A model may be hidden several times, and has one row for each: with its family, and among stronger models.
    """

    log_odds: Floats  # R × C
    q: Floats  # accuracy above chance, 0 to 1
    families: npt.NDArray[np.str_]
    model: Ints  # index of the row's model
    hidden_set: Ints  # index of the set that the model was hidden with
    family_sets: int  # the first so many sets are left-out families, the rest are stronger models

    @property
    def of_families(self) -> Bools:
        """Rows of models that were hidden with their family."""
        return np.asarray(self.hidden_set < self.family_sets)

    def weight(self, hidden: Bools | None = None, *, stronger: bool = True) -> Floats:
        """Weight of each row, 1 in all: families and stronger models half each, sets and families alike within.

        Without `stronger`, rows of families alone. Rows in `hidden` weigh nothing.
        """
        out = np.zeros(len(self.q))
        shown = np.ones(len(self.q), bool) if hidden is None else ~hidden
        sets = np.unique(self.hidden_set[~self.of_families & stronger])
        kinds = [[shown & self.of_families], [shown & (self.hidden_set == k) for k in sets]]
        filled = [[rows for rows in kind if rows.any()] for kind in kinds]
        filled = [kind for kind in filled if kind]
        for kind in filled:
            for rows in kind:
                out[rows] = family_balanced(self.families[rows]) / len(kind) / len(filled)
        return out

    def of_models_in(self, hidden_set: int) -> Bools:
        """All rows of the models of one hidden set, those of other sets included."""
        return np.isin(self.model, self.model[self.hidden_set == hidden_set])


def choose_shares(unseen: OutOfFoldLogOdds, weight: Floats) -> Floats:
    """Share of each candidate: the mix of log-odds that errs least on models it was not shown (S × C).

    Once for every row of weights (S × R). Exponentiated gradient steps from shares that already favour good
    candidates. Stopping early keeps shares spread where the data cannot tell candidates apart.
    """
    log_odds, q = unseen.log_odds, unseen.q
    error = np.maximum(weight @ (sigmoid(log_odds) - q[:, None]) ** 2, LEAST_ERROR)
    share = (error / error.min(axis=1, keepdims=True)) ** -2.0
    share /= share.sum(axis=1, keepdims=True)
    for _ in range(SHARE_STEPS):
        s = sigmoid(share @ log_odds.T)
        slope = (weight * (s - q) * s * (1 - s)) @ log_odds
        step = slope - (slope * share).sum(axis=1, keepdims=True)
        share = share * np.exp(-0.15 * step / (np.abs(step).max(axis=1, keepdims=True) + 1e-300))
        share /= share.sum(axis=1, keepdims=True)
    return share


@dataclass(frozen=True, slots=True)
class Calibration:
    """What makes averaged log-odds of unseen models right once more."""

    slope: float
    offset: float
    curve: MonotoneCalibration | None = None

    def straight(self, log_odds: Floats) -> Floats:
        """Calibrated, but for the curve."""
        return self.slope * log_odds + self.offset

    def curved(self, log_odds: Floats) -> Floats:
        """Calibrated, with the curve."""
        return self.curve(self.straight(log_odds)) if self.curve else self.straight(log_odds)


@dataclass(frozen=True, slots=True)
class Stack:
    """The averaged forecast: shares of the candidates, and what makes their mix right on unseen models."""

    share: Floats  # C
    calibration: Calibration  # without a curve where it does not pay
    saved: float  # by the curve, of the error of left-out families, kept or not; NaN where they have none
    nested: Floats  # R: log-odds of hidden rows; of three sets or more, averaged and calibrated without their own


def stack(unseen: OutOfFoldLogOdds, *, stronger: bool = True, line: float = 0.0) -> Stack:
    """Average and calibrate on all out-of-fold rows, and once more without the models of each hidden set.

    Errors of models that took part in the selection would be too small, the more so the fewer models there are.

    Parameters
    ----------
    unseen : rows of hidden models
    stronger : whether stronger models take part in the selection, or left-out families alone
    line : share that is kept of a line through the averaged log-odds, 0 to 1: averages of penalised fits are a little
        too flat, but few models cannot say by how much
    """
    everyone = unseen.weight(stronger=stronger)
    sets = np.unique(unseen.hidden_set)
    alone = len(sets) < 3  # of two sets, one alone cannot select
    others = [everyone if alone else unseen.weight(unseen.of_models_in(k), stronger=stronger) for k in sets]
    others = [weight if weight.any() else everyone for weight in others]
    weights = np.stack([everyone, *others])
    shares = choose_shares(unseen, weights)
    mixed = shares @ unseen.log_odds.T
    calibration, *without = _calibrate(unseen, mixed, weights, line)
    saved = _curve_saves(unseen, mixed[0], everyone, line)
    families = len(np.unique(unseen.families[unseen.of_families]))
    keep_curve = families > 2 and saved > MIN_CALIBRATION_GAIN / families  # otherwise a curve would follow noise
    nested = np.full(len(unseen.q), np.nan)
    for k, other, log_odds in zip(sets, without, mixed[1:], strict=True):
        rows = unseen.hidden_set == k
        nested[rows] = other.curved(log_odds[rows]) if keep_curve else other.straight(log_odds[rows])
    return Stack(shares[0], calibration if keep_curve else replace(calibration, curve=None), saved, nested)


def _curve_saves(unseen: OutOfFoldLogOdds, mixed: Floats, everyone: Floats, line: float) -> float:
    """Share of the squared error that a curve saves on hidden sets that it was not fitted on; NaN without an error.

    All sets have the same shares, because shares without a set change the error by more than a curve does. Stronger
    models still take part with their families: a curve that has never seen them cannot serve them.
    """
    sets = np.unique(unseen.hidden_set[everyone > 0])
    weights = np.stack([np.where(unseen.hidden_set == k, 0.0, everyone) for k in sets])
    if not weights.any(axis=1).all():
        return np.nan
    weights /= weights.sum(axis=1, keepdims=True)
    straight, curved = (np.zeros(len(mixed)) for _ in range(2))
    calibrations = _calibrate(unseen, np.broadcast_to(mixed, weights.shape), weights, line)
    for k, without in zip(sets, calibrations, strict=True):
        rows = unseen.hidden_set == k
        straight[rows], curved[rows] = without.straight(mixed[rows]), without.curved(mixed[rows])
    plain, with_curve = (float(everyone @ (sigmoid(x) - unseen.q) ** 2) for x in (straight, curved))
    return 1 - with_curve / plain if plain > LEAST_ERROR else np.nan


def _calibrate(unseen: OutOfFoldLogOdds, mixed: Floats, weights: Floats, line: float) -> list[Calibration]:
    """Line and monotone curve of every row of log-odds and weights (S × R), from the rows of `unseen` that weigh.

    Scores plateau above chance and below 1, a sigmoid does not. Without a usable line there is no curve.
    """
    slope, offset, usable = np.ones(len(mixed)), np.zeros(len(mixed)), np.ones(len(mixed), bool)
    if line:
        laws = fit_laws(mixed, np.broadcast_to(unseen.q, mixed.shape), np.zeros(len(mixed)), weight=weights)
        usable = laws.converged & (laws.slope > 0) & np.isfinite(laws.slope)
        slope = np.where(usable, 1 + line * (laws.slope - 1), 1.0)
        offset = np.where(usable, line * laws.offset, 0.0)
    curves = fit_monotone_calibrations(slope[:, None] * mixed + offset[:, None], unseen.q, weights)
    kept = [curve if on else None for curve, on in zip(curves, usable, strict=True)]
    return [Calibration(*parts) for parts in zip(slope.tolist(), offset.tolist(), kept, strict=True)]
