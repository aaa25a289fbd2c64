"""Training runs in the order of their forecasts at equal compute, and how likely that order is right.

compare_runs(study, ["oak-a", "oak-b"])

Scores of the runs themselves are not used. How far the difference of two forecasts misses is taken from all pairs
of other families, compared in the same way: what two forecasts get wrong alike cancels there as it does here.
Axes: T tasks, and after them their mean; R runs; M models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls
from scipy.stats import t as student

from benchcast.choices import MethodName
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.extrapolation.backtest import StudyModels, read_study_models, silent
from benchcast.extrapolation.family_law import ScalePoints
from benchcast.fitting import FEWEST_MODELS
from benchcast.folds import inner_folds
from benchcast.formatting import did_you_mean
from benchcast.intervals import spread_of
from benchcast.records import Bools, Floats, Ints
from benchcast.store import Study, StudyLike
from benchcast.task_fit import TaskFit

SAME_SIZE = 1.5  # runs of sizes within this factor are compared
DRAWS = 20_000
LEAST = 1e-6  # of a standard deviation
FEWEST_PAIRS = 6  # differences of other families, to learn a variance from
MEAN = "mean of tasks"


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A family, or the checkpoints of one model of it."""

    name: str
    rows: Ints  # of the models


@dataclass(frozen=True, slots=True)
class ComparisonPoint:
    """A compute that several runs of like size have reached, and their models of that size."""

    params: float
    flops: float
    rows: tuple[Ints, ...]  # by run, in the order of compute


@dataclass(frozen=True, slots=True)
class DifferenceUncertainty:
    """How far the difference of two forecasts misses, per task and for their mean.

    Its variance is `base` plus `rise` times the leverage of the two forecasts: near chance and near 1 a wrong
    capability hardly moves the score.
    """

    base: Floats
    rise: Floats
    families: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the differences."""
        return max(self.families - 1, 1)

    def of_runs(self, leverage: Floats) -> Floats:
        """Variance that each run brings to a difference ((T + 1) × R)."""
        own = (self.base[:, None] + self.rise[:, None] * leverage) / 2
        return own * (1 + 1 / max(self.families, 1))


@dataclass(frozen=True, slots=True)
class RunRanking:
    """Runs at one meeting."""

    params: float
    flops: float
    forecast: Floats  # (T + 1) × R
    observed: Floats  # (T + 1) × R, NaN where unknown
    better: Floats  # (T + 1) × R × R: how likely the first is above the second
    order: Ints  # (T + 1) × R, best first
    likely: Floats  # T + 1: that the whole order is right


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The runs at every size they share, the largest first."""

    runs: tuple[str, ...]
    tasks: tuple[str, ...]  # and the mean of them
    rankings: tuple[RunRanking, ...]
    uncertainty: DifferenceUncertainty


def find_run(name: str, models: Sequence[str], families: npt.NDArray[np.str_]) -> TrainingRun:
    """A run by the name of a family, or of a model without what follows the @."""
    stems = np.array([m.partition("@")[0] for m in models])
    rows = np.flatnonzero(families == name)
    rows = rows if len(rows) else np.flatnonzero(stems == name)
    if not len(rows):
        known = sorted({*map(str, families), *map(str, stems)})
        raise InputError(
            f"unknown run {name!r}; families are {', '.join(sorted(set(families)))}{did_you_mean(name, known)}"
        )
    return TrainingRun(name, rows)


def comparison_points(points: ScalePoints, runs: Sequence[TrainingRun]) -> list[ComparisonPoint]:
    """Where the runs can be compared: at each size that all have, the most compute that all reached."""
    sizes = [np.unique(points.params[run.rows][np.isfinite(points.flops[run.rows])]) for run in runs]
    if any(len(s) == 0 for s in sizes):
        return []
    if all(len(s) == 1 for s in sizes):
        groups = [tuple(float(s[0]) for s in sizes)]
    else:
        known = [s[np.isfinite(s)] for s in sizes]
        groups = [g for size in known[0] if (g := _alike(float(size), known))]
    found = []
    for group in groups:
        rows = tuple(_by_compute(points, run.rows, size) for run, size in zip(runs, group, strict=True))
        least = max(float(points.flops[r[0]]) for r in rows)
        most = min(float(points.flops[r[-1]]) for r in rows)
        if least <= most:
            found.append(ComparisonPoint(float(np.exp(np.mean(np.log(group)))), most, rows))
    return sorted(found, key=lambda m: -m.params)


def _alike(size: float, sizes: Sequence[Floats]) -> tuple[float, ...]:
    """The size of each run that is nearest to this one; empty where one is not near."""
    nearest = [float(own[np.abs(np.log(own / size)).argmin()]) for own in sizes if len(own)]
    return (
        tuple(nearest)
        if len(nearest) == len(sizes) and all(1 / SAME_SIZE <= n / size <= SAME_SIZE for n in nearest)
        else ()
    )


def _by_compute(points: ScalePoints, rows: Ints, size: float) -> Ints:
    own = points.params[rows]
    kept = rows[(own == size) | (np.isnan(own) & np.isnan(size))]
    kept = kept[np.isfinite(points.flops[kept])]
    return kept[np.argsort(points.flops[kept], kind="stable")]


def at_compute(points: ScalePoints, values: Floats, rows: Ints, flops: float) -> float:
    """A value of a run at some compute, between its checkpoints in log compute; NaN where one is not known."""
    return float(np.interp(np.log(flops), np.log(points.flops[rows]), values[rows]))


def compare_runs(
    study: StudyLike,
    names: Sequence[str],
    *,
    tasks: Sequence[str] = (),
    method: MethodName = "salience",
    device: str = "",
    tell: Callable[[str], None] = silent,
) -> RunComparison:
    """Order training runs by their forecasts at every size that they share.

    Parameters
    ----------
    study : an opened study or its folder
    names : runs: families, or names of models without their @tokens
    tasks : tasks of study.toml; none given: all
    method : how capability is measured; one that reads losses
    device : where it is worked out: a torch device; "" is numpy
    tell : is called with one line on each step

    Returns
    -------
    the order at every size with how likely it is; scores of these runs are not used
    """
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise InputError(f"--runs {','.join(names)}: two or more different runs wanted, as in --runs A,B")
    known = read_study_models(Study.of(study), tasks, method=method, device=device)
    runs = [find_run(name, known.models, known.families) for name in names]
    taken = np.concatenate([run.rows for run in runs])
    if len(np.unique(taken)) < len(taken):
        raise InputError(f"--runs {','.join(names)}: one of them is part of another")
    return rank_runs(known, runs, tell=tell)


def rank_runs(
    known: StudyModels, runs: Sequence[TrainingRun], *, tell: Callable[[str], None] = silent
) -> RunComparison:
    """Order runs of a study that has been read, without a look at their scores."""
    names = [run.name for run in runs]
    where = comparison_points(known.points, runs)
    if not where:
        raise NotEnoughDataError(
            f"{', '.join(names)}: no compute that all of them passed at a size that all have (within a factor of "
            f"{SAME_SIZE:g}); single models, named without the @ such as ash-50M, are compared whatever their sizes"
        )
    seen = ~np.isin(np.arange(len(known.models)), np.concatenate([run.rows for run in runs]))
    if seen[: known.scored].sum() < FEWEST_MODELS:
        raise NotEnoughDataError(
            f"without these runs fewer than {FEWEST_MODELS} models with scores are left to learn from"
        )
    tell("fitting without the runs")
    fits = known.fits(seen)
    if not fits[0].reads_losses:
        raise InputError(f"method {known.method!r} does not read losses; take one that does, such as salience")
    capability = np.stack([known.log_capability(fit) for fit in fits])
    uncertainty = difference_uncertainty(known, fits, capability, seen)
    rankings = tuple(rank(known, fits, capability, point, uncertainty) for point in where)
    return RunComparison(tuple(names), (*(fit.task.name for fit in fits), MEAN), rankings, uncertainty)


def _with_mean(values: Floats) -> Floats:
    return np.concatenate([values, values.mean(axis=0, keepdims=True)])


def forecast_at(
    known: StudyModels, fits: Sequence[TaskFit], capability: Floats, point: ComparisonPoint
) -> tuple[Floats, Floats]:
    """Forecasts and scores of the runs at a meeting, with the mean of tasks ((T + 1) × R each)."""
    said = [
        [float(fit.law.accuracy(np.exp(at_compute(known.points, c, r, point.flops)))) for r in point.rows]
        for fit, c in zip(fits, capability, strict=True)
    ]
    observed = [[at_compute(known.points, a, r, point.flops) for r in point.rows] for a in known.observed]
    return _with_mean(np.array(said)), _with_mean(np.array(observed))


def rank(
    known: StudyModels,
    fits: Sequence[TaskFit],
    capability: Floats,
    point: ComparisonPoint,
    uncertainty: DifferenceUncertainty,
) -> RunRanking:
    """Order and probabilities at one meeting."""
    forecast, observed = forecast_at(known, fits, capability, point)
    variance = uncertainty.of_runs(leverage(forecast[:-1], known.dataset.chance))
    better = probability_above(forecast, variance, uncertainty.freedom)
    order = np.argsort(-forecast, axis=1, kind="stable")
    likely = [likely_order(f, v, uncertainty.freedom) for f, v in zip(forecast, variance, strict=True)]
    return RunRanking(point.params, point.flops, forecast, observed, better, order, np.array(likely))


def leverage(forecast: Floats, chance: Floats) -> Floats:
    """How much the score moves with capability, 1 halfway up the sigmoid, and its mean over tasks ((T + 1) × R)."""
    share = np.clip((forecast - chance[:, None]) / (1 - chance[:, None]), 0, 1)
    return _with_mean(4 * share * (1 - share))


def probability_above(forecast: Floats, variance: Floats, freedom: int) -> Floats:
    """How likely each run is above each other one ((T + 1) × R × R); the two ways round add up to 1."""
    ahead = forecast[:, :, None] - forecast[:, None, :]
    spread = np.sqrt(variance[:, :, None] + variance[:, None, :])
    return np.asarray(student.cdf(ahead / np.maximum(spread, LEAST), freedom))


def likely_order(forecast: Floats, variance: Floats, freedom: int) -> float:
    """How likely a whole order is right; errors of the runs are independent but for what they have in common."""
    if not np.isfinite(variance).all():
        return float("nan")
    order = np.argsort(-forecast, kind="stable")
    best, spread = forecast[order], np.sqrt(variance[order])
    if len(best) == 2:
        return float(probability_above(best[None], variance[order][None], freedom)[0, 0, 1])
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(DRAWS, len(best))) * np.maximum(spread, LEAST)
    errors *= np.sqrt(freedom / rng.chisquare(freedom, size=(DRAWS, 1)))
    return float((np.diff(best + errors, axis=1) < 0).all(axis=1).mean())


def difference_uncertainty(
    known: StudyModels, fits: Sequence[TaskFit], capability: Floats, seen: Bools
) -> DifferenceUncertainty:
    """Errors of differences between other families at equal compute; every pair of families counts the same."""
    errors = honest_errors(known, fits, seen)
    families = [str(f) for f in np.unique(known.families[: known.scored][seen[: known.scored]])]
    squares: list[Floats] = []
    levers: list[Floats] = []
    weights: list[float] = []
    for pair in combinations(families, 2):
        if errors is None:
            break
        runs = [
            TrainingRun(f, np.flatnonzero((known.families == f) & seen & np.isfinite(known.points.flops))) for f in pair
        ]
        where = [
            m for m in comparison_points(known.points, runs) if np.isfinite(_difference(known.points, errors, m)).all()
        ]
        for m in where:
            said = forecast_at(known, fits, capability, m)[0][:-1]
            squares.append(_difference(known.points, errors, m) ** 2)
            levers.append(leverage(said, known.dataset.chance).mean(axis=1))
            weights.append(1 / len(where))
    if len(squares) >= FEWEST_PAIRS:
        parts = [_variance(*x, np.array(weights)) for x in zip(np.array(squares).T, np.array(levers).T, strict=True)]
        base, rise = np.array(parts).T
        return DifferenceUncertainty(base, rise, len(families))
    apart = 2 * np.array([spread_of(fit.out_of_fold).scale for fit in fits]) ** 2
    return DifferenceUncertainty(np.append(apart, apart.mean()), np.zeros(len(fits) + 1), len(families))


def _variance(squares: Floats, levers: Floats, weights: Floats) -> Floats:
    """Base and rise of the variance, neither negative, by weighted least squares."""
    root = np.sqrt(weights)
    columns = np.column_stack([np.ones_like(levers), levers]) * root[:, None]
    return np.asarray(nnls(columns, squares * root)[0])


def _difference(points: ScalePoints, errors: Floats, point: ComparisonPoint) -> Floats:
    """By how much the first run's error exceeds the second's, per task and for the mean."""
    first, second = ([at_compute(points, e, rows, point.flops) for e in errors] for rows in point.rows)
    return _with_mean(np.array(first) - np.array(second))


def honest_errors(known: StudyModels, fits: Sequence[TaskFit], seen: Bools) -> Floats | None:
    """Honest errors by model, T × M; None where a method does not say whose they are.

    Methods list them family after family, in the order in which families are left out.
    """
    out = np.full((len(fits), len(known.models)), np.nan)
    for t, fit in enumerate(fits):
        able = seen[: known.scored] & np.isfinite(known.dataset.accuracy[t])
        families = known.dataset.families[seen[: known.scored]]
        sets = inner_folds(families, able[seen[: known.scored]])
        order = np.flatnonzero(seen[: known.scored])[np.concatenate([np.flatnonzero(s) for s in sets])]
        if not np.array_equal(known.families[order], fit.out_of_fold.families):
            return None
        out[t, order] = fit.out_of_fold.errors
    return out
