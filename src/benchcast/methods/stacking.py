"""Average several forecasts by how they do on models they were not shown, and calibrate the average there.

Everything works on the log-odds scale, where an average of weights times losses is again weights times losses.
Axes: R judged models, C candidates, S sets of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.folds import family_balanced
from benchcast.law import bent, fit_bend, fit_laws, sigmoid
from benchcast.records import Bools, Floats

SHARE_STEPS = 300
# What a bend must save of the error of left-out families, over their number. In planted worlds with a plain sigmoid it
# saves more than that by chance in one task of a hundred (experiments/log/bends.py).
BEND_PAYS = 0.3


@dataclass(frozen=True, slots=True)
class Judged:
    """Log-odds of models under candidates that had not seen them, with what they really scored."""

    log_odds: Floats  # R × C
    q: Floats  # accuracy above chance, 0 to 1
    families: npt.NDArray[np.str_]
    validation: Bools  # whether a row is of a model kept for validation; the others are of families left out in turn

    def weight(self, hidden: Bools | None = None) -> Floats:
        """Weights of the rows, 1 in all: every family the same, left-out and validation models half each."""
        out = np.zeros(len(self.q))
        parts = [rows for rows in (~self.validation, self.validation) if rows.any()]
        for rows in parts:
            seen = rows if hidden is None else rows & ~hidden
            out[seen] = family_balanced(self.families[seen]) / len(parts)
        return out


def choose_shares(judged: Judged, weight: Floats) -> Floats:
    """Share of each candidate: the mix of log-odds that errs least on models it was not shown (S × C).

    Once for every row of weights (S × R). Exponentiated gradient steps from shares that already favour good
    candidates. Stopping early keeps shares spread where the data cannot tell candidates apart.
    """
    log_odds, q = judged.log_odds, judged.q
    error = weight @ (sigmoid(log_odds) - q[:, None]) ** 2
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
class Stack:
    """The averaged forecast: shares of the candidates, and what makes their mix right on unseen models."""

    share: Floats  # C
    slope: float
    offset: float
    bend: tuple[float, ...]  # see `law.bent`; () where it does not pay
    saved: float  # by the bend, of the error of left-out families; kept or not
    nested: Floats  # R: log-odds of each row under shares and calibration chosen without it; NaN for rows never hidden


def stack(judged: Judged, hidden: Sequence[Bools]) -> Stack:
    """Average and calibrate on all judged models, and once more without each hidden set of them.

    Errors of models that had a say in the choice would be too small, the more so the fewer models there are.
    """
    alone = len(hidden) <= 2  # of two sets, one alone cannot choose
    weights = np.stack([judged.weight(), *(judged.weight(None if alone else own) for own in hidden)])
    shares = choose_shares(judged, weights)
    (slope, offset, bend), *others = (_calibrate(judged, *pair) for pair in zip(shares, weights, strict=True))
    straight, nested = (np.full(len(judged.q), np.nan) for _ in range(2))
    for own, share, (steeper, higher, other) in zip(hidden, shares[1:], others, strict=True):
        straight[own] = steeper * (judged.log_odds[own] @ share) + higher
        nested[own] = bent(straight[own], other)
    saved = 1 - _error(judged, nested) / max(_error(judged, straight), 1e-300)
    if saved <= BEND_PAYS / len(hidden):  # it would only follow noise, and carry badly to larger models
        bend, nested = (), straight
    return Stack(shares[0], slope, offset, bend, saved, nested)


def _calibrate(judged: Judged, share: Floats, weight: Floats) -> tuple[float, float, tuple[float, ...]]:
    """Slope, offset and bend that make the averaged log-odds of unseen models right once more.

    Averages of penalised fits are a little too flat; and real scores seldom follow a sigmoid to its ends: weak models
    get a few items by luck of form, strong ones trip over a few for ever. Unseen models tell by how much.
    """
    rows = weight > 0
    log_odds, q, weight = judged.log_odds[rows] @ share, judged.q[rows], weight[rows]
    law = fit_laws(log_odds, q, np.asarray(0.0), weight=weight)
    usable = bool(law.converged) and 0 < float(law.slope) < np.inf
    slope, offset = (float(law.slope), float(law.offset)) if usable else (1.0, 0.0)
    return slope, offset, fit_bend(slope * log_odds + offset, q, weight)


def _error(judged: Judged, log_odds: Floats) -> float:
    """Squared error on families left out in turn, every family counting the same."""
    rows = ~judged.validation & np.isfinite(log_odds)
    return float(family_balanced(judged.families[rows]) @ (sigmoid(log_odds[rows]) - judged.q[rows]) ** 2)
