"""Average several forecasts by how they do on models they were not shown, and calibrate the average there.

Everything works on the log-odds scale, where an average of weights times losses is again weights times losses.
Axes: C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.law import bent, fit_bend, fit_laws, sigmoid
from benchcast.records import Bools, Floats

SHARE_STEPS = 300


@dataclass(frozen=True, slots=True)
class Judged:
    """Log-odds of models under candidates that had not seen them, with what they really scored."""

    log_odds: Floats  # rows × C
    q: Floats  # accuracy above chance, 0 to 1
    families: npt.NDArray[np.str_]

    def without(self, rows: Bools) -> Judged:
        """The other rows."""
        return Judged(self.log_odds[~rows], self.q[~rows], self.families[~rows])


def choose_shares(judged: Sequence[Judged]) -> Floats:
    """Share of each candidate: the mix of log-odds that errs least on models it was not shown.

    Exponentiated gradient steps from shares that already favour good candidates; every family counts
    the same. Stopping early keeps shares spread where the data cannot tell candidates apart.
    """
    log_odds = np.concatenate([j.log_odds for j in judged])
    q = np.concatenate([j.q for j in judged])
    weight = np.concatenate([family_balanced(j.families) for j in judged])
    error = weight @ (sigmoid(log_odds) - q[:, None]) ** 2
    share = (error / error.min()) ** -2.0
    share /= share.sum()
    for _ in range(SHARE_STEPS):
        s = sigmoid(log_odds @ share)
        slope = log_odds.T @ (weight * (s - q) * s * (1 - s))
        step = slope - slope @ share
        share = share * np.exp(-0.15 * step / (np.abs(step).max() + 1e-300))
        share /= share.sum()
    return share


def calibrate(judged: Sequence[Judged], share: Floats) -> tuple[float, float, tuple[float, ...]]:
    """Slope, offset and bend that make the averaged log-odds of unseen models right once more.

    Averages of penalised fits are a little too flat; and real scores seldom follow a sigmoid to its ends: weak models
    get a few items by luck of form, strong ones trip over a few for ever. Unseen models tell by how much.
    """
    log_odds = np.concatenate([j.log_odds @ share for j in judged])
    q = np.concatenate([j.q for j in judged])
    weight = np.concatenate([family_balanced(j.families) for j in judged]) / len(judged)
    law = fit_laws(log_odds, q, np.asarray(0.0), weight=weight)
    usable = bool(law.converged) and 0 < float(law.slope) < np.inf
    slope, offset = (float(law.slope), float(law.offset)) if usable else (1.0, 0.0)
    return slope, offset, fit_bend(slope * log_odds + offset, q, weight)


def nested_log_odds(judged: Sequence[Judged], hidden: Sequence[Bools]) -> Floats:
    """Log-odds of each hidden set of the first judged models, under shares and calibration chosen without it.

    Errors of models that had a say in the choice would be too small, the more so the fewer models there are.
    """
    first = judged[0]
    out = np.empty(len(first.q))
    for own in hidden:
        rest = [first.without(own), *judged[1:]] if len(hidden) > 2 else judged  # of two, one alone cannot choose
        share = choose_shares(rest)
        steeper, higher, bend = calibrate(rest, share)
        out[own] = bent(steeper * (first.log_odds[own] @ share) + higher, bend)
    return out


def family_balanced(families: npt.NDArray[np.str_]) -> Floats:
    """Weights that give every family the same total, 1 in all."""
    _, family, counts = np.unique(families, return_inverse=True, return_counts=True)
    return 1.0 / (counts[family] * len(counts))
