"""From candidates to one fit: average their log-odds out of fold, and store each average as one weighted loss.

Axes: M models, R out-of-fold rows, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.folds import left_out
from benchcast.formatting import nan_to_none
from benchcast.law import SigmoidLaw
from benchcast.methods.basis import Basis
from benchcast.methods.candidates import Fitted
from benchcast.methods.problem import Problem
from benchcast.methods.stacking import OutOfFoldLogOdds, Stack
from benchcast.predictors import VIEWS
from benchcast.records import Floats
from benchcast.task_fit import Members, OutOfFoldErrors, TaskFit, weighted_loss

SMALLEST_SHARE = 0.01  # that is written down


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one task, fitted with and without each hidden set."""

    problem: Problem
    basis: Basis
    fitted: Sequence[Fitted]

    def out_of_fold(self) -> OutOfFoldLogOdds:
        """Log-odds of every hidden model under candidates that did not see it."""
        hidden = self.problem.hidden
        log_odds = np.concatenate([f.log_odds for f in self.fitted], axis=2)  # M × learning sets × C
        model = np.concatenate([np.flatnonzero(rows) for rows in hidden])
        return OutOfFoldLogOdds(
            log_odds=np.concatenate([log_odds[rows, i] for i, rows in enumerate(hidden, start=1)]),  # 0: all models
            q=self.problem.q[model],
            families=self.problem.dataset.groups[model],
            model=model,
            hidden_set=np.repeat(np.arange(len(hidden)), [rows.sum() for rows in hidden]),
            family_sets=len(self.problem.families),
        )

    def weighted_loss(self, averaged: Stack) -> tuple[npt.NDArray[np.float32], SigmoidLaw]:
        """Token weights of each view (views × N), and the law of the averaged, calibrated log-odds."""
        parts = np.split(averaged.share, np.cumsum([len(f.names) for f in self.fitted])[:-1])
        shared = list(zip(self.fitted, parts, strict=True))
        nothing = np.zeros(len(self.basis.kinds))
        mixes = [sum((f.mix @ part for f, part in shared if f.view == view), nothing) for view in VIEWS]
        calibration, chance = averaged.calibration, self.problem.task.chance
        offset = calibration.offset + calibration.slope * sum(float(f.offset @ part) for f, part in shared)
        law = SigmoidLaw(-calibration.slope, offset, chance, calibration=calibration.curve)
        return np.stack([self.basis.weights(mix) for mix in mixes]), law

    def named_shares(self, share: Floats) -> dict[str, float]:
        """The larger shares by candidate, for notes."""
        names = [name for f in self.fitted for name in f.names]
        return {n: round(float(s), 4) for n, s in zip(names, share, strict=True) if s > SMALLEST_SHARE}


def averaged_fit(
    pool: Pool,
    method: str,
    weights: npt.NDArray[np.float32],
    law: SigmoidLaw,
    nested: Floats,
    *,
    average: Members | None = None,
) -> TaskFit:
    """The fit of an average; `nested` are the log-odds of the out-of-fold rows, averaged without their own set."""
    problem, dataset = pool.problem, pool.problem.dataset
    if average is None:
        capability = weighted_loss(dataset.nats, VIEWS, weights) / dataset.characters
    else:
        capability = -average.log_odds(dataset.nats, VIEWS, dataset.characters)
    known = problem.known
    observed = np.concatenate([problem.observed[rows] for rows in problem.hidden])
    errors = np.split(problem.accuracy(nested) - observed, [sum(int(rows.sum()) for rows in problem.families)])
    return TaskFit(
        task=problem.task,
        method=method,
        reads=VIEWS,
        weights=weights,
        unit=dataset.characters,
        law=law,
        out_of_fold=OutOfFoldErrors.of(dataset, problem.families, errors[0], left_out(dataset.groups, known)),
        stronger=OutOfFoldErrors.of(dataset, problem.stronger, errors[1], "stronger models"),
        range=(float(capability[known].min()), float(capability[known].max())),
        average=average,
    )


def noted(saved: float) -> float | None:
    """What a curve saves of the out-of-fold error, for notes."""
    return nan_to_none(round(saved, 4))
