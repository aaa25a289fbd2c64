"""Noise of scores: test items, neighbouring checkpoints of a run, and seeds.

A score is taken as a smooth curve of compute plus independent noise of each kind, so their variances add. Noise of
items follows from the number of items. Noise of checkpoints is the scatter of each score about the line between its two
neighbours, on the same items. Noise of seeds is the variance between runs that differ only in their seed, without
the noise of checkpoints that is in it.
Axes: T tasks, followed by their mean; M models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.errors import NotEnoughDataError
from benchcast.extrapolation.family_law import ScalePoints
from benchcast.metadata import family_names
from benchcast.records import Bools, Floats, Ints, ModelInfo, Score

MEAN = "mean of tasks"
NEAR = np.log(2)  # largest distance of a checkpoint's neighbours in log compute; the curve is nearly straight over it
FEWEST_SCATTERS = 4  # checkpoints with two neighbours that an estimate needs
OVERLAP = 2.0  # dependent scatters per independent one; neighbouring scatters share scores


@dataclass(frozen=True, slots=True)
class ScoredModels:
    """Models with their scores; NaN where unknown."""

    models: tuple[ModelInfo, ...]
    tasks: tuple[str, ...]  # followed by their mean
    scores: Floats  # (T + 1) × M
    item_variance: Floats  # (T + 1) × M
    n_items: Floats  # (T + 1) × M

    @property
    def points(self) -> ScalePoints:
        """Size, training tokens and compute of each model."""
        columns = [[getattr(m, name) for m in self.models] for name in ("params", "tokens", "compute")]
        return ScalePoints(*(np.array(c, np.float64) for c in columns))

    def trajectories(self, rows: Ints) -> Iterator[Ints]:
        """Checkpoints of each run among the models `rows`, by compute: models with one name before the @."""
        flops = self.points.flops
        stems = np.array([m.model.partition("@")[0] for m in self.models])
        for stem in dict.fromkeys(stems[rows]):
            checkpoints = rows[(stems[rows] == stem) & np.isfinite(flops[rows])]
            yield checkpoints[np.argsort(flops[checkpoints], kind="stable")]


@dataclass(frozen=True, slots=True)
class Variance:
    """Variance of one score by one source of noise, for each task and their mean (T + 1); NaN if unknown."""

    value: Floats
    freedom: float  # degrees of freedom of the estimate


def scored_models(models: Sequence[ModelInfo], scores: Sequence[Score], tasks: Sequence[str]) -> ScoredModels:
    """Models with a score on at least one of the tasks.

    Parameters
    ----------
    models, scores : rows of models.csv and scores.csv
    tasks : names of tasks
    """
    listed = {m.model for m in models}
    infos = [*models, *(ModelInfo(name) for name in dict.fromkeys(s.model for s in scores) if name not in listed)]
    kept = [m for m in infos if m.model in {s.model for s in scores if s.task in tasks}]
    if not kept:
        raise NotEnoughDataError("no model has a score on these tasks")
    column, row = {m.model: i for i, m in enumerate(kept)}, {t: i for i, t in enumerate(tasks)}
    values = np.full((3, len(tasks), len(kept)), np.nan)
    for s in scores:
        if s.model in column and s.task in row:
            values[:, row[s.task], column[s.model]] = s.accuracy, _item_variance(s), s.n_items
    accuracy, variances, items = values
    return ScoredModels(
        tuple(kept),
        (*tasks, MEAN),
        _with_row(accuracy, accuracy.mean(axis=0)),
        _with_row(variances, variances.sum(axis=0) / len(tasks) ** 2),
        _with_row(items, items.mean(axis=0)),
    )


def _item_variance(score: Score) -> float:
    """Variance of a score by its items: as the harness reported it, else binomial; NaN if neither is known.

    A score of 0 or 1 is certain on its items only; one right and one wrong answer are added (rule of succession).
    """
    if score.stderr > 0:
        return score.stderr**2
    if not score.n_items > 0:
        return float("nan")
    p = score.accuracy if 0 < score.accuracy < 1 else (score.accuracy * score.n_items + 1) / (score.n_items + 2)
    return p * (1 - p) / score.n_items


def _with_row(values: Floats, last: Floats) -> Floats:
    return np.concatenate([values, last[None]])


def checkpoint_variance(known: ScoredModels, rows: Ints) -> Variance:
    """Noise of checkpoints, from the scatter of each score about the line between its neighbours in log compute."""
    squares, log_flops = [], np.log(known.points.flops)
    for run in known.trajectories(rows):
        for before, here, after in zip(run, run[1:], run[2:], strict=False):
            gap = log_flops[after] - log_flops[before]
            if not 0 < gap < NEAR:
                continue
            share = (log_flops[here] - log_flops[before]) / gap
            line = (1 - share) * known.scores[:, before] + share * known.scores[:, after]
            squares.append((known.scores[:, here] - line) ** 2 / (1 + share**2 + (1 - share) ** 2))
    if len(squares) < FEWEST_SCATTERS:
        return Variance(np.full(len(known.tasks), np.nan), np.nan)
    return Variance(np.mean(squares, axis=0), len(squares) / OVERLAP)


def seed_variance(known: ScoredModels, used: Bools, checkpoints: Variance) -> Variance:
    """Noise of seeds, from models in `used` that have different seeds and are otherwise the same.

    Models of one family with equal params and tokens count as the same. All sets of runs have equal weight, whatever
    their number of checkpoints.
    """
    by_runs: dict[tuple[str, ...], list[Floats]] = {}
    for group in _same_but_seed(known, used):
        runs = tuple(sorted(known.models[i].model.partition("@")[0] for i in group))
        by_runs.setdefault(runs, []).append(known.scores[:, group].var(axis=1, ddof=1))
    if not by_runs:
        return Variance(np.full(len(known.tasks), np.nan), np.nan)
    weights = [len(runs) - 1 for runs in by_runs]
    total = np.average([np.mean(variances, axis=0) for variances in by_runs.values()], axis=0, weights=weights)
    return Variance(np.maximum(total - np.nan_to_num(checkpoints.value), 0.0), float(sum(weights)))


def _same_but_seed(known: ScoredModels, used: Bools) -> list[Ints]:
    """Groups of models that differ in their seed only."""
    families = family_names(known.models)
    groups: dict[tuple[str, float, float], dict[str, int]] = {}
    for i, m in enumerate(known.models):
        if m.seed and used[i] and np.isfinite(m.params) and np.isfinite(m.tokens):
            groups.setdefault((str(families[i]), m.params, m.tokens), {}).setdefault(m.seed, i)
    return [np.array(list(group.values())) for group in groups.values() if len(group) > 1]
