"""Average candidate forecasts by their out-of-fold errors, and calibrate the average on the same hidden models.

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
LEAST_ERROR = 1e-12  # squared; smaller errors are rounding errors
# Share of the error of left-out families that a calibration curve must save, times their number. In synthetic worlds
# with a plain sigmoid a curve saves more by chance in one task of twenty (LOG.md).
MIN_CALIBRATION_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class OutOfFoldLogOdds:
    """Log-odds of hidden models under candidates that did not see them, with the scores of these models.

    A model has one row for each time it was hidden: with its family, and among stronger models.
    """

    log_odds: Floats  # R × C
    q: Floats  # accuracy above chance, 0 to 1
    families: npt.NDArray[np.str_]
    model: Ints  # index of the row's model
    hidden_set: Ints  # index of the set that the model was hidden with
    family_sets: int  # number of sets that are left-out families, which come first; the rest are stronger models

    @property
    def of_families(self) -> Bools:
        """Rows of models that were hidden with their family."""
        return np.asarray(self.hidden_set < self.family_sets)

    def weight(self, hidden: Bools | None = None, *, stronger: bool = True) -> Floats:
        """Weight of each row; the sum is 1.

        Left-out families and stronger models have half of the weight each; within each half, all sets and all families
        have equal weight. Without `stronger`, only rows of left-out families have weight. Rows in `hidden` have none.
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
    """Shares of the candidates that minimise the error of the mixed log-odds on hidden models (S × C).

    One row for every row of weights (S × R). Exponentiated gradient steps start from shares that favour candidates
    with small errors. Stopping early keeps the shares of candidates with similar errors similar.
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
    """A line, and a monotone curve or none, that calibrate averaged log-odds on hidden models."""

    slope: float
    offset: float
    curve: MonotoneCalibration | None = None

    def straight(self, log_odds: Floats) -> Floats:
        """Log-odds calibrated by the line alone."""
        return self.slope * log_odds + self.offset

    def curved(self, log_odds: Floats) -> Floats:
        """Log-odds calibrated by the line and the curve."""
        return self.curve(self.straight(log_odds)) if self.curve else self.straight(log_odds)


@dataclass(frozen=True, slots=True)
class Stack:
    """The averaged forecast: shares of the candidates and the calibration of their mix."""

    share: Floats  # C
    calibration: Calibration  # with a curve only if it saves enough error
    saved: float  # share of the error that the curve saves on hidden sets, used or not; NaN if the error is 0
    nested: Floats  # R: log-odds of hidden rows; from three sets on, shares and calibration are without their own set


def stack(unseen: OutOfFoldLogOdds, *, stronger: bool = True, line: float = 0.0) -> Stack:
    """Average and calibrate on all out-of-fold rows, and once more without the models of each hidden set.

    Errors of models that took part in the selection would be too small, especially with few models.

    Parameters
    ----------
    unseen : rows of hidden models
    stronger : whether stronger models take part in the selection, or left-out families alone
    line : share of the fitted correction of slope and offset that is applied, 0 to 1: averages of penalised fits are
        slightly too flat, and with few models the correction is uncertain
    """
    everyone = unseen.weight(stronger=stronger)
    sets = np.unique(unseen.hidden_set)
    alone = len(sets) < 3  # without one of two sets, a single set would remain
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

    Shares are those of all sets, because shares without a set would change the error by more than a curve does. Only
    the rows of the set itself are left out, so that its models still count in other sets: a curve fitted without any
    stronger model would not cover their range.
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
    """Line and monotone curve of every row of log-odds and weights (S × R), from the rows with weight.

    The curve is needed because scores may plateau above chance and below 1. Without a usable line there is no curve.
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
