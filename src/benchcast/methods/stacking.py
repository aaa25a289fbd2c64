"""Average several forecasts by how they do on models they were not shown, and calibrate the average there.

Everything works on the log-odds scale, where an average of weights times losses is again weights times losses.
Axes: R judged models, C candidates, S sets of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.folds import family_balanced
from benchcast.law import MonotoneCalibration, fit_laws, fit_monotone_calibration, sigmoid
from benchcast.records import Bools, Floats

SHARE_STEPS = 300
LEAST_ERROR = 1e-12  # squared; below this there is only rounding
# What a bend must save of the error of left-out families, over their number. In planted worlds with a plain sigmoid it
# saves more than that by chance in one task of twenty (lab/log/bends.py).
MIN_CALIBRATION_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class OutOfFoldLogOdds:
    """Log-odds of models under candidates that had not seen them, with what they really scored."""

    log_odds: Floats  # R × C
    q: Floats  # accuracy above chance, 0 to 1
    families: npt.NDArray[np.str_]
    validation: Bools  # whether a row is of a model kept for validation; the others are of families left out in turn

    def weight(self, hidden: Bools | None = None) -> Floats:
        """Weights of the rows, 1 in all: every family the same, left-out and validation models half each."""
        out = np.zeros(len(self.q))
        shown = np.ones(len(self.q), bool) if hidden is None else ~hidden
        parts = [rows for rows in (shown & ~self.validation, shown & self.validation) if rows.any()]
        for rows in parts:
            out[rows] = family_balanced(self.families[rows]) / len(parts)
        return out


def choose_shares(unseen_odds: OutOfFoldLogOdds, weight: Floats) -> Floats:
    """Share of each candidate: the mix of log-odds that errs least on models it was not shown (S × C).

    Once for every row of weights (S × R). Exponentiated gradient steps from shares that already favour good
    candidates. Stopping early keeps shares spread where the data cannot tell candidates apart.
    """
    log_odds, q = unseen_odds.log_odds, unseen_odds.q
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


def stack(unseen_odds: OutOfFoldLogOdds, hidden: Sequence[Bools]) -> Stack:
    """Average and calibrate on all judged models, and once more without each hidden set of them.

    Errors of models that had a say in the choice would be too small, the more so the fewer models there are.
    """
    everyone = unseen_odds.weight()
    others = [
        unseen_odds.weight(own) if len(hidden) > 2 else everyone for own in hidden
    ]  # of two, one alone cannot choose
    share, *shares = choose_shares(unseen_odds, np.stack([everyone, *others]))
    straight, curved = (np.full(len(unseen_odds.q), np.nan) for _ in range(2))
    for own, other_share, weight in zip(hidden, shares, others, strict=True):
        without = _calibrate(unseen_odds, other_share, weight)
        straight[own] = without.straight(unseen_odds.log_odds[own] @ other_share)
        curved[own] = without.curved(unseen_odds.log_odds[own] @ other_share)
    calibration, saved = _calibrate(unseen_odds, share, everyone), _saved(unseen_odds, straight, curved)
    families = len(np.unique(unseen_odds.families[~unseen_odds.validation]))
    if families > 2 and saved > MIN_CALIBRATION_GAIN / families:
        return Stack(share, calibration, saved, curved)
    return Stack(share, replace(calibration, curve=None), saved, straight)  # a bend would follow noise, and carry badly


def _calibrate(unseen_odds: OutOfFoldLogOdds, share: Floats, weight: Floats) -> Calibration:
    """Line and bend from unseen models.

    Averages of penalised fits are a little too flat; and real scores seldom follow a sigmoid to its ends: weak models
    get a few items by luck of form, strong ones trip over a few for ever.
    """
    rows = weight > 0
    log_odds, q, weight = unseen_odds.log_odds[rows] @ share, unseen_odds.q[rows], weight[rows]
    law = fit_laws(log_odds, q, np.asarray(0.0), weight=weight)
    if not bool(law.converged) or not 0 < float(law.slope) < np.inf:
        return Calibration(1.0, 0.0)
    line = Calibration(float(law.slope), float(law.offset))
    return replace(line, curve=fit_monotone_calibration(line.straight(log_odds), q, weight))


def _saved(unseen_odds: OutOfFoldLogOdds, straight: Floats, curved: Floats) -> float:
    """Share of the squared error on families left out in turn that a bend saves, every family counting the same."""
    rows = ~unseen_odds.validation & np.isfinite(straight)
    weight = family_balanced(unseen_odds.families[rows])
    plain, with_curve = (float(weight @ (sigmoid(x[rows]) - unseen_odds.q[rows]) ** 2) for x in (straight, curved))
    return 1 - with_curve / plain if plain > LEAST_ERROR else np.nan
