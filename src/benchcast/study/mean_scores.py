"""Scores of aggregates: tasks that are the mean of other tasks, such as CORE, or MMLU over its subjects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchcast.losses.dataset import Dataset
from benchcast.records import Floats, Score, Task


def derived_scores(scores: Sequence[Score], tasks: Sequence[Task]) -> list[Score]:
    """Scores of aggregates for models that have a score on every member and none on the aggregate itself.

    Parameters
    ----------
    scores : rows of scores.csv
    tasks : tasks of the study, aggregates among them
    """
    known = {(s.model, s.task): s for s in scores}
    chance = {t.name: t.chance for t in tasks}
    derived = []
    for task in tasks:
        if not task.members:
            continue
        for model in dict.fromkeys(s.model for s in scores if s.task == task.members[0]):
            of_members = [known[model, m] for m in task.members if (model, m) in known]
            if len(of_members) == len(task.members) and (model, task.name) not in known:
                derived.append(_mean(task, of_members, chance))
    return derived


def weights(task: Task, chance: Mapping[str, float]) -> list[float]:
    """What one point of each member adds to the aggregate; more than its share if chance is taken out."""
    return [1 / (1 - chance[m]) / len(task.members) if task.centred else 1 / len(task.members) for m in task.members]


def aggregate_accuracy(task: Task, accuracies: Sequence[float], chance: Mapping[str, float]) -> float:
    """Mean of the members' accuracies; centred: of (accuracy − chance) / (1 − chance), at least 0.

    >>> aggregate_accuracy(Task("all", members=("a", "b")), [0.5, 0.7], {})
    0.6
    """
    return float(aggregate_accuracies(task, np.array(accuracies)[:, None], chance)[0])


def aggregate_accuracies(task: Task, accuracies: Floats, chance: Mapping[str, float]) -> Floats:
    """The same for many models, from the accuracies of members × models."""
    return np.clip(unclipped_accuracies(task, accuracies, chance), 0.0, 1.0)


def unclipped_accuracies(task: Task, accuracies: Floats, chance: Mapping[str, float]) -> Floats:
    """The same, below 0 where the members of a centred mean are below chance on average."""
    centre = np.array([chance[m] if task.centred else 0.0 for m in task.members])
    return np.asarray(np.dot(weights(task, chance), accuracies - centre[:, None]))


def with_unclipped_means(dataset: Dataset, tasks: Sequence[Task]) -> Dataset:
    """The dataset with the centred means that lie below 0, for methods that learn a floor.

    Parameters
    ----------
    dataset : the dataset
    tasks : all tasks of the study, members among them
    """
    chance = {t.name: t.chance for t in tasks}
    unclipped = dataset.accuracy.copy()
    for t, task in enumerate(dataset.tasks):
        if task.centred and task.members:
            of_members = np.stack([dataset.metadata.score(name) for name in task.members])
            mean = unclipped_accuracies(task, of_members, chance)
            unclipped[t] = np.where((mean < 0) & (dataset.accuracy[t] == 0), mean, dataset.accuracy[t])
    return (
        dataset
        if np.array_equal(unclipped, dataset.accuracy, equal_nan=True)
        else replace(dataset, unclipped=unclipped)
    )


def _mean(task: Task, scores: Sequence[Score], chance: Mapping[str, float]) -> Score:
    errors = [_stderr(s) * w for s, w in zip(scores, weights(task, chance), strict=True)]
    return Score(
        scores[0].model,
        task.name,
        aggregate_accuracy(task, [s.accuracy for s in scores], chance),
        n_items=float(sum(s.n_items for s in scores)),
        stderr=math.sqrt(sum(e**2 for e in errors)),
    )


def _stderr(score: Score) -> float:
    """Standard error by the items of a score; NaN if it is unknown."""
    if math.isfinite(score.stderr):
        return score.stderr
    return math.sqrt(score.accuracy * (1 - score.accuracy) / score.n_items) if score.n_items > 0 else math.nan
