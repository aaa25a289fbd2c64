"""Candidates of a weighted loss: weights on groups of tokens, fitted with and without each hidden set of models.

There are three kinds. "Non-negative" candidates are mixes of groups, free or shrunk towards an anchor (all tokens, the
task's own texts, their answers), at several strengths. "Leaning" candidates are the same mixes, fitted with more weight
on stronger models, because no single law holds from the weakest to the strongest model. "Signed" candidates are one to
eight directions of partial least squares. All kinds read plain and saturated losses. All are linear, so that an average
of their log-odds is again one weighted loss.
Axes: M models, K groups, C candidates, L learning sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from benchcast.devices import place, to_numpy
from benchcast.folds import family_balanced
from benchcast.law import clipped_log_odds
from benchcast.methods.basis import Basis
from benchcast.methods.nonnegative import fit_nonnegative
from benchcast.methods.pls import COMPONENTS, regress
from benchcast.methods.problem import Problem
from benchcast.records import Bools, Floats, Task

ANCHORS = ("all", "source", "answer")  # groups that are not penalised
# Groups of similar tokens (see `basis`), the anchors to shrink towards ("" for none), and the strengths of the penalty
# relative to the total variance of the groups.
MIXES = (
    ("cluster", ("", "source", "answer"), (1e-7, 1e-5, 1e-3)),
    ("kind", ("", "answer"), (1e-6, 1e-4)),
)

FEWEST_TO_LEAN = 20  # training models; above `folds.MANY_MODELS` no candidate leans, either, to save time
Kind = Literal["non-negative", "leaning", "signed"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One form of non-negative weights: a free anchor, and penalised groups of similar tokens."""

    view: str
    anchor: str  # "" for none
    groups: str = ""  # "cluster", "kind" or "" for none
    strength: float = 0.0
    leaning: bool = False  # whether stronger models have more weight

    @property
    def name(self) -> str:
        """For notes and messages."""
        groups = self.groups and f"{self.groups}s at {self.strength:g}"
        return f"{self.view}: {' + '.join(filter(None, (self.anchor, groups)))}{', stronger models' * self.leaning}"


@dataclass(frozen=True, slots=True)
class Fitted:
    """Candidates of one view: log-odds = offset − group losses · mix."""

    view: str
    names: list[str]
    mix: Floats  # K × C, learned from all known models
    offset: Floats  # C
    log_odds: Floats  # M × L × C
    kind: Kind

    def first_sets(self, count: int) -> Fitted:
        """The same candidates on the first `count` learning sets."""
        return replace(self, log_odds=self.log_odds[:, :count])


def forms(basis: Basis, task: Task, sources: Sequence[str], view: str, *, leaning: bool = False) -> list[Candidate]:
    """Every non-negative form for which the study has tokens; those that lean have the weakest penalty only."""
    tried = [Candidate(view, anchor) for anchor in ANCHORS]
    for groups, anchors, strengths in MIXES:
        if groups in basis.kinds:
            pairs = product(anchors, strengths[:1] if leaning else strengths)
            tried += [Candidate(view, anchor, groups, strength) for anchor, strength in pairs]
    return [replace(c, leaning=leaning) for c in tried if not c.anchor or _anchor(basis, task, sources, c.anchor).any()]


def _anchor(basis: Basis, task: Task, sources: Sequence[str], kind: str) -> Bools:
    """The anchor's groups: all tokens, or those of the task's own sources and answers."""
    of_task = np.isin(basis.source, [i for i, s in enumerate(sources) if s in task.sources])
    of_task |= basis.task == task.name
    return np.asarray((basis.kinds == kind) & (of_task | (kind == "all")) & (basis.size > 0))


def penalties(basis: Basis, z: Floats, task: Task, sources: Sequence[str], tried: Sequence[Candidate]) -> Floats:
    """Penalty of each group under each candidate (C × K); infinite where the candidate may not use the group."""
    out = np.full((len(tried), z.shape[1]), np.inf)
    for form, row in zip(tried, out, strict=True):
        if form.groups:
            groups = (basis.kinds == form.groups) & (basis.size > 0)
            row[groups] = form.strength * float(z[:, groups].var(axis=0).sum())
        if form.anchor:
            row[_anchor(basis, task, sources, form.anchor)] = 0.0
    return out


def nonnegative_candidates(
    problem: Problem, basis: Basis, view: str, x: Floats, *, mean_loss: Floats | None = None
) -> Fitted:
    """All non-negative forms of one view on all learning sets, in one solve. `x` is the loss on each group (M × K).

    All families have equal weight; with `mean_loss` (M), stronger models have more weight.
    """
    dataset, task, known = problem.dataset, problem.task, problem.known
    leaning = mean_loss is not None
    tried = forms(basis, task, dataset.reference_tokens.sources, view, leaning=leaning)
    centre, scale = x[known].mean(axis=0), np.sqrt(np.maximum(basis.size, 1))  # so that tokens are penalised alike
    z = (x - centre) / scale
    penalty = penalties(basis, z[known], task, dataset.reference_tokens.sources, tried)
    learning = problem.learning
    omega = np.zeros((len(learning), len(z)))
    for weight, rows in zip(omega, learning, strict=True):
        weight[rows] = family_balanced(dataset.groups[rows])
        if mean_loss is not None:
            weight[rows] *= lean_to_stronger(mean_loss[rows])
    omega /= omega.sum(axis=1, keepdims=True)
    wide = np.repeat(omega, len(tried), axis=0)
    arrays = (z, np.broadcast_to(problem.q, wide.shape), wide, np.tile(penalty, (len(learning), 1)))
    theta, b = map(to_numpy, fit_nonnegative(*(place(x, dataset.device, "float32") for x in arrays)))
    log_odds = (b - z @ theta.T).reshape(len(z), len(learning), len(tried))
    mix = theta[: len(tried)].T.astype(np.float64) / scale[:, None]
    offset = b[: len(tried)] + centre @ mix
    kind: Kind = "leaning" if leaning else "non-negative"
    return Fitted(view, [c.name for c in tried], mix, offset, log_odds, kind)


def lean_to_stronger(mean_loss: Floats) -> Floats:
    """Weights that fall by a factor e for every standard deviation of the mean loss above the lowest.

    >>> lean_to_stronger(np.array([3.0, 1.0, 1.0, 3.0])).round(3)
    array([0.135, 1.   , 1.   , 0.135])
    """
    above = mean_loss - mean_loss.min()
    spread = mean_loss.std()
    return np.asarray(np.exp(-above / spread if spread > 0 else 0 * above))


def signed_candidates(problem: Problem, basis: Basis, view: str, x: Floats) -> Fitted:
    """Partial least squares on the clusters of one view, with 1 to 8 components, on all learning sets.

    A set that yields fewer components repeats its last one; a set whose scores do not vary forecasts their mean.
    """
    target = clipped_log_odds(problem.q, 0.0)
    columns = np.flatnonzero((basis.kinds == "cluster") & (basis.size > 0))
    learning = problem.learning
    log_odds = np.empty((len(x), len(learning), COMPONENTS))
    mix, offset = np.zeros((x.shape[1], COMPONENTS)), np.zeros(COMPONENTS)
    for i, rows in enumerate(learning):
        weights, intercepts = regress(x[np.ix_(rows, columns)], target[rows], COMPONENTS)
        if not len(weights):
            weights, intercepts = np.zeros((1, len(columns))), target[rows].mean(keepdims=True)
        picked = np.minimum(np.arange(COMPONENTS), len(weights) - 1)
        log_odds[:, i] = x[:, columns] @ weights[picked].T + intercepts[picked]
        if i == 0:
            mix[columns], offset = -weights[picked].T, intercepts[picked]
    names = [f"{view}: {k + 1} signed direction{'s' * (k > 0)}" for k in range(COMPONENTS)]
    return Fitted(view, names, mix, offset, log_odds, "signed")
