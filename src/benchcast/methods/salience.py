"""The method `salience`: non-negative token weights that generalise to unseen families.

Several forms of weights are fitted side by side (see `candidates`). Each form forecasts training families that it did
not see, and the validation models where there are any. The forecast averages the forms on the log-odds scale by these
out-of-fold errors and is calibrated on the same models. The average has non-negative weights and one monotone law, so
a lower loss never lowers a forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchcast.dataset import Dataset, Fold
from benchcast.methods.averaging import Pool, averaged_fit, build_pools, larger, noted
from benchcast.methods.stacking import stack
from benchcast.task_fit import TaskFit


def salience(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Non-negative weights and a law, per fold and task."""
    return [[fit_pool(pool) for pool in row] for row in build_pools(dataset, folds, of_stack=False)]


def fit_pool(pool: Pool) -> TaskFit:
    """The fit of one task; of a pool that has more, the non-negative candidates alone are averaged."""
    pool = pool.nonnegative()
    averaged = stack(pool.out_of_fold(), line=1.0)
    notes = {"shares": larger(pool.named_shares(averaged)), "bend_saves": noted(averaged.saved)}
    return replace(averaged_fit(pool, "salience", *pool.weighted_loss(averaged), averaged.nested), notes=notes)
