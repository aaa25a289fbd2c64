"""The method `salience`: non-negative weights that are meant to hold for a family never seen.

Several forms of weights are fitted side by side: the baselines' own (all tokens, the task's own texts,
their answers) and mixes of token clusters and directions, free or shrunk towards one of those, at several
strengths. Each is judged on training families it was not shown. The forecast averages the forms on
the log-odds scale by that judgement, and an average of weights times losses is again weights times
losses: the result is one non-negative weight per token and one sigmoid law.
Axes: M models, K columns, T tasks, C candidates, I inner folds, P problems (task × inner fold × candidate).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from benchcast.evidence import Evidence, Fold, HonestErrors, TaskFit
from benchcast.folds import inner_folds
from benchcast.law import SigmoidLaw, sigmoid
from benchcast.methods.basis import Basis, build_basis
from benchcast.methods.nonnegative import fit_nonnegative
from benchcast.records import Bools, Floats, Task

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # relative to the total spread of the penalised columns
ANCHORS = ("none", "all", "source", "answer")
BLOCKS = (("cluster",), ("side",), ("cluster", "source", "answer"))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One form of weights: a free anchor, and penalised columns around it."""

    anchor: str  # kind of the column that is not penalised
    block: tuple[str, ...]  # kinds of the penalised columns
    strength: float

    @property
    def name(self) -> str:
        """For notes and messages."""
        return self.anchor if not self.block else f"{self.anchor} + {'/'.join(self.block)} at {self.strength:g}"


def candidates() -> list[Candidate]:
    """Every form that is tried."""
    plain = [Candidate(anchor, (), 0.0) for anchor in ANCHORS if anchor != "none"]
    return plain + [Candidate(*form) for form in product(ANCHORS, BLOCKS, STRENGTHS)]


def salience(evidence: Evidence, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """One non-negative weight vector and law per fold and task."""
    basis, x = build_basis(evidence)
    return [_fit_fold(evidence, fold, basis, x) for fold in folds]


def _fit_fold(evidence: Evidence, fold: Fold, basis: Basis, x: Floats) -> list[TaskFit]:
    return [_fit_task(evidence, fold, t, basis, x) for t in range(len(evidence.tasks))]


def usable_candidates(basis: Basis, task: Task, sources: Sequence[str]) -> list[Candidate]:
    """The candidates whose columns this study has for this task."""
    return [
        form
        for form in candidates()
        if all((basis.kinds == kind).any() for kind in form.block)
        and (form.anchor == "none" or _free(basis, task, sources, form).any())
    ]


def _free(basis: Basis, task: Task, sources: Sequence[str], form: Candidate) -> Bools:
    own = np.isin(basis.source, [i for i, s in enumerate(sources) if s in task.sources])
    free: Bools = (basis.kinds == form.anchor) & (own | (form.anchor == "all")) & (basis.mass > 0)
    return free


def _tied(basis: Basis, form: Candidate) -> Bools:
    return np.isin(basis.kinds, form.block) & (basis.mass > 0)


def penalties(basis: Basis, z: Floats, task: Task, sources: Sequence[str], forms: Sequence[Candidate]) -> Floats:
    """Penalty of each column under each candidate (K × C); infinite where it may not be used."""
    variance = z.var(axis=0)
    out = np.full((z.shape[1], len(forms)), np.inf)
    for c, form in enumerate(forms):
        tied = _tied(basis, form)
        out[tied, c] = form.strength * variance[tied].sum()
        out[_free(basis, task, sources, form), c] = 0.0
    return out


@dataclass(frozen=True, slots=True)
class _Judged:
    """Log-odds of models under candidates that had not seen them, with what they really scored."""

    log_odds: Floats  # rows × C
    q: Floats  # accuracy above chance, 0 to 1
    families: npt.NDArray[np.str_]
    weight: float  # what these rows count for in all


def _fit_task(evidence: Evidence, fold: Fold, t: int, basis: Basis, x: Floats) -> TaskFit:
    task, observed = evidence.tasks[t], evidence.accuracy[t]
    known = fold.seen & np.isfinite(observed)
    q = np.clip((np.where(known, observed, task.chance) - task.chance) / (1 - task.chance), 0.0, 1.0)
    centre, scale = x[known].mean(axis=0), np.sqrt(np.maximum(basis.mass, 1e-9))
    z = (x - centre) / scale
    forms = usable_candidates(basis, task, evidence.tokens.sources)
    penalty = penalties(basis, z[known], task, evidence.tokens.sources, forms)
    hidden = inner_folds(evidence.families, known)
    validation = known & fold.validation
    held = [np.zeros_like(known), *hidden, *([validation] if validation.any() else [])]
    log_odds, theta, b = _fit_candidates(z, q, [known & ~h for h in held], penalty, evidence.families)
    unseen = np.concatenate([log_odds[h, i] for i, h in enumerate(hidden, start=1)])
    order = np.concatenate([np.flatnonzero(h) for h in hidden])
    judged = [_Judged(unseen, q[order], evidence.families[order], 1.0)]
    if validation.any():
        judged.append(_Judged(log_odds[validation, -1], q[validation], evidence.families[validation], 1.0))
    share = choose_shares(judged)
    mixed = theta @ share / scale
    weights = basis.weights(mixed)
    capability = np.asarray(evidence.nats @ weights, np.float64) / evidence.characters
    forecast = task.chance + (1 - task.chance) * sigmoid(unseen @ share)
    return TaskFit(
        task=task,
        method="salience",
        reads="nats",
        weights=weights,
        unit=evidence.characters,
        law=SigmoidLaw(-1.0, float(b @ share + centre @ mixed), task.chance),
        honest=HonestErrors(forecast - observed[order], evidence.families[order], "training families left out in turn"),
        range=(float(capability[known].min()), float(capability[known].max())),
        notes={"shares": {f.name: round(float(s), 4) for f, s in zip(forms, share, strict=True) if s > 0.01}},
    )


def _fit_candidates(
    z: Floats, q: Floats, learn: Sequence[Bools], penalty: Floats, families: npt.NDArray[np.str_]
) -> tuple[Floats, Floats, Floats]:
    """Fit every candidate on every set of models in one go.

    Returns log-odds (M × sets × C), and the mix and offset of the first set (K × C, C).
    """
    omega = np.zeros((len(learn), len(z)))
    for weight, rows in zip(omega, learn, strict=True):
        weight[rows] = _family_balanced(families[rows])
    n_forms = penalty.shape[1]
    wide = np.repeat(omega, n_forms, axis=0).T
    theta, b = fit_nonnegative(z, np.broadcast_to(q[:, None], wide.shape), wide, np.tile(penalty, len(learn)))
    log_odds = (b - z @ theta).reshape(len(z), len(learn), n_forms)
    return log_odds, theta[:, :n_forms], b[:n_forms]


def choose_shares(judged: Sequence[_Judged], *, steps: int = 300) -> Floats:
    """Share of each candidate: the mix of log-odds that errs least on models it was not shown.

    Exponentiated gradient steps from shares that already favour good candidates; every family counts
    the same. Stopping early keeps shares spread where the data cannot tell candidates apart.
    """
    log_odds = np.concatenate([j.log_odds for j in judged])
    q = np.concatenate([j.q for j in judged])
    weight = np.concatenate([j.weight * _family_balanced(j.families) for j in judged])
    error = weight @ (sigmoid(log_odds) - q[:, None]) ** 2
    share = (error / error.min()) ** -2.0
    share /= share.sum()
    for _ in range(steps):
        s = sigmoid(log_odds @ share)
        slope = log_odds.T @ (weight * (s - q) * s * (1 - s))
        step = slope - slope @ share
        share = share * np.exp(-0.15 * step / (np.abs(step).max() + 1e-300))
        share /= share.sum()
    return share


def _family_balanced(families: npt.NDArray[np.str_]) -> Floats:
    """Weights that give every family the same total, 1 in all."""
    _, family, counts = np.unique(families, return_inverse=True, return_counts=True)
    return 1.0 / (counts[family] * len(counts))
