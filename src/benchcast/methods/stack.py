"""The method `stack`: an average of all candidates that read losses, by their errors on hidden models.

The pool holds the non-negative forms of `salience`, the same forms fitted with more weight on stronger models, and
signed directions of partial least squares (see `candidates`).
Each candidate forecasts two kinds of models that it did not see: whole training families, and models stronger than all
that it learned from. The stronger models are the validation models where the study names some, else the strongest
training models.

The pool gives two averages, each one weighted loss with signed weights and a monotone law. The first minimises the
error on both kinds of hidden models, with half of the weight on each. The second minimises the error on left-out
families alone; only this one has the candidates that lean to stronger models (LOG.md). The forecast of a model inside
the range of the training models is the mean of the two log-odds. The forecast of a model stronger than all of them is
the first. Among the strongest training models the share of the second decreases linearly to 0.
Axes: M models, R out-of-fold rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchcast.dataset import Dataset, Fold
from benchcast.law import SigmoidLaw
from benchcast.methods.averaging import Pool, averaged_fit, build_pools, larger, noted
from benchcast.methods.problem import Problem
from benchcast.methods.stacking import Stack
from benchcast.methods.stacking import stack as average
from benchcast.records import Floats
from benchcast.task_fit import Fade, Member, Members, TaskFit

PRIOR_MODELS = 40  # number of models at which half of the correction of slope and offset is applied
IN_RANGE = 0.5  # share of the average of left-out families, for models inside the range of the training models


def stack(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Signed weights and laws, per fold and task."""
    return [[fit_pool(pool) for pool in row] for row in build_pools(dataset, folds, of_stack=True)]


def fit_pool(pool: Pool) -> TaskFit:
    """The fit of one task."""
    problem, plain = pool.problem, pool.without("leaning")
    mean_loss = problem.mean_loss
    assert mean_loss is not None
    count = int(problem.known.sum())
    on_both = average(plain.out_of_fold())
    on_families = average(pool.out_of_fold(), stronger=False, line=count / (count + PRIOR_MODELS))
    members = Members(
        (
            Member(*plain.weighted_loss(on_both), share=1 - IN_RANGE, share_of_stronger=1.0),
            Member(*pool.weighted_loss(on_families), share=IN_RANGE, share_of_stronger=0.0),
        ),
        Fade.of(mean_loss[problem.known]),
    )
    weights = np.stack([-m.law.slope * m.share * m.weights for m in members.members]).sum(axis=0).astype(np.float32)
    law = SigmoidLaw(-1.0, 0.0, problem.task.chance)
    nested = _nested(problem, mean_loss, on_both, on_families)
    of_stronger, of_families = plain.named_shares(on_both), pool.named_shares(on_families)
    shares = {n: (1 - IN_RANGE) * of_stronger.get(n, 0.0) + IN_RANGE * s for n, s in of_families.items()}
    notes = {
        "shares": larger(shares),
        "shares_of_stronger": larger(of_stronger),
        "bend_saves": noted(on_both.saved),
    }
    return replace(averaged_fit(pool, "stack", weights, law, nested, average=members), notes=notes)


def _nested(problem: Problem, mean_loss: Floats, on_both: Stack, on_families: Stack) -> Floats:
    """Log-odds of the out-of-fold rows (R), mixed by the strength of each model relative to the models learned from."""
    learned = problem.learning[1:]
    stronger = [
        Fade.of(mean_loss[rows])(mean_loss[hidden]) for rows, hidden in zip(learned, problem.hidden, strict=True)
    ]
    share = IN_RANGE * (1 - np.concatenate(stronger))
    return np.asarray((1 - share) * on_both.nested + share * on_families.nested)
