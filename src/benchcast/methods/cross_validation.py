"""Select a candidate by leave-one-family-out cross-validation, with out-of-fold errors of the whole selection.

Axes: I sets of learning models, C candidates, M models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.dataset import Dataset
from benchcast.folds import family_balanced, inner_folds, left_out
from benchcast.methods.task_fit import OutOfFoldErrors
from benchcast.records import Bools, Floats

Forecasts = Callable[[Sequence[Bools]], Floats]  # sets of learning models → forecasts of all models (I × C × M)


@dataclass(frozen=True, slots=True)
class CandidateSelection:
    """The candidate with the least error on left-out families; errors of candidates selected without each family."""

    best: int
    out_of_fold: OutOfFoldErrors


def select_candidate(forecasts: Forecasts, dataset: Dataset, observed: Floats, known: Bools) -> CandidateSelection:
    """Leave each family of the known models out in turn; all families have equal weight."""
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
    for i in range(len(hidden)):  # selecting on a family's errors would underestimate its error
        others = part != i
        out_of_fold[~others] = errors[_least(errors[:, others], who[others])][~others]
    return CandidateSelection(_least(errors, who), OutOfFoldErrors.of(dataset, hidden, out_of_fold, kind=kind))


def _least(errors: Floats, families: npt.NDArray[np.str_]) -> int:
    """The candidate (row of errors) with the least squared error; all families have equal weight."""
    return int(np.argmin(errors**2 @ family_balanced(families)))
