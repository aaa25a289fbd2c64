"""Average several forecasts by how they do on models they were not shown, and calibrate the average there.

Everything works on the log-odds scale, where an average of weights times losses is again weights times losses.
Axes: R judged models, C candidates, S sets of weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.folds import family_balanced
from benchcast.law import MonotoneCalibration, fit_laws, fit_monotone_calibration, sigmoid
from benchcast.records import Bools, Floats, Ints

SHARE_STEPS = 300
LEAST_ERROR = 1e-12  # squared; below this there is only rounding
# What a bend must save of the error of left-out families, over their number. In planted worlds with a plain sigmoid it
# saves more than that by chance in one task of twenty (lab/log/bends.py).
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

    def weight(self, hidden: Bools | None = None) -> Floats:
        """Weight of each row, 1 in all: families and stronger models half each, sets and families alike within."""
        out = np.zeros(len(self.q))
        shown = np.ones(len(self.q), bool) if hidden is None else ~hidden
        stronger = [shown & (self.hidden_set == k) for k in np.unique(self.hidden_set[~self.of_families])]
        kinds = [[shown & self.of_families], stronger]
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
        """Calibrated, but for the bend."""
        return self.slope * log_odds + self.offset

    def curved(self, log_odds: Floats) -> Floats:
        """Calibrated, with the bend."""
        return self.curve(self.straight(log_odds)) if self.curve else self.straight(log_odds)


@dataclass(frozen=True, slots=True)
class Stack:
    """The averaged forecast: shares of the candidates, and what makes their mix right on unseen models."""

    share: Floats  # C
    calibration: Calibration  # without a bend where it does not pay
    saved: float  # by the bend, of the error of left-out families, kept or not; NaN where they have none
    nested: Floats  # R: log-odds of hidden rows; of three sets or more, averaged and calibrated without their own


def stack(unseen: OutOfFoldLogOdds, *, line: bool) -> Stack:
    """Average and calibrate on all out-of-fold rows, and once more without the models of each hidden set.

    Errors of models that took part in the selection would be too small, the more so the fewer models there are.
    `line` fits slope and offset of the averaged log-odds, too: averages of penalised fits are a little too flat.
    """
    everyone = unseen.weight()
    sets = np.unique(unseen.hidden_set)
    alone = len(sets) < 3  # of two sets, one alone cannot select
    others = [everyone if alone else unseen.weight(unseen.of_models_in(k)) for k in sets]
    others = [weight if weight.any() else everyone for weight in others]
    share, *shares = choose_shares(unseen, np.stack([everyone, *others]))
    calibration = _calibrate(unseen, share, everyone, line=line)
    saved = _curve_saves(unseen, share, line=line)
    families = len(np.unique(unseen.families[unseen.of_families]))
    keep_curve = families > 2 and saved > MIN_CALIBRATION_GAIN / families  # otherwise a curve would follow noise
    nested = np.full(len(unseen.q), np.nan)
    for k, other_share, weight in zip(sets, shares, others, strict=True):
        rows = unseen.hidden_set == k
        without = _calibrate(unseen, other_share, weight, line=line)
        mixed = unseen.log_odds[rows] @ other_share
        nested[rows] = without.curved(mixed) if keep_curve else without.straight(mixed)
    return Stack(share, calibration if keep_curve else replace(calibration, curve=None), saved, nested)


def _curve_saves(unseen: OutOfFoldLogOdds, share: Floats, *, line: bool) -> float:
    """Share of the squared error that a curve saves on hidden sets that it was not fitted on; NaN without an error.

    All sets have the same shares, because shares without a set change the error by more than a curve does. Stronger
    models still take part with their families: a curve that has never seen them cannot serve them.
    """
    mixed, everyone = unseen.log_odds @ share, unseen.weight()
    straight, curved = (np.full(len(mixed), np.nan) for _ in range(2))
    for k in np.unique(unseen.hidden_set):
        rows = unseen.hidden_set == k
        weight = np.where(rows, 0.0, everyone)
        if not weight.any():
            return np.nan
        without = _calibrate(unseen, share, weight / weight.sum(), line=line)
        straight[rows], curved[rows] = without.straight(mixed[rows]), without.curved(mixed[rows])
    plain, with_curve = (float(everyone @ (sigmoid(x) - unseen.q) ** 2) for x in (straight, curved))
    return 1 - with_curve / plain if plain > LEAST_ERROR else np.nan


def _calibrate(unseen: OutOfFoldLogOdds, share: Floats, weight: Floats, *, line: bool) -> Calibration:
    """Line and monotone curve from hidden models: scores plateau above chance and below 1, a sigmoid does not."""
    rows = weight > 0
    log_odds, q, weight = unseen.log_odds[rows] @ share, unseen.q[rows], weight[rows]
    straight = Calibration(1.0, 0.0)
    if line:
        law = fit_laws(log_odds, q, np.asarray(0.0), weight=weight)
        if not bool(law.converged) or not 0 < float(law.slope) < np.inf:
            return straight
        straight = Calibration(float(law.slope), float(law.offset))
    return replace(straight, curve=fit_monotone_calibration(straight.straight(log_odds), q, weight))
