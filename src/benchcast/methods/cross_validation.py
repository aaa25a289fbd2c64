"""Choose between forms of a forecast on training families left out in turn, and say how far the chosen one misses.

Axes: I sets of learning models, C candidates, M models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.dataset import Dataset
from benchcast.folds import family_balanced, inner_folds, left_out
from benchcast.records import Bools, Floats
from benchcast.task_fit import OutOfFoldErrors

Forecasts = Callable[[Sequence[Bools]], Floats]  # sets of learning models → forecasts of all models (I × C × M)


@dataclass(frozen=True, slots=True)
class CandidateSelection:
    """The candidate that errs least on left-out families, and the errors of one chosen without them."""

    best: int
    out_of_fold: OutOfFoldErrors


def select_candidate(forecasts: Forecasts, dataset: Dataset, observed: Floats, known: Bools) -> CandidateSelection:
    """Leave each family of the known models out in turn; every family counts the same."""
    families = dataset.groups
    hidden = inner_folds(families, known)
    kind = left_out(families, known)
    if len(hidden) < 2:
        return CandidateSelection(0, OutOfFoldErrors.none(kind))
    forecast = forecasts([known & ~h for h in hidden])
    errors = np.concatenate([forecast[i][:, h] - observed[h] for i, h in enumerate(hidden)], axis=1)
    who = np.concatenate([families[h] for h in hidden])
    part = np.repeat(np.arange(len(hidden)), [h.sum() for h in hidden])
    out_of_fold = np.empty(len(who))
    for i in range(len(hidden)):  # a candidate chosen by a family's own errors would err too little on it
        others = part != i
        out_of_fold[~others] = errors[_least(errors[:, others], who[others])][~others]
    return CandidateSelection(_least(errors, who), OutOfFoldErrors.of(dataset, hidden, out_of_fold, kind))


def _least(errors: Floats, families: npt.NDArray[np.str_]) -> int:
    """The candidate (row of errors) with the least squared error; every family counts the same."""
    return int(np.argmin(errors**2 @ family_balanced(families)))
