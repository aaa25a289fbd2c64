"""Order training runs by their forecasts at equal compute, with the probability that the order is right.

compare_runs(study, ["oak", "oak-b"])

Scores of these runs are not used. The error of a difference between two forecasts is estimated from all pairs of other
families, compared in the same way: errors that two forecasts share cancel in both cases.
Axes: T tasks, followed by their mean; R runs; M models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr

from benchcast.choices import MethodName
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.extrapolation.backtest import StudyModels, read_study_models
from benchcast.extrapolation.runs import (
    SAME_SIZE,
    ComparisonPoint,
    DifferenceUncertainty,
    TrainingRun,
    comparison_points,
    difference_uncertainty,
    find_run,
    forecast_at,
    leverage,
)
from benchcast.folds import FEWEST_MODELS
from benchcast.formatting import as_names, counted, plain
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Floats, Ints
from benchcast.store import Study, StudyLike

DRAWS = 20_000
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
    method: MethodName = "salience",
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
    names = as_names(names)
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise InputError(f"--runs {','.join(names)}: two or more different runs are needed, as in --runs A,B")
    models = read_study_models(Study.of(study), tasks, method=method, device=device)
    runs = [find_run(name, models.models, models.families) for name in names]
    rows = np.concatenate([run.rows for run in runs])
    if len(np.unique(rows)) < len(rows):
        raise InputError(f"--runs {','.join(names)}: one of them is part of another")
    return rank_runs(models, runs, on_step=tell)


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
        raise InputError(f"method {models.method!r} does not read losses; use one that does, such as salience")
    capability = np.stack([models.log_capability(fit) for fit in fits])
    uncertainty = difference_uncertainty(models, fits, capability, seen)
    rankings = tuple(rank(models, fits, capability, point, uncertainty) for point in points)
    return RunComparison(tuple(names), (*(fit.task.name for fit in fits), MEAN), rankings, uncertainty)


def rank(
    models: StudyModels,
    fits: Sequence[TaskFit],
    capability: Floats,
    point: ComparisonPoint,
    uncertainty: DifferenceUncertainty,
) -> RunRanking:
    """Order and probabilities at one comparison point."""
    forecast, observed = forecast_at(models, fits, capability, point)
    variance = uncertainty.of_runs(leverage(forecast[:-1], models.dataset.chance))
    better = probability_above(forecast, variance, uncertainty.freedom)
    order = np.argsort(-forecast, axis=1, kind="stable")
    likely = [likely_order(f, v, uncertainty.freedom) for f, v in zip(forecast, variance, strict=True)]
    return RunRanking(point.params, point.flops, forecast, observed, better, order, np.array(likely))


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
