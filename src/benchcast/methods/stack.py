"""The method `stack`: everything that reads losses, averaged by its errors on the questions it will be asked.

The pool holds the non-negative forms of `salience` and signed directions of partial least squares (see `candidates`).
Each candidate forecasts two kinds of models that it did not see: whole training families, and models stronger than all
that it learned from. The stronger models are the validation models where the study names some, else the strongest
training models. Both kinds weigh half. The average is one weighted loss with signed weights and one monotone law.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchcast.dataset import Dataset, Fold
from benchcast.methods.averaging import average_candidates
from benchcast.methods.basis import build_basis
from benchcast.methods.candidates import nonnegative_candidates, signed_candidates
from benchcast.methods.inputs import keep_on_device
from benchcast.methods.problem import Problem
from benchcast.predictors import VIEWS
from benchcast.task_fit import TaskFit


def stack(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Signed weights and a law, per fold and task."""
    basis, sums = build_basis(keep_on_device(dataset))
    mean_loss = sums["nats"][:, basis.kinds == "all"][:, 0]

    def fit(fold: Fold, t: int) -> TaskFit:
        problem = Problem.of(dataset, fold, t, mean_loss=mean_loss)
        pool = [
            candidates(problem, basis, view, sums[view])
            for candidates in (nonnegative_candidates, signed_candidates)
            for view in VIEWS
        ]
        return average_candidates(problem, basis, pool, "stack", line=False)

    return [[fit(fold, t) for t in range(len(dataset.tasks))] for fold in folds]
