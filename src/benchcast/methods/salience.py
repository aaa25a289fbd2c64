"""The method `salience`: non-negative weights that are meant to hold for a family never seen.

Several forms of weights are fitted side by side: the baselines' own (all tokens, the task's own texts,
their answers), and mixes of groups of like tokens, free or shrunk towards one of those, at several strengths; each
on losses as they are and on saturated losses. Every form is judged on training families it was not shown, and
on the validation models where there are any. The forecast averages the forms on the log-odds scale by
that judgement and is calibrated on the same unseen models. An average of weights times losses is again
weights times losses, so the result has non-negative weights and one rising law, and a lower loss never
lowers a forecast.
Axes: M models, K groups, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchcast.dataset import Dataset, Fold
from benchcast.devices import place, to_numpy
from benchcast.folds import family_balanced, inner_folds, left_out
from benchcast.formatting import nan_to_none
from benchcast.law import SigmoidLaw, sigmoid
from benchcast.methods.basis import Basis, build_basis
from benchcast.methods.inputs import keep_on_device
from benchcast.methods.nonnegative import fit_nonnegative
from benchcast.methods.stacking import OutOfFoldLogOdds, stack
from benchcast.records import Bools, Floats, Ints, Task
from benchcast.task_fit import VIEWS, OutOfFoldErrors, TaskFit, weighted_loss

ANCHORS = ("all", "source", "answer")  # groups that are not penalised
# Groups of like tokens (see `basis`) with the anchors they are laid around, "" for none, and the strengths of the
# penalty, relative to the total spread of the groups.
MIXES = (
    ("cluster", ("", "source", "answer"), (1e-7, 1e-5, 1e-3)),
    ("kind", ("", "answer"), (1e-6, 1e-4)),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One form of weights: a free anchor, and penalised groups of like tokens around it."""

    view: str
    anchor: str  # "" for none
    groups: str = ""  # "cluster", "kind" or "" for none
    strength: float = 0.0

    @property
    def name(self) -> str:
        """For notes and messages."""
        groups = self.groups and f"{self.groups}s at {self.strength:g}"
        return f"{self.view}: {' + '.join(filter(None, (self.anchor, groups)))}"


def candidates(basis: Basis, task: Task, sources: Sequence[str], view: str) -> list[Candidate]:
    """Every form that is tried, as far as the study has tokens for it."""
    forms = [Candidate(view, anchor) for anchor in ANCHORS]
    for groups, anchors, strengths in MIXES:
        if groups in basis.kinds:
            forms += [Candidate(view, anchor, groups, strength) for anchor, strength in product(anchors, strengths)]
    return [c for c in forms if not c.anchor or _anchor(basis, task, sources, c.anchor).any()]


def _anchor(basis: Basis, task: Task, sources: Sequence[str], kind: str) -> Bools:
    """The anchor's groups: everything, or what belongs to the task's own sources and answers."""
    own = np.isin(basis.source, [i for i, s in enumerate(sources) if s in task.sources])
    own |= basis.task == task.name
    return np.asarray((basis.kinds == kind) & (own | (kind == "all")) & (basis.size > 0))


def penalties(basis: Basis, z: Floats, task: Task, sources: Sequence[str], forms: Sequence[Candidate]) -> Floats:
    """Penalty of each group under each candidate (K × C); infinite where it may not be used."""
    out = np.full((z.shape[1], len(forms)), np.inf)
    for c, form in enumerate(forms):
        if form.groups:
            groups = (basis.kinds == form.groups) & (basis.size > 0)
            out[groups, c] = form.strength * float(z[:, groups].var(axis=0).sum())
        if form.anchor:
            out[_anchor(basis, task, sources, form.anchor), c] = 0.0
    return out


def salience(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """Non-negative weights and a law, per fold and task."""
    basis, sums = build_basis(keep_on_device(dataset))
    problems = [[_Problem.of(dataset, fold, t) for t in range(len(dataset.tasks))] for fold in folds]
    return [[_fit(problem, basis, sums) for problem in row] for row in problems]


@dataclass(frozen=True, slots=True)
class _Problem:
    """One task of one fold: the models to learn from, what they scored, and who of them is hidden in turn."""

    dataset: Dataset
    task: Task
    observed: Floats  # M, NaN where unknown
    known: Bools  # M: seen and scored
    families: list[Bools]  # M each
    validation: Bools  # M

    @classmethod
    def of(cls, dataset: Dataset, fold: Fold, t: int) -> _Problem:
        observed = dataset.accuracy[t]
        known = fold.seen & np.isfinite(observed)
        families = inner_folds(dataset.families, known)
        return cls(dataset, dataset.tasks[t], observed, known, families, known & fold.validation)

    @property
    def hidden(self) -> list[Bools]:
        """Sets of models that candidates are judged on: each family, and the validation models where there are any."""
        return [*self.families, *([self.validation] if self.validation.any() else [])]

    @property
    def q(self) -> Floats:
        """Scores above chance, 0 to 1; 0 for models that are not known."""
        chance = self.task.chance
        return np.clip((np.where(self.known, self.observed, chance) - chance) / (1 - chance), 0.0, 1.0)

    def accuracy(self, log_odds: Floats) -> Floats:
        """Log-odds of a score above chance as a score."""
        return np.asarray(self.task.chance + (1 - self.task.chance) * sigmoid(log_odds))


@dataclass(frozen=True, slots=True)
class _Fitted:
    """The candidates of one view, fitted on all known models and on all but each hidden set of them."""

    forms: list[Candidate]
    mix: Floats  # K × C
    offset: Floats  # C
    log_odds: Floats  # M × (1 + hidden sets) × C


def _judge(problem: _Problem, log_odds: Floats) -> tuple[OutOfFoldLogOdds, Ints]:
    """What the candidates that had not seen them say of hidden models, and which models these are."""
    hidden = problem.hidden
    who = np.concatenate([np.flatnonzero(h) for h in hidden])
    unseen = np.concatenate([log_odds[h, i] for i, h in enumerate(hidden, start=1)])  # 0 is of fits on all
    validation = np.arange(len(who)) >= sum(h.sum() for h in problem.families)
    return OutOfFoldLogOdds(unseen, problem.q[who], problem.dataset.families[who], validation), who


def _fit(problem: _Problem, basis: Basis, sums: dict[str, Floats]) -> TaskFit:
    dataset, known = problem.dataset, problem.known
    fitted = [_fit_view(problem, basis, view, sums[view]) for view in VIEWS]
    unseen_odds, who = _judge(problem, np.concatenate([f.log_odds for f in fitted], axis=2))
    averaged = stack(unseen_odds, [h[who] for h in problem.families])
    parts = np.split(averaged.share, np.cumsum([len(f.forms) for f in fitted])[:-1])
    weights = np.stack([basis.weights(f.mix @ part) for f, part in zip(fitted, parts, strict=True)])
    final = averaged.calibration
    offset = final.offset + final.slope * sum(float(f.offset @ p) for f, p in zip(fitted, parts, strict=True))
    capability = weighted_loss(dataset.nats, VIEWS, weights) / dataset.characters
    own = ~unseen_odds.validation
    errors = problem.accuracy(averaged.nested[own]) - problem.observed[who[own]]
    names = [form.name for f in fitted for form in f.forms]
    return TaskFit(
        task=problem.task,
        method="salience",
        reads=VIEWS,
        weights=weights,
        unit=dataset.characters,
        law=SigmoidLaw(-final.slope, offset, problem.task.chance, calibration=final.curve),
        out_of_fold=OutOfFoldErrors(errors, unseen_odds.families[own], left_out(dataset.families, known)),
        range=(float(capability[known].min()), float(capability[known].max())),
        notes={
            "shares": {n: round(float(s), 4) for n, s in zip(names, averaged.share, strict=True) if s > 0.01},
            "bend_saves": nan_to_none(round(averaged.saved, 4)),  # of the error of left-out families
        },
    )


def _fit_view(problem: _Problem, basis: Basis, view: str, x: Floats) -> _Fitted:
    """All candidates of one view on all sets of models, in one go."""
    dataset, task, known = problem.dataset, problem.task, problem.known
    forms = candidates(basis, task, dataset.reference_tokens.sources, view)
    centre, scale = x[known].mean(axis=0), np.sqrt(np.maximum(basis.size, 1))  # so that tokens are penalised alike
    z = (x - centre) / scale
    penalty = penalties(basis, z[known], task, dataset.reference_tokens.sources, forms)
    learn = [known, *(known & ~h for h in problem.hidden)]
    omega = np.zeros((len(learn), len(z)))
    for weight, rows in zip(omega, learn, strict=True):
        weight[rows] = family_balanced(dataset.families[rows])
    wide = np.repeat(omega, len(forms), axis=0).T.astype(np.float32)
    target = np.broadcast_to(problem.q[:, None], wide.shape).astype(np.float32)
    arrays = (z, target, wide, np.tile(penalty, len(learn)))
    theta, b = map(to_numpy, fit_nonnegative(*(place(x, dataset.device, "float32") for x in arrays)))
    log_odds = (b - z @ theta).reshape(len(z), len(learn), len(forms))
    mix = theta[:, : len(forms)].astype(np.float64) / scale[:, None]
    return _Fitted(forms, mix, b[: len(forms)] + centre @ mix, log_odds)
