"""Step 3: candidates, which are weighted losses learned from all known models, and again without each hidden set.

A candidate forecasts the log-odds of a score above the floor by

    log-odds = offset − x · mix

where x is a model's loss on each group. All candidates are linear in x, so that an average of their log-odds is again
one weighted loss. The reason for the sign is in `averaging.as_weighted_loss`. There are four recipes, each for every
view:

anchor             mix ≥ 0, by the objective of `nonnegative`, on an anchor alone: all tokens, the task's own texts,
                   their answers, or their choice losses; families have equal weight in ω
non-negative       the same with groups of similar tokens, with or without an anchor. The penalty is 0 for the anchor,
                   that of the settings for the groups, and infinite for all other groups
strength-weighted  both with ω times `strength_weights`, because no single law holds from the weakest to the
                   strongest model. They have the weakest penalty only
signed             partial least squares with 1, 2, … components (Wold, Sjöström and Eriksson 2001) from the clusters to
                   the clipped log-odds of q

Axes: M models, K groups, C candidates, S hidden sets, R rows.
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
from benchcast.methods.stack.settings import Anchor, Grouping, PenalisedGroups, StackSettings
from benchcast.methods.stack.token_groups import TokenGroups
from benchcast.records import Bools, Floats, Task
from benchcast.splits import family_balanced

Recipe = Literal["anchor", "non-negative", "strength-weighted", "signed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLosses:
    """The losses that candidates are learned from."""

    groups: TokenGroups
    sources: tuple[str, ...]  # names of the sources
    by_view: dict[str, Floats]  # each M × K: loss per character on each group
    mean_loss: Floats  # M: loss per character on all tokens
    device: str  # of the solver

    def without_choices(self) -> GroupLosses:
        """Those of the groups of tokens alone."""
        groups = self.groups.without_choices()
        return replace(self, groups=groups, by_view={k: x[:, : len(groups.size)] for k, x in self.by_view.items()})

    def anchor(self, anchor: Anchor, task: Task) -> Bools:
        """Groups of an anchor: all tokens, or those of the task's own sources, answers and choice losses (K)."""
        groups = self.groups
        own = np.isin(groups.source, [i for i, name in enumerate(self.sources) if name in task.sources])
        own |= groups.task == task.name
        return np.asarray((groups.grouping == anchor) & (own | (anchor == "all")) & (groups.size > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Candidates of one recipe and view."""

    names: list[str]
    view: str
    recipe: Recipe
    mix: Floats  # K × C, learned from all known models
    offset: Floats  # C, the same
    log_odds_without_own_set: Floats  # R × C

    def single(self, name: str) -> Candidates:
        """One of the candidates."""
        k = self.names.index(name)
        return replace(
            self,
            names=[name],
            mix=self.mix[:, [k]],
            offset=self.offset[[k]],
            log_odds_without_own_set=self.log_odds_without_own_set[:, [k]],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a non-negative candidate may read: a free anchor, and penalised groups of similar tokens."""

    anchor: Anchor | None
    grouping: Grouping | None = None
    penalty: float = 0.0  # relative to the total variance of the groups' losses

    @property
    def name(self) -> str:
        """For notes and messages."""
        groups = self.grouping and f"{self.grouping}s at {self.penalty:g}"
        return " + ".join(filter(None, (self.anchor, groups)))


def anchors(
    view: str, losses: GroupLosses, scores: TaskScores, *, sets: Sequence[HiddenSet], settings: StackSettings
) -> Candidates:
    """The anchors of one view, each alone."""
    return replace(_nonnegative(view, losses, scores, sets=sets, forms=_anchors(losses, scores)), recipe="anchor")


def nonnegative(
    view: str, losses: GroupLosses, scores: TaskScores, *, sets: Sequence[HiddenSet], settings: StackSettings
) -> Candidates:
    """The non-negative candidates of one view that read groups of similar tokens."""
    return _nonnegative(view, losses, scores, sets=sets, forms=_penalised(losses, scores, settings.penalised))


def strength_weighted(
    view: str, losses: GroupLosses, scores: TaskScores, *, sets: Sequence[HiddenSet], settings: StackSettings
) -> Candidates:
    """The non-negative candidates of one view with the weakest penalties, and more weight on stronger models."""
    weakest = [replace(p, penalties=p.penalties[:1]) for p in settings.penalised]
    forms = _anchors(losses, scores) + _penalised(losses, scores, weakest)
    found = _nonnegative(view, losses, scores, sets=sets, forms=forms, strength_scale=settings.strength_scale)
    return replace(found, recipe="strength-weighted", names=[f"{name}, stronger models" for name in found.names])


def strength_weights(mean_loss: Floats, scale: float) -> Floats:
    """exp(−(l − min l) / (scale · sd l)) of the mean losses l of some models.

    >>> strength_weights(np.array([3.0, 1.0, 1.0, 3.0]), 1.0).round(3)
    array([0.135, 1.   , 1.   , 0.135])
    """
    above = mean_loss - mean_loss.min()
    spread = scale * mean_loss.std()
    return np.asarray(np.exp(-above / spread if spread > 0 else 0 * above))


def _anchors(losses: GroupLosses, scores: TaskScores) -> list[Form]:
    """Every anchor for which the study has tokens or choice losses."""
    every: tuple[Anchor, ...] = ("all", "source", "answer", "choice")
    return [Form(anchor=anchor) for anchor in every if losses.anchor(anchor, scores.task).any()]


def _penalised(losses: GroupLosses, scores: TaskScores, penalised: Iterable[PenalisedGroups]) -> list[Form]:
    """Every form with groups of similar tokens for which the study has tokens."""
    present = {None, *(form.anchor for form in _anchors(losses, scores))}
    return [
        Form(anchor=anchor, grouping=similar.grouping, penalty=penalty)
        for similar in penalised
        if similar.grouping in losses.groups.grouping
        for anchor, penalty in product(similar.anchors, similar.penalties)
        if anchor in present
    ]


def _nonnegative(
    view: str,
    losses: GroupLosses,
    scores: TaskScores,
    *,
    sets: Sequence[HiddenSet],
    forms: Sequence[Form],
    strength_scale: float | None = None,
) -> Candidates:
    """Every form on all known models and without each hidden set, in one solve; no scale: no weights by strength."""
    groups, x = losses.groups, losses.by_view[view]
    centre = x[scores.known].mean(axis=0)
    scale = np.sqrt(np.maximum(groups.size, 1))  # so that tokens are penalised alike
    scaled = (x - centre) / scale
    penalty = np.full((len(forms), len(scale)), np.inf)  # C × K
    for form, row in zip(forms, penalty, strict=True):
        if form.grouping:
            similar = (groups.grouping == form.grouping) & (groups.size > 0)
            row[similar] = form.penalty * float(scaled[scores.known][:, similar].var(axis=0).sum())
        if form.anchor:
            row[losses.anchor(form.anchor, scores.task)] = 0.0
    learned_from = [scores.known, *(scores.known & ~hidden.models for hidden in sets)]
    omega = np.zeros((len(learned_from), len(x)))  # 1 + S × M
    for row, known in zip(omega, learned_from, strict=True):
        row[known] = family_balanced(scores.families[known])
        if strength_scale is not None:
            row[known] *= strength_weights(losses.mean_loss[known], strength_scale)
    omega /= omega.sum(axis=1, keepdims=True)
    # (1 + S) · C problems: all forms on all known models, then all forms without the first set, …
    each = np.repeat(omega, len(forms), axis=0)
    arrays = (scaled, np.broadcast_to(scores.q, each.shape), each, np.tile(penalty, (len(omega), 1)))
    on_x, on_q, on_omega, on_penalty = (place(a, losses.device, "float32") for a in arrays)
    theta, b = map(to_numpy, fit_nonnegative(on_x, on_q, on_omega, penalty=on_penalty))
    log_odds = (b - scaled @ theta.T).reshape(len(x), len(omega), len(forms))
    mix = theta[: len(forms)].T.astype(np.float64) / scale[:, None]
    return Candidates(
        names=[f"{view}: {form.name}" for form in forms],
        view=view,
        recipe="non-negative",
        mix=mix,
        offset=b[: len(forms)] + centre @ mix,
        log_odds_without_own_set=np.concatenate([log_odds[s.models, i] for i, s in enumerate(sets, start=1)]),
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

    def without(hidden: HiddenSet) -> Floats:
        weights, intercepts = learn(scores.known & ~hidden.models)
        return (x[:, columns] @ weights.T + intercepts)[hidden.models]

    weights, offset = learn(scores.known)
    mix = np.zeros((x.shape[1], settings.components))
    mix[columns] = -weights.T
    return Candidates(
        names=[f"{view}: {k + 1} signed direction{'s' * (k > 0)}" for k in range(settings.components)],
        view=view,
        recipe="signed",
        mix=mix,
        offset=offset,
        log_odds_without_own_set=np.concatenate([without(hidden) for hidden in sets]),
    )
