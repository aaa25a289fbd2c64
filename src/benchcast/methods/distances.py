"""Distances of held-out models from those learned from, and the choice of a candidate on left-out families.

Axes: M models, N reference tokens, I sets of learning models, C candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import Dataset, ReferenceTokens
from benchcast.methods.profile import LossProfile, group_losses, mean_losses, spread_of_profiles, squared_distance
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Bools, Floats, Ints
from benchcast.splits import Fold, family_balanced, inner_folds, left_out

USUAL = 0.9  # share of left-out models whose distance counts as usual
MOST_GROUPS = 200  # with more texts than this, consecutive texts share a group


def with_profiles(dataset: Dataset, folds: Sequence[Fold], fits: list[list[TaskFit]]) -> list[list[TaskFit]]:
    """Fits by fold and task, each with the profile of its training models and the distances of held-out models.

    Fits that read no losses stay as they are. A row of `fits` holds one fit for every task of `dataset`, in order.
    """
    if not any(fit.reads_losses for row in fits for fit in row):
        return fits
    distances = Distances(dataset)
    placed = []
    for fold, row in zip(folds, fits, strict=True):
        profile = distances.profile(fold.seen)
        placed.append(
            [
                replace(
                    fit,
                    profile=profile,
                    out_of_fold=_with_distances(fit.out_of_fold, distances, fold, t=t, profile=profile),
                    stronger=_with_distances(fit.stronger, distances, fold, t=t, profile=profile),
                )
                if fit.reads_losses
                else fit
                for t, fit in enumerate(row)
            ]
        )
    return placed


def _with_distances(
    errors: OutOfFoldErrors, distances: Distances, fold: Fold, *, t: int, profile: LossProfile | None
) -> OutOfFoldErrors:
    """Out-of-fold errors with the accuracy of each model and its distance from those that were not hidden with it."""
    dataset = distances.dataset
    row_of = {model: i for i, model in enumerate(dataset.models)}
    index = np.array([row_of[model] for model in errors.models], np.int64)
    distance = np.ones(len(index))
    if profile is not None:
        for k in np.unique(errors.hidden_set):
            rows = errors.hidden_set == k
            learned = fold.seen.copy()
            learned[index[rows]] = False
            distance[rows] = distances.squared(learned, index[rows]) / profile.typical
    return replace(errors, observed=dataset.accuracy[t][index], distance=distance)


class Distances:
    """Squared distances among the models of one dataset, cached for each set of models to learn from."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.group = text_groups(dataset.reference_tokens)
        self.profiles = group_losses(dataset.nats, self.group)
        self.mean_loss = mean_losses(dataset.nats, self.group)
        self._spread: dict[bytes, tuple[Floats, Floats] | None] = {}
        self._profile: dict[bytes, LossProfile | None] = {}

    def squared(self, learned: Bools, rows: Ints) -> Floats:
        """Squared distance of some models from those learned from; 0 where nothing is known about distances."""
        key = np.packbits(learned).tobytes()
        if key not in self._spread:
            weight = family_balanced(self.dataset.groups[learned])
            self._spread[key] = spread_of_profiles(self.profiles[learned], weight) if len(weight) > 1 else None
        spread = self._spread[key]
        return np.zeros(len(rows)) if spread is None else squared_distance(self.profiles[rows], *spread)

    def profile(self, seen: Bools) -> LossProfile | None:
        """The profile of the seen models; None where no family can be left out, or all models are alike."""
        key = np.packbits(seen).tobytes()
        if key not in self._profile:
            self._profile[key] = self._new_profile(seen)
        return self._profile[key]

    def _new_profile(self, seen: Bools) -> LossProfile | None:
        families = self.dataset.groups
        when_left_out = np.zeros(len(seen))
        for hidden in inner_folds(families, seen):
            when_left_out[hidden] = self.squared(seen & ~hidden, np.flatnonzero(hidden))
        weight = family_balanced(families[seen])
        typical = float(weight @ when_left_out[seen])
        spread = spread_of_profiles(self.profiles[seen], weight)
        if spread is None or not typical > 0:
            return None
        mean, whiten = spread
        return LossProfile(
            group=self.group,
            mean=mean,
            whiten=whiten,
            typical=typical,
            usual=float(np.quantile(when_left_out[seen], USUAL)) / typical,
            strongest=float(self.mean_loss[seen].min()),
        )


def text_groups(tokens: ReferenceTokens) -> Ints:
    """The group of each token: its text, or some consecutive texts if there are very many; −1 outside the support."""
    texts = np.unique(tokens.text[tokens.supported])
    share = int(np.ceil(len(texts) / MOST_GROUPS))
    return np.where(tokens.supported, np.searchsorted(texts, tokens.text) // max(share, 1), -1)


Forecasts = Callable[[Sequence[Bools]], Floats]  # sets of learning models → forecasts of all models (I × C × M)


@dataclass(frozen=True, slots=True)
class CandidateSelection:
    """The candidate with the least error on left-out families; errors of candidates selected without each family."""

    best: int
    out_of_fold: OutOfFoldErrors


def select_candidate(forecasts: Forecasts, dataset: Dataset, observed: Floats, *, known: Bools) -> CandidateSelection:
    """Leave each family of the known models out in turn; all families have equal weight."""
    families = dataset.groups
    hidden = inner_folds(families, known)
    kind = left_out(families, known)
    if len(hidden) < 2:
        return CandidateSelection(0, OutOfFoldErrors.none(kind))
    forecast = forecasts([known & ~h for h in hidden])
    errors = np.concatenate([forecast[i][:, h] - observed[h] for i, h in enumerate(hidden)], axis=1)
    who = np.concatenate([families[h] for h in hidden])
    part = np.repeat(np.arange(len(hidden)), [h.sum() for h in hidden])
    out_of_fold = np.empty(len(who))
    for i in range(len(hidden)):  # selecting on a family's errors would underestimate its error
        others = part != i
        out_of_fold[~others] = errors[_least(errors[:, others], who[others])][~others]
    return CandidateSelection(_least(errors, who), OutOfFoldErrors.of(dataset, hidden, out_of_fold, kind=kind))


def _least(errors: Floats, families: npt.NDArray[np.str_]) -> int:
    """The candidate (row of errors) with the least squared error; all families have equal weight."""
    return int(np.argmin(errors**2 @ family_balanced(families)))
