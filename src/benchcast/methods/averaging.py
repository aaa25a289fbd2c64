"""From candidates to one fit: average their log-odds out of fold, and store the average as one weighted loss.

Axes: M models, R out-of-fold rows, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchcast.folds import left_out
from benchcast.formatting import nan_to_none
from benchcast.law import SigmoidLaw
from benchcast.methods.basis import Basis
from benchcast.methods.candidates import Fitted
from benchcast.methods.problem import Problem
from benchcast.methods.stacking import OutOfFoldLogOdds, Stack, stack
from benchcast.predictors import VIEWS
from benchcast.records import Floats
from benchcast.task_fit import OutOfFoldErrors, TaskFit, weighted_loss

SMALLEST_SHARE = 0.01  # that is written down


def out_of_fold_log_odds(problem: Problem, log_odds: Floats) -> OutOfFoldLogOdds:
    """Log-odds of every hidden model under candidates that did not see it; `log_odds` is M × learning sets × C."""
    hidden = problem.hidden
    model = np.concatenate([np.flatnonzero(rows) for rows in hidden])
    return OutOfFoldLogOdds(
        log_odds=np.concatenate([log_odds[rows, i] for i, rows in enumerate(hidden, start=1)]),  # 0 learned from all
        q=problem.q[model],
        families=problem.dataset.groups[model],
        model=model,
        hidden_set=np.repeat(np.arange(len(hidden)), [rows.sum() for rows in hidden]),
        family_sets=len(problem.families),
    )


def average_candidates(problem: Problem, basis: Basis, pool: Sequence[Fitted], method: str, *, line: bool) -> TaskFit:
    """One fit from a pool of candidates; `line` as in `stacking.stack`."""
    unseen = out_of_fold_log_odds(problem, np.concatenate([f.log_odds for f in pool], axis=2))
    averaged = stack(unseen, line=line)
    weights, offset = _one_weighted_loss(basis, pool, averaged)
    dataset, known = problem.dataset, problem.known
    capability = weighted_loss(dataset.nats, VIEWS, weights) / dataset.characters
    errors = problem.accuracy(averaged.nested) - problem.observed[unseen.model]
    of_families, kind = unseen.of_families, left_out(dataset.groups, known)
    names = [name for f in pool for name in f.names]
    shares = {n: round(float(s), 4) for n, s in zip(names, averaged.share, strict=True) if s > SMALLEST_SHARE}
    return TaskFit(
        task=problem.task,
        method=method,
        reads=VIEWS,
        weights=weights,
        unit=dataset.characters,
        law=SigmoidLaw(
            -averaged.calibration.slope, offset, problem.task.chance, calibration=averaged.calibration.curve
        ),
        out_of_fold=OutOfFoldErrors.of(dataset, problem.families, errors[of_families], kind),
        stronger=OutOfFoldErrors.of(dataset, problem.stronger, errors[~of_families], "stronger models"),
        range=(float(capability[known].min()), float(capability[known].max())),
        notes={"shares": shares, "bend_saves": nan_to_none(round(averaged.saved, 4))},  # of the out-of-fold error
    )


def _one_weighted_loss(basis: Basis, pool: Sequence[Fitted], averaged: Stack) -> tuple[npt.NDArray[np.float32], float]:
    """Token weights of each view (views × N) and the offset of the averaged, calibrated log-odds."""
    parts = np.split(averaged.share, np.cumsum([len(f.names) for f in pool])[:-1])
    shared = list(zip(pool, parts, strict=True))
    mixes = [sum((f.mix @ part for f, part in shared if f.view == view), np.zeros(len(basis.kinds))) for view in VIEWS]
    offset = sum(float(f.offset @ part) for f, part in shared)
    calibration = averaged.calibration
    return np.stack([basis.weights(mix) for mix in mixes]), calibration.offset + calibration.slope * offset
