"""Scores on the items of an evaluation log whose losses are not in the study.

A loss contains the answer that it is to forecast: with few items, luck on these items lowers the loss and raises the
score. With `items = 0.5` in study.toml, half of the items give losses and the other half the scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.errors import InputError
from benchcast.logs.items import LoggedItem
from benchcast.logs.runs import LoggedRun, read_run
from benchcast.records import Floats
from benchcast.scores.files import Rescore
from benchcast.scores.reading import ScoreEntry

CLOSE = 1e-6  # difference between a score in the results and the mean of its items that rounding explains


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of one metric on the items of one task."""

    all: Floats
    kept: Floats  # on the items that are scored


def rescore_others(share: float, seed: int, runs: Sequence[LoggedRun] = ()) -> Rescore:
    """A function that replaces scores of lm-eval results by scores on the items outside a random share.

    Parameters
    ----------
    share : share of the items whose losses are texts of the study
    seed : seed of the study, which draws them
    runs : runs that have been read, so that they are not read again
    """
    known = {run.path: run for run in runs}

    def rescore(path: Path, document: Mapping[str, Any], entries: list[ScoreEntry]) -> list[ScoreEntry]:
        items = (known[path] if path in known else read_run(path)).items
        rescored = [_rescored(entry, document, items, share, seed) for entry in entries]
        return [entry for entry in rescored if entry is not None]

    return rescore


def _rescored(
    entry: ScoreEntry, document: Mapping[str, Any], items: Mapping[str, Sequence[LoggedItem]], share: float, seed: int
) -> ScoreEntry | None:
    """The score on the other items; None for a metric that is no mean over items."""
    if not math.isfinite(entry.score.accuracy):
        return entry
    leaves = members(document, entry.score.task)
    values = [_values(items.get(task, ()), entry.metric, share, seed) for task in leaves]
    if any(not len(v.all) for v in values):
        return None
    for weights in ([len(v.all) for v in values], [1] * len(values)):
        if abs(_mean([v.all for v in values], weights) - entry.score.accuracy) < CLOSE:
            if any(not len(v.kept) for v in values):
                raise InputError(f"{entry.where}: no items are left to score; choose a smaller share of items")
            return _scored(entry, [v.kept for v in values], by_size=len(set(weights)) > 1 or len(leaves) == 1)
    if entry.metric == "acc" or len(leaves) == 1:
        raise InputError(
            f"{entry.where}: {entry.metric} is {entry.score.accuracy:g} in the results and "
            f"{_mean([v.all for v in values], [len(v.all) for v in values]):g} over the samples; "
            "are they of the same run?"
        )
    return None


def members(document: Mapping[str, Any], task: str) -> list[str]:
    """Tasks with items of their own that a group consists of; a task that is no group is its only member."""
    groups = document.get("group_subtasks")
    inside = groups.get(task) if isinstance(groups, Mapping) else None
    if not isinstance(inside, list) or not inside:
        return [task]
    return [leaf for member in inside if member != task for leaf in members(document, str(member))]


def _values(items: Sequence[LoggedItem], metric: str, share: float, seed: int) -> _Values:
    known = [item for item in items if metric in item.metrics]
    kept = [item for item in known if not item.drawn(share, seed)]
    if len(known) < len(items):
        known = kept = []
    return _Values(*(np.array([item.metrics[metric] for item in part]) for part in (known, kept)))


def _mean(values: Sequence[Floats], weights: Sequence[int]) -> float:
    return float(np.average([v.mean() for v in values], weights=weights))


def _scored(entry: ScoreEntry, values: Sequence[Floats], *, by_size: bool) -> ScoreEntry:
    """Mean and standard error over the scored items."""
    weights = [len(v) for v in values] if by_size else [1] * len(values)
    share = np.array(weights) / sum(weights)
    variance = [v.var(ddof=1) / len(v) if len(v) > 1 else math.nan for v in values]
    error = float(np.sqrt(np.sum(share**2 * variance)))
    score = replace(entry.score, accuracy=_mean(values, weights), n_items=float(sum(map(len, values))))
    return replace(entry, score=score, stderr=error)
