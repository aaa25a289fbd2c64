"""Average the log-odds of candidates by their out-of-fold errors, and store each average as one weighted loss.

Axes: M models, R out-of-fold rows, C candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from benchcast.dataset import Dataset, Fold
from benchcast.folds import MANY_MODELS, left_out
from benchcast.formatting import nan_to_none
from benchcast.law import SigmoidLaw
from benchcast.methods.basis import Basis, build_basis
from benchcast.methods.candidates import FEWEST_TO_LEAN, Fitted, Kind, nonnegative_candidates, signed_candidates
from benchcast.methods.features import keep_on_device
from benchcast.methods.problem import Problem
from benchcast.methods.stacking import OutOfFoldLogOdds, Stack
from benchcast.predictors import VIEWS, LossView
from benchcast.records import Floats
from benchcast.task_fit import Members, OutOfFoldErrors, TaskFit, weighted_loss

SMALLEST_SHARE = 0.01  # smaller shares are not stored in the notes


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one task, fitted with and without each hidden set."""

    problem: Problem
    basis: Basis
    fitted: Sequence[Fitted]

    def nonnegative(self) -> Pool:
        """The pool of `salience`: its candidates alone, and no strongest training models as a hidden set."""
        problem = self.problem.without_strongest()
        sets = len(problem.learning)
        kept = self.without("leaning", "signed").fitted
        return replace(self, problem=problem, fitted=[f.first_sets(sets) for f in kept])

    def without(self, *kinds: Kind) -> Pool:
        """The pool without some kinds of candidates."""
        return replace(self, fitted=[f for f in self.fitted if f.kind not in kinds])

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

    def named_shares(self, averaged: Stack) -> dict[str, float]:
        """The share of each candidate by its name."""
        names = [name for f in self.fitted for name in f.names]
        return dict(zip(names, averaged.share.tolist(), strict=True))


def build_pools(dataset: Dataset, folds: Sequence[Fold], *, of_stack: bool) -> Iterator[list[Pool]]:
    """For each fold, the pool of every task: the candidates of `salience`, or all of them with `of_stack`.

    For `stack` the strongest training models are hidden, too, where a fold has no validation models.
    """
    basis, sums = build_basis(keep_on_device(dataset))
    mean_loss = sums[LossView.NATS][:, basis.kinds == "all"][:, 0] if of_stack else None

    def pool(fold: Fold, t: int) -> Pool:
        problem = Problem.of(dataset, fold, t, mean_loss=mean_loss)
        kinds: list[Callable[[Problem, Basis, str, Floats], Fitted]] = [nonnegative_candidates]
        if of_stack and FEWEST_TO_LEAN <= problem.known.sum() <= MANY_MODELS:
            kinds.append(partial(nonnegative_candidates, mean_loss=mean_loss))
        if of_stack:
            kinds.append(signed_candidates)
        fitted = [candidates(problem, basis, view, sums[view]) for candidates in kinds for view in VIEWS]
        return Pool(problem, basis, fitted)

    return ([pool(fold, t) for t in range(len(dataset.tasks))] for fold in folds)


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


def larger(shares: Mapping[str, float]) -> dict[str, float]:
    """The larger shares by candidate, for notes."""
    return {name: round(share, 4) for name, share in shares.items() if share > SMALLEST_SHARE}


def noted(saved: float) -> float | None:
    """Share of the out-of-fold error that a calibration curve saves, for notes."""
    return nan_to_none(round(saved, 4))
