"""Order training runs by their forecasts at equal size and compute, with the probability of each order.

The fit does not see the runs. Their forecasts differ from their scores by correlated errors, so the variance of a
difference of two forecasts is estimated from pairs of other families at equal compute.
Axes: T tasks, followed by their mean; R runs; M models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls
from scipy.special import stdtr

from benchcast.errors import InputError, NotEnoughDataError
from benchcast.forecasts.intervals import root_mean_square
from benchcast.messages import as_names, counted, did_you_mean, plain
from benchcast.methods import CAPABILITY_METHOD, METHODS, MethodName
from benchcast.methods.law import share_above_chance
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats, Ints
from benchcast.scaling.extrapolate import StudyModels, read_study_models
from benchcast.scaling.family_law import ScalePoints
from benchcast.splits import FEWEST_MODELS
from benchcast.study.study import Study, StudyLike

SAME_SIZE = 1.5  # runs are compared if their sizes are within this factor
FEWEST_PAIRS = 6  # differences between other families that an estimate of the variance needs
DRAWS = 20_000  # of the errors of three or more runs
LEAST = 1e-6  # lower bound of a standard deviation
MEAN = "mean of tasks"


@dataclass(frozen=True, slots=True)
class RunRanking:
    """Order of the runs at one comparison point."""

    params: float
    flops: float
    forecast: Floats  # accuracies, (T + 1) × R
    observed: Floats  # accuracies, (T + 1) × R; NaN if unknown
    better: Floats  # (T + 1) × R × R: probability that the first run is above the second
    order: Ints  # (T + 1) × R, best first
    likely: Floats  # T + 1: probability that the whole order is right


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The order of the runs at every size they share, the largest first."""

    runs: tuple[str, ...]
    tasks: tuple[str, ...]  # followed by their mean
    rankings: tuple[RunRanking, ...]
    uncertainty: DifferenceUncertainty

    def __repr__(self) -> str:
        sizes, tasks = counted(len(self.rankings), "size"), counted(len(self.tasks) - 1, "task")
        return f"<RunComparison of {', '.join(self.runs)} at {sizes} on {tasks}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `benchcast compare --runs --json` prints them; unknown numbers are None."""

        def by_run(values: Any) -> dict[str, Any]:
            return dict(zip(self.runs, values, strict=True))

        sizes = []
        for ranking in self.rankings:
            tasks = {
                task: {
                    "forecast": by_run(ranking.forecast[t]),
                    "observed": by_run(ranking.observed[t]),
                    "order": [self.runs[i] for i in ranking.order[t]],
                    "likely": ranking.likely[t],
                    "above": {run: by_run(row) for run, row in zip(self.runs, ranking.better[t], strict=True)},
                }
                for t, task in enumerate(self.tasks)
            }
            sizes.append({"params": ranking.params, "flops": ranking.flops, "tasks": tasks})
        return dict(plain({"runs": self.runs, "sizes": sizes}))


def compare_runs(
    study: StudyLike,
    names: Sequence[str],
    *,
    tasks: Sequence[str] = (),
    method: MethodName = CAPABILITY_METHOD,
    device: str = "",
    tell: Callable[[str], None] = lambda line: None,
) -> RunComparison:
    """Order training runs by their forecasts at every size that they share.

    Parameters
    ----------
    study : an opened study or its folder
    names : runs: families, or names of models without their @tokens
    tasks : tasks of study.toml; empty: all
    method : how capability is measured; one that reads losses
    device : torch device for the fits; empty: numpy
    tell : called with a line at each step

    Returns
    -------
    the order at every size and its probability; scores of these runs are not used

    >>> import benchcast as bc
    >>> bc.compare_runs("study", ["ash", "oak"], tasks=["code"], method="label-token")
    <RunComparison of ash, oak at 4 sizes on 1 task>
    """
    names = run_names(names)
    models = read_study_models(Study.of(study), tasks, method=method, device=device)
    return rank_runs(models, find_runs(names, models.models, models.families), on_step=tell)


def rank_runs(
    models: StudyModels, runs: Sequence[TrainingRun], *, on_step: Callable[[str], None] = lambda line: None
) -> RunComparison:
    """Order runs of a study that has been read; their scores are not used.

    Parameters
    ----------
    models : the models of the study
    runs : the runs to compare, from `find_run`
    on_step : called with a line at each step

    Returns
    -------
    the order at every size that the runs share, with probabilities
    """
    names = [run.name for run in runs]
    points = comparison_points(models.points, runs)
    if not points:
        raise NotEnoughDataError(
            f"{', '.join(names)}: they share no compute at a size that all have (within a factor of "
            f"{SAME_SIZE:g}); single models, named without the @ such as ash-50M, are compared at any size"
        )
    seen = ~np.isin(np.arange(len(models.models)), np.concatenate([run.rows for run in runs]))
    if seen[: models.scored].sum() < FEWEST_MODELS:
        raise NotEnoughDataError(
            f"without these runs fewer than {FEWEST_MODELS} models with scores are left for the fit"
        )
    on_step("fitting without the runs")
    fits = models.fits(seen)
    if not fits[0].reads_losses:
        raise InputError(
            f"method {models.method!r} does not read losses; use one that does, such as {CAPABILITY_METHOD}"
        )
    capability = np.stack([models.log_capability(fit) for fit in fits])
    uncertainty = difference_uncertainty(models, fits, capability, seen=seen)
    rankings = tuple(rank(models, fits, capability, point=point, uncertainty=uncertainty) for point in points)
    return RunComparison(
        runs=tuple(names),
        tasks=(*(fit.task.name for fit in fits), MEAN),
        rankings=rankings,
        uncertainty=uncertainty,
    )


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A family, or the checkpoints of one of its models."""

    name: str
    rows: Ints  # indices of its models


def run_names(names: Sequence[str]) -> Sequence[str]:
    """The names of runs to compare; InputError unless there are at least two, all different."""
    names = as_names(names)
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise InputError(f"--runs {','.join(names)}: two or more different runs are needed, as in --runs A,B")
    return names


def find_runs(names: Sequence[str], models: Sequence[str], families: npt.NDArray[np.str_]) -> list[TrainingRun]:
    """The runs of these names (see `find_run`); InputError if two of them have a model in common."""
    runs = [find_run(name, models, families) for name in names]
    rows = np.concatenate([run.rows for run in runs])
    if len(np.unique(rows)) < len(rows):
        raise InputError(f"--runs {','.join(names)}: one of them is part of another")
    return runs


def find_run(name: str, models: Sequence[str], families: npt.NDArray[np.str_]) -> TrainingRun:
    """The run named by a family, or by a model's name before the @."""
    stems = np.array([m.partition("@")[0] for m in models])
    rows = np.flatnonzero(families == name)
    rows = rows if len(rows) else np.flatnonzero(stems == name)
    if not len(rows):
        known = sorted({*map(str, families), *map(str, stems)})
        raise InputError(
            f"unknown run {name!r}; families are {', '.join(sorted(set(families)))}{did_you_mean(name, known)}"
        )
    return TrainingRun(name, rows)


@dataclass(frozen=True, slots=True)
class ComparisonPoint:
    """A compute that several runs of about the same size have reached."""

    params: float
    flops: float
    rows: tuple[Ints, ...]  # for each run, indices of its models of this size, by compute


def comparison_points(points: ScalePoints, runs: Sequence[TrainingRun]) -> list[ComparisonPoint]:
    """The points at which runs can be compared: for each size that all have, the most compute that all reached."""
    sizes = [np.unique(points.params[run.rows][np.isfinite(points.flops[run.rows])]) for run in runs]
    groups: list[tuple[float, ...]] = []  # a size of each run
    if all(len(s) == 1 for s in sizes):  # single models are compared at any size, also an unknown one
        groups.append(tuple(float(s[0]) for s in sizes))
    elif all(np.isfinite(s).any() for s in sizes):
        finite = [s[np.isfinite(s)] for s in sizes]
        for size in finite[0]:
            nearest = tuple(float(s[np.abs(np.log(s / size)).argmin()]) for s in finite)
            if all(1 / SAME_SIZE <= n / size <= SAME_SIZE for n in nearest):
                groups.append(nearest)
    found = []
    for group in groups:
        rows = tuple(_checkpoints(points, run.rows, size) for run, size in zip(runs, group, strict=True))
        least = max(float(points.flops[r[0]]) for r in rows)
        most = min(float(points.flops[r[-1]]) for r in rows)
        if least <= most:
            found.append(ComparisonPoint(params=float(np.exp(np.mean(np.log(group)))), flops=most, rows=rows))
    return sorted(found, key=lambda point: -point.params)


def _checkpoints(points: ScalePoints, rows: Ints, size: float) -> Ints:
    """The models of a run that have a size and known compute, by compute."""
    params = points.params[rows]
    kept = rows[(params == size) | (np.isnan(params) & np.isnan(size))]
    kept = kept[np.isfinite(points.flops[kept])]
    return kept[np.argsort(points.flops[kept], kind="stable")]


def rank(
    models: StudyModels,
    fits: Sequence[TaskFit],
    capability: Floats,
    *,
    point: ComparisonPoint,
    uncertainty: DifferenceUncertainty,
) -> RunRanking:
    """Order and probabilities at one comparison point."""
    forecast, observed = forecast_at(models, fits, capability, point=point)
    variance = uncertainty.of_runs(leverage(forecast[:-1], _floors(fits)))
    likely = [likely_order(f, v, uncertainty.freedom) for f, v in zip(forecast, variance, strict=True)]
    return RunRanking(
        params=point.params,
        flops=point.flops,
        forecast=forecast,
        observed=observed,
        better=probability_above(forecast, variance, uncertainty.freedom),
        order=np.argsort(-forecast, axis=1, kind="stable"),
        likely=np.array(likely),
    )


def forecast_at(
    models: StudyModels, fits: Sequence[TaskFit], capability: Floats, *, point: ComparisonPoint
) -> tuple[Floats, Floats]:
    """Forecasts and scores of the runs at a point, with the mean of tasks ((T + 1) × R each)."""
    forecasts = [
        [float(fit.law.accuracy(np.exp(at_compute(models.points, c, r, flops=point.flops)))) for r in point.rows]
        for fit, c in zip(fits, capability, strict=True)
    ]
    observed = [[at_compute(models.points, a, r, flops=point.flops) for r in point.rows] for a in models.observed]
    return with_mean(np.array(forecasts)), with_mean(np.array(observed))


def at_compute(points: ScalePoints, values: Floats, rows: Ints, *, flops: float) -> float:
    """A value of a run at a given compute, interpolated in log compute; NaN if a neighbour is unknown."""
    return float(np.interp(np.log(flops), np.log(points.flops[rows]), values[rows]))


def with_mean(values: Floats) -> Floats:
    """The values by task followed by their mean over tasks."""
    return np.concatenate([values, values.mean(axis=0, keepdims=True)])


def leverage(forecast: Floats, floors: Floats) -> Floats:
    """Slope of the sigmoid relative to its midpoint, for each task and their mean ((T + 1) × R)."""
    share = np.clip(share_above_chance(forecast, floors[:, None]), 0, 1)
    return with_mean(4 * share * (1 - share))


def _floors(fits: Sequence[TaskFit]) -> Floats:
    """The floor of each task's law (T)."""
    return np.array([fit.law.chance for fit in fits])


@dataclass(frozen=True, slots=True)
class DifferenceUncertainty:
    """Variance of the difference of two forecasts, for each task and for their mean.

    It is `base` plus `rise` times the leverage of the two forecasts: near chance and near 1 an error of capability
    hardly changes the score.
    """

    base: Floats
    rise: Floats
    families: int
    learns_weights: bool = True  # by the method of the forecasts

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the differences."""
        return max(self.families - 1, 1)

    def of_runs(self, leverage: Floats) -> Floats:
        """Variance that each run contributes to a difference ((T + 1) × R).

        The errors it is estimated from are of fits with one family fewer. Weights that are learned from one more family
        err less, about by 1 / families; a plain mean of losses does not.
        """
        per_run = (self.base[:, None] + self.rise[:, None] * leverage) / 2
        return per_run * (1 - 1 / self.families) if self.learns_weights and self.families > 1 else per_run


def difference_uncertainty(
    models: StudyModels, fits: Sequence[TaskFit], capability: Floats, *, seen: Bools
) -> DifferenceUncertainty:
    """Estimate the variance from differences between other families at equal compute.

    Every pair of families has the same weight. With fewer than `FEWEST_PAIRS` differences, the errors of two forecasts
    are taken as independent.
    """
    errors = errors_by_model(models, fits)
    families = [str(f) for f in np.unique(models.families[: models.scored][seen[: models.scored]])]
    learns = METHODS[models.method].learns_weights
    squares: list[Floats] = []
    levers: list[Floats] = []
    weights: list[float] = []
    for pair in combinations(families, 2):
        usable = seen & np.isfinite(models.points.flops)
        runs = [TrainingRun(family, np.flatnonzero((models.families == family) & usable)) for family in pair]
        measured = []
        for point in comparison_points(models.points, runs):
            first, second = (
                np.array([at_compute(models.points, e, rows, flops=point.flops) for e in errors]) for rows in point.rows
            )
            difference = with_mean(first - second)
            if np.isfinite(difference).all():
                measured.append((point, difference))
        for point, difference in measured:
            forecast = forecast_at(models, fits, capability, point=point)[0][:-1]
            squares.append(difference**2)
            levers.append(leverage(forecast, _floors(fits)).mean(axis=1))
            weights.append(1 / len(measured))
    if len(squares) >= FEWEST_PAIRS:
        parts = [_variance(*x, np.array(weights)) for x in zip(np.array(squares).T, np.array(levers).T, strict=True)]
        base, rise = np.array(parts).T
        return DifferenceUncertainty(base=base, rise=rise, families=len(families), learns_weights=learns)
    independent = 2 * np.array([root_mean_square(fit.out_of_fold) for fit in fits]) ** 2
    base = np.append(independent, independent.mean())
    return DifferenceUncertainty(base=base, rise=np.zeros(len(base)), families=len(families), learns_weights=learns)


def errors_by_model(models: StudyModels, fits: Sequence[TaskFit]) -> Floats:
    """Out-of-fold errors by model (T × M); NaN for a model that was not held out."""
    row_of = {model: i for i, model in enumerate(models.models)}
    out = np.full((len(fits), len(models.models)), np.nan)
    for errors, fit in zip(out, fits, strict=True):
        errors[[row_of[m] for m in fit.out_of_fold.models]] = fit.out_of_fold.errors
    return out


def _variance(squares: Floats, levers: Floats, weights: Floats) -> Floats:
    """Non-negative base and rise of the variance, by weighted least squares."""
    root = np.sqrt(weights)
    columns = np.column_stack([np.ones_like(levers), levers]) * root[:, None]
    return np.asarray(nnls(columns, squares * root)[0])


def probability_above(forecast: Floats, variance: Floats, freedom: int) -> Floats:
    """Probability that each run is above each other run ((T + 1) × R × R)."""
    difference = forecast[:, :, None] - forecast[:, None, :]
    spread = np.sqrt(variance[:, :, None] + variance[:, None, :])
    return np.asarray(stdtr(freedom, difference / np.maximum(spread, LEAST)))


def likely_order(forecast: Floats, variance: Floats, freedom: int) -> float:
    """Probability that the whole order is right; the runs' errors are independent apart from a shared scale."""
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
