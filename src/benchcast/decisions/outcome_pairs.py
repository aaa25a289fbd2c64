"""Outcomes of single items of a study's models, for the noise of the difference of two runs.

Axes: T tasks, followed by their mean; M models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.decisions.paired_difference import (
    PairedDifference,
    mean_difference,
    paired_difference,
    weights_of_score,
)
from benchcast.importers.logs.from_logs import CLOSE
from benchcast.importers.logs.items import is_drawn
from benchcast.records import Floats, Ints
from benchcast.study.outcomes import TaskOutcomes, read_outcomes
from benchcast.study.study import Study


@dataclass(frozen=True, slots=True, eq=False)
class ScoredItems:
    """How one model did on the items that its score on one task is of."""

    right: Mapping[tuple[str, str], float]  # part and item → outcome
    passages: Mapping[tuple[str, str], str]
    metric: str


@dataclass(frozen=True, slots=True, eq=False)
class ItemPairs:
    """Outcomes of the compared models, by index of the task and of the model."""

    items: Mapping[tuple[int, int], ScoredItems]
    scores: Floats  # (T + 1) × M

    def variance(self, t: int, first: Ints, second: Ints, *, unpaired: Floats) -> float:
        """Variance of the difference of two runs by its items; NaN if not one task has the outcomes of both.

        Parameters
        ----------
        t : index of the task, or of the mean of all tasks
        first, second : indices of the models of each run
        unpaired : variance of each score by its items ((T + 1) × M), for tasks of the mean without outcomes
        """
        tasks = len(self.scores) - 1
        if t < tasks:
            found = self.difference(t, first, second)
            return found.variance if found else math.nan
        parts = [self.difference(i, first, second) for i in range(tasks)]
        known = [part for part in parts if part is not None]
        if not known:
            return math.nan
        others = [i for i, part in enumerate(parts) if part is None]
        rest = sum(float(unpaired[i, rows].mean()) for i in others for rows in (first, second))
        return mean_difference(known).variance * (len(known) / tasks) ** 2 + rest / tasks**2

    def difference(self, t: int, first: Ints, second: Ints) -> PairedDifference | None:
        """The difference of two runs on one task; None unless all of their models answered the same items."""
        groups = [[self.items.get((t, int(i))) for i in rows] for rows in (first, second)]
        one = groups[0][0]
        if one is None:
            return None
        keys = tuple(one.right)
        same = all(
            x is not None
            and x.metric == one.metric
            and len(x.right) == len(keys)
            and x.right.keys() == one.right.keys()
            for group in groups
            for x in group
        )
        if not same:
            return None
        right = [[np.array([x.right[k] for k in keys]) for x in group if x is not None] for group in groups]
        weights = weights_of_score(right[0][0], [part for part, _ in keys], self.scores[t, int(first[0])], close=CLOSE)
        if weights is None:
            return None
        clusters = np.array([one.passages[key] or key[1].rpartition("-")[2] for key in keys])
        return paired_difference(np.mean(right[0], axis=0), np.mean(right[1], axis=0), clusters, weights)


def read_pairs(study: Study, models: Mapping[int, str], tasks: Sequence[str], scores: Floats) -> ItemPairs:
    """The outcomes of some models on the items that their scores are of; those that are no mean of them are left out.

    Parameters
    ----------
    study : the study
    models : index in `scores` → name, of the models to compare
    tasks : names of T tasks
    scores : accuracies by task and model, followed by their mean ((T + 1) × M)
    """
    items: dict[tuple[int, int], ScoredItems] = {}
    for i, model in models.items():
        outcomes = read_outcomes(study, model)
        for t, task in enumerate(tasks):
            of_task = outcomes.tasks.get(task) if outcomes else None
            if of_task is None:
                continue
            kept = _scored(study, of_task)
            right = np.array(list(kept.right.values()))
            parts = [part for part, _ in kept.right]
            if len(right) and weights_of_score(right, parts, scores[t, i], close=CLOSE) is not None:
                items[t, i] = kept
    return ItemPairs(items=items, scores=scores)


def _scored(study: Study, of_task: TaskOutcomes) -> ScoredItems:
    """The items that scores are of: all, or those outside the share that are texts."""
    scored: Sequence[bool] = [True] * len(of_task.items)
    if study.items < 1:
        scored = [not is_drawn(item.rpartition("-")[2], study.items, study.seed) for item in of_task.items]
    rows = [
        (key, value, passage)
        for key, value, passage, keep in zip(of_task.keys, of_task.right, of_task.passages, scored, strict=True)
        if keep
    ]
    return ScoredItems(
        right={key: float(value) for key, value, _ in rows},
        passages={key: passage for key, _, passage in rows},
        metric=of_task.metric,
    )
