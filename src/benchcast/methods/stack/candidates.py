"""Candidates of a weighted loss: combinations of token groups, learned with and without each hidden set of models.

A candidate forecasts the log-odds of a score above chance by

    log-odds = offset − x · mix

where x is a model's loss on each group: a positive mix means that a lower loss is better. All candidates are linear in
x, so that an average of their log-odds is again one weighted loss. There are three kinds, each for every view.

non-negative       min ½ Σ_m ω_m (σ(offset − x_m·mix) − q_m)² + ½ Σ_k p_k mix_k²   over mix ≥ 0 and the offset;
                   families have equal weight in ω. The weights p are 0 for an anchor (all tokens, the task's own
                   texts, or their answers), a penalty for groups of similar tokens, and infinite for all other groups
strength-weighted  the same with ω_m · exp(−(l_m − min l) / sd l), l the mean loss: no single law holds from the
                   weakest to the strongest model. They have the weakest penalty only
signed             partial least squares with 1, 2, … components (Wold, Sjöström and Eriksson 2001) from the clusters to
                   the clipped log-odds of q

Axes: M models, K groups, C candidates, S hidden sets, R rows of hidden models (see `hidden_sets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from benchcast.devices import place, to_numpy
from benchcast.methods.law import clipped_log_odds
from benchcast.methods.pls import regress
from benchcast.methods.stack.hidden_sets import HiddenSet, TaskScores
from benchcast.methods.stack.nonnegative import fit_nonnegative
from benchcast.methods.stack.settings import Anchor, GroupKind, Mix, StackSettings
from benchcast.methods.stack.token_groups import TokenGroups
from benchcast.records import Bools, Floats, Task
from benchcast.splits import family_balanced

CandidateKind = Literal["non-negative", "strength-weighted", "signed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLosses:
    """The losses that candidates are learned from."""

    groups: TokenGroups
    sources: tuple[str, ...]  # names of the sources
    by_view: dict[str, Floats]  # each M × K: loss per character on each group
    mean_loss: Floats  # M: loss per character on all tokens
    device: str  # of the solver

    def anchor(self, kind: Anchor, task: Task) -> Bools:
        """Groups of an anchor: all tokens, or those of the task's own sources and answers (K)."""
        groups = self.groups
        own = np.isin(groups.source, [i for i, name in enumerate(self.sources) if name in task.sources])
        own |= groups.task == task.name
        return np.asarray((groups.kinds == kind) & (own | (kind == "all")) & (groups.size > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Candidates of one kind and view."""

    names: list[str]
    view: str
    kind: CandidateKind
    mix: Floats  # K × C, learned from all known models
    offset: Floats  # C, the same
    held_out: Floats  # R × C: log-odds of hidden models, learned without the set that they are hidden with


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a non-negative candidate may read: a free anchor, and penalised groups of similar tokens."""

    anchor: Anchor | None
    groups: GroupKind | None = None
    penalty: float = 0.0  # relative to the total variance of the groups' losses

    @property
    def name(self) -> str:
        """For notes and messages."""
        groups = self.groups and f"{self.groups}s at {self.penalty:g}"
        return " + ".join(filter(None, (self.anchor, groups)))


def nonnegative(
    view: str, losses: GroupLosses, scores: TaskScores, *, sets: Sequence[HiddenSet], settings: StackSettings
) -> Candidates:
    """The non-negative candidates of one view."""
    return _nonnegative(view, losses, scores, sets=sets, forms=_forms(losses, scores, settings.mixes))


def strength_weighted(
    view: str, losses: GroupLosses, scores: TaskScores, *, sets: Sequence[HiddenSet], settings: StackSettings
) -> Candidates:
    """The non-negative candidates of one view with the weakest penalties, and more weight on stronger models."""
    forms = _forms(losses, scores, [replace(mix, penalties=mix.penalties[:1]) for mix in settings.mixes])
    found = _nonnegative(view, losses, scores, sets=sets, forms=forms, mean_loss=losses.mean_loss)
    return replace(found, kind="strength-weighted", names=[f"{name}, stronger models" for name in found.names])


def strength_weights(mean_loss: Floats) -> Floats:
    """Weights of models that fall by a factor e for every standard deviation of the mean loss above the lowest.

    >>> strength_weights(np.array([3.0, 1.0, 1.0, 3.0])).round(3)
    array([0.135, 1.   , 1.   , 0.135])
    """
    above = mean_loss - mean_loss.min()
    spread = mean_loss.std()
    return np.asarray(np.exp(-above / spread if spread > 0 else 0 * above))


def _forms(losses: GroupLosses, scores: TaskScores, mixes: Iterable[Mix]) -> list[Form]:
    """Every form for which the study has tokens."""
    anchors: tuple[Anchor, ...] = ("all", "source", "answer")
    forms = [Form(anchor=anchor) for anchor in anchors]
    for mix in mixes:
        if mix.groups in losses.groups.kinds:
            pairs = product(mix.anchors, mix.penalties)
            forms += [Form(anchor=anchor, groups=mix.groups, penalty=penalty) for anchor, penalty in pairs]
    return [form for form in forms if form.anchor is None or losses.anchor(form.anchor, scores.task).any()]


def _nonnegative(
    view: str,
    losses: GroupLosses,
    scores: TaskScores,
    *,
    sets: Sequence[HiddenSet],
    forms: Sequence[Form],
    mean_loss: Floats | None = None,
) -> Candidates:
    """Every form on all known models and without each hidden set, in one solve; `mean_loss` for weights by strength."""
    groups, x = losses.groups, losses.by_view[view]
    centre = x[scores.known].mean(axis=0)
    scale = np.sqrt(np.maximum(groups.size, 1))  # so that tokens are penalised alike
    z = (x - centre) / scale
    penalty = np.full((len(forms), len(scale)), np.inf)  # C × K
    for form, row in zip(forms, penalty, strict=True):
        if form.groups:
            similar = (groups.kinds == form.groups) & (groups.size > 0)
            row[similar] = form.penalty * float(z[scores.known][:, similar].var(axis=0).sum())
        if form.anchor:
            row[losses.anchor(form.anchor, scores.task)] = 0.0
    learned_from = [scores.known, *(scores.known & ~hidden.models for hidden in sets)]
    omega = np.zeros((len(learned_from), len(z)))  # 1 + S × M
    for row, known in zip(omega, learned_from, strict=True):
        row[known] = family_balanced(scores.families[known])
        if mean_loss is not None:
            row[known] *= strength_weights(mean_loss[known])
    omega /= omega.sum(axis=1, keepdims=True)
    # (1 + S) · C problems: all forms on all known models, then all forms without the first set, …
    each = np.repeat(omega, len(forms), axis=0)
    arrays = (z, np.broadcast_to(scores.q, each.shape), each, np.tile(penalty, (len(omega), 1)))
    on_z, on_q, on_omega, on_penalty = (place(a, losses.device, "float32") for a in arrays)
    theta, b = map(to_numpy, fit_nonnegative(on_z, on_q, on_omega, penalty=on_penalty))
    log_odds = (b - z @ theta.T).reshape(len(z), len(omega), len(forms))
    of_all = slice(len(forms))
    mix = theta[of_all].T.astype(np.float64) / scale[:, None]
    return Candidates(
        names=[f"{view}: {form.name}" for form in forms],
        view=view,
        kind="non-negative",
        mix=mix,
        offset=b[of_all] + centre @ mix,
        held_out=np.concatenate([log_odds[hidden.models, i] for i, hidden in enumerate(sets, start=1)]),
    )


def signed(
    view: str, losses: GroupLosses, scores: TaskScores, *, sets: Sequence[HiddenSet], settings: StackSettings
) -> Candidates:
    """The signed candidates of one view.

    A set that yields fewer components repeats its last one; a set whose scores do not vary forecasts their mean.
    """
    x, columns = losses.by_view[view], np.flatnonzero(losses.groups.clusters)
    target = clipped_log_odds(scores.q, 0.0)

    def learn(known: Bools) -> tuple[Floats, Floats]:
        weights, intercepts = regress(x[np.ix_(known, columns)], target[known], settings.components)
        if not len(weights):
            weights, intercepts = np.zeros((1, len(columns))), target[known].mean(keepdims=True)
        picked = np.minimum(np.arange(settings.components), len(weights) - 1)
        return weights[picked], intercepts[picked]

    def held_out(hidden: HiddenSet) -> Floats:
        weights, intercepts = learn(scores.known & ~hidden.models)
        return (x[:, columns] @ weights.T + intercepts)[hidden.models]

    weights, offset = learn(scores.known)
    mix = np.zeros((x.shape[1], settings.components))
    mix[columns] = -weights.T  # partial least squares adds what a candidate subtracts
    return Candidates(
        names=[f"{view}: {k + 1} signed direction{'s' * (k > 0)}" for k in range(settings.components)],
        view=view,
        kind="signed",
        mix=mix,
        offset=offset,
        held_out=np.concatenate([held_out(hidden) for hidden in sets]),
    )
