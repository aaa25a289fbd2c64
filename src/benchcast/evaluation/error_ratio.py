"""Squared error of one method divided by that of another over tasks, with an interval over families.

Errors of models of one family are correlated, so a family is one observation: a task's error is the mean over families
of their mean squared error. The interval is from leaving out each family in turn (the jackknife of the log ratio), with
Student's t. Where one family carries most of the error the jackknife is too narrow, so the error of the mean difference
is used if it is larger.
Axes: T tasks, F families of held-out models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.records import Floats

FEWEST_FAMILIES = 5  # with fewer, all families may favour one method by chance
LEAST_ERROR = 1e-12  # lower bound of squared errors, because zero has no logarithm
SAME = 1e-9  # smaller differences of log errors are rounding errors


class Held(Protocol):
    """Forecasts of held-out models on one task, with their scores."""

    @property
    def families(self) -> npt.NDArray[np.str_]: ...

    @property
    def observed(self) -> Floats: ...

    @property
    def forecast(self) -> Floats: ...


@dataclass(frozen=True, slots=True)
class ErrorRatio:
    """Squared error of one method divided by that of another, summarised over tasks in three ways.

    Families weigh equally in all three. Where they disagree about which method errs less, none is better.
    """

    value: float  # geometric mean over tasks
    low: float  # of its interval
    high: float
    median: float  # over tasks
    summed: float  # errors summed over tasks, then divided
    families: int  # of held-out models, on the task that has fewest

    @property
    def agree(self) -> bool:
        """Whether the three are on the same side of 1."""
        signs = np.sign([_log(x) for x in (self.value, self.median, self.summed)])
        return bool((signs == signs[0]).all())

    @property
    def clear(self) -> bool:
        """Whether there are enough families for an interval, it excludes 1, and the three summaries agree."""
        return self.families >= FEWEST_FAMILIES and not self.low <= 1 <= self.high and self.agree

    def text(self) -> str:
        """The ratio with its interval, or with the reason why there is none."""
        if self.families < FEWEST_FAMILIES:
            few = f"{self.families} held-out famil{'y is' if self.families == 1 else 'ies are'} too few for an interval"
            return f"{self.value:.2f} ({few})"
        return f"{self.value:.2f} ({level_text()} interval over families {self.low:.2f} – {self.high:.2f})"


def gain_rows(gains: Mapping[str, ErrorRatio]) -> list[tuple[str, ...]]:
    """Method, geometric mean, interval, median and sum of errors of each gain, as text."""
    return [
        (
            method,
            f"{g.value:.2f}",
            f"{g.low:.2f} – {g.high:.2f}" if g.families >= FEWEST_FAMILIES else "–",
            f"{g.median:.2f}",
            f"{g.summed:.2f}",
        )
        for method, g in gains.items()
    ]


def _log(ratio: float) -> float:
    log = float(np.log(ratio))
    return 0.0 if abs(log) < SAME else log


def error_ratio(one: Mapping[str, Held], other: Mapping[str, Held]) -> ErrorRatio:
    """Squared error of one method divided by that of another.

    Parameters
    ----------
    one, other : held-out forecasts of the same models, by task

    Returns
    -------
    the ratio over all tasks, with an interval over families
    """
    names = np.unique(np.concatenate([held.families for held in one.values()]))
    squares = np.stack([[_family_squares(held, names) for held in by_task.values()] for by_task in (one, other)])
    errors = np.maximum(np.nanmean(squares, axis=2), LEAST_ERROR)  # method × T
    logs = np.log(errors[0] / errors[1])
    families = int(np.isfinite(squares[0]).sum(axis=1).min())
    reach = np.nan
    if families >= 2:
        reach = _standard_error(squares) * float(stdtrit(families - 1, (1 + DEFAULT_LEVEL) / 2))
    return ErrorRatio(
        value=float(np.exp(logs.mean())),
        low=float(np.exp(logs.mean() - reach)),
        high=float(np.exp(logs.mean() + reach)),
        median=float(np.exp(np.median(logs))),
        summed=float(errors[0].sum() / errors[1].sum()),
        families=families,
    )


def _family_squares(held: Held, names: npt.NDArray[np.str_]) -> Floats:
    """Mean squared error of each family; NaN for one without models."""
    index = np.searchsorted(names, held.families)
    models = np.bincount(index, minlength=len(names))
    squares = np.bincount(index, weights=(held.forecast - held.observed) ** 2, minlength=len(names))
    return np.divide(squares, models, where=models > 0, out=np.full(len(names), np.nan))


def _standard_error(squares: Floats) -> float:
    """Standard error of the log ratio from squared errors (method × T × F): the larger of two.

    The second is that of d_f = mean over tasks of (a_tf − b_tf) ÷ ((A_t + B_t) / 2), A and B the means over families.
    """
    known = np.isfinite(squares)
    kept, count = np.where(known, squares, 0.0), known.sum(axis=2, keepdims=True)
    total = np.maximum(kept.sum(axis=2, keepdims=True), LEAST_ERROR)
    families = kept.shape[2]
    without = np.log(np.maximum((total - kept) / (count - known), LEAST_ERROR)).mean(axis=1)  # method × F
    jackknife = without[0] - without[1]
    variance = (families - 1) / families * float(((jackknife - jackknife.mean()) ** 2).sum())
    level = (total / count).mean(axis=0)  # T × 1
    apart = (kept[0] - kept[1] - known[0] * (total[0] - total[1]) / count[0]) / level / count[0]
    scale = families / (families - 1)
    return math.sqrt(max(variance, scale * float((apart.mean(axis=0) ** 2).sum())))
