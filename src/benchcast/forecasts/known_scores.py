"""Correct forecasts by a model's known scores on other benchmarks.

A model that scores higher than forecast on one benchmark often does so on related ones. How errors go together is
learned from the out-of-fold errors of the fits, as a covariance matrix of tasks, shrunk towards its diagonal. A new
model's errors on the benchmarks that it has scores on then give the expected error on the others, as in the
conditional mean of a normal distribution. The shrinkage of each task is selected on left-out families, and a task
whose error does not fall by two standard errors there is not corrected. Where the known errors are larger than those of
left-out families, such as for a score that is wrong, the interval grows as that of a multivariate t distribution does.
Errors are differences of arcsin √accuracy (see `intervals`). Axes: M models, T tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from benchcast.forecasts.forecast import Forecast
from benchcast.forecasts.intervals import ScoreDistribution, between
from benchcast.methods.interval_width import angle, from_angle
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats
from benchcast.splits import family_balanced

SHRINKAGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85)
SURE = 2.0  # standard errors over families by which the error must fall
FEWEST_FAMILIES = 5
LOSSES_ALONE = "from losses alone: "
WIDER = 1.5  # an interval that known scores make wider by this factor is worth a remark


@dataclass(frozen=True, slots=True)
class ScoreCorrection:
    """How errors of a study's tasks go together."""

    tasks: tuple[str, ...]
    covariance: Floats  # T × T
    shrinkage: Floats  # of each task; 1: other scores do not help
    remaining: Floats  # root mean squared error of left-out families with the correction, over that without
    usable: Bools  # T × T: whether the score on the second task may be used for the first
    families: int  # number of families with out-of-fold errors

    @classmethod
    def of(cls, fits: Sequence[TaskFit]) -> ScoreCorrection:
        """From the out-of-fold errors of the fits of all tasks."""
        errors, families = _error_matrix(fits)
        tasks = [fit.task for fit in fits]
        # A task's own score is not used, nor that of a mean which contains it.
        usable = np.array(
            [[k != t and task.name not in o.members for k, o in enumerate(tasks)] for t, task in enumerate(tasks)]
        )
        shrinkage, remaining = _select(errors, families, usable)
        return cls(
            tasks=tuple(task.name for task in tasks),
            covariance=_covariance(errors, families),
            shrinkage=shrinkage,
            remaining=remaining,
            usable=usable,
            families=len(np.unique(families)),
        )

    def expected(self, task: int, errors: Floats) -> tuple[float, float]:
        """The expected error of a task as an angle, and the factor on the width of its interval.

        `errors` are the model's known errors (T), NaN where it has no score; that of the task itself is not used.
        """
        known = np.isfinite(errors) & self.usable[task]
        if self.shrinkage[task] == 1 or not known.any():
            return 0.0, 1.0
        matrix = _shrunk(self.covariance, self.shrinkage[task])
        weights = _regression(matrix, task, known)
        explained = float(weights @ matrix[known, task]) / float(matrix[task, task])
        factor = max(float(np.sqrt(max(1 - explained, 0.0))), float(self.remaining[task]))
        return float(weights @ errors[known]), min(factor, 1.0)

    def widening(self, task: int, ratios: Floats) -> float:
        """The factor, at least 1, by which known errors that are larger than usual widen the interval of a task.

        `ratios` are the model's known errors over the standard errors of their forecasts (T), NaN where unknown.
        """
        known = np.isfinite(ratios) & self.usable[task]
        matrix = _shrunk(self.covariance, self.shrinkage[task])[np.ix_(known, known)]
        scale = np.sqrt(np.diag(matrix))
        squared = float(ratios[known] @ np.linalg.solve(matrix / np.outer(scale, scale), ratios[known]))
        freedom = self.families - 1
        return float(np.sqrt(max((freedom + squared) / (freedom + known.sum()), 1.0)))


def correct(correction: ScoreCorrection, forecasts: Sequence[Forecast], scores: Floats) -> list[Forecast]:
    """Forecasts of one model, each corrected by its scores on the other tasks.

    Parameters
    ----------
    correction : of the fits that made the forecasts
    forecasts : of one model, one for each task of the correction, in its order
    scores : accuracy of the model on each task (T), NaN where unknown

    Returns
    -------
    forecasts whose remarks name the scores that were used, or say why none was
    """
    errors = angle(scores) - angle([f.accuracy for f in forecasts])
    errors = np.where(np.isfinite(scores) & np.isfinite(errors), errors, np.nan)
    ratios = errors / [_standard_error(f) for f in forecasts]
    return [_corrected(correction, t, forecast, errors=errors, ratios=ratios) for t, forecast in enumerate(forecasts)]


def _standard_error(forecast: Forecast) -> float:
    """Half the width of a forecast's interval on its wider side, as an angle, in standard deviations of a normal."""
    low, middle, high = angle([forecast.low, forecast.accuracy, forecast.high])
    return float(max(middle - low, high - middle) / ndtri(0.5 + forecast.level / 2)) or np.nan


def _corrected(correction: ScoreCorrection, t: int, forecast: Forecast, *, errors: Floats, ratios: Floats) -> Forecast:
    used = [k for k in range(len(errors)) if correction.usable[t, k] and np.isfinite(errors[k])]
    if not used:
        return _with_remark(forecast, f"{LOSSES_ALONE}no score of this model on another task is known")
    if correction.shrinkage[t] == 1:
        return _with_remark(forecast, f"{LOSSES_ALONE}no sure gain from scores on other tasks on left-out families")
    shift, factor = correction.expected(t, errors)
    wider = correction.widening(t, ratios)
    accuracy = float(from_angle(angle(forecast.accuracy) + shift))
    distribution = _distribution(forecast).moved(shift, factor * wider)
    low, high = (float(end[0]) for end in distribution.interval(forecast.level))
    moved = replace(forecast, accuracy=accuracy, low=low, high=high, distribution=distribution)
    remark = f"from losses and scores on {', '.join(correction.tasks[k] for k in used)}"
    if wider > WIDER:
        worst = correction.tasks[max(used, key=lambda k: np.nan_to_num(abs(ratios[k])))]
        remark += f"; these scores are far from their forecasts, most of all on {worst}, so the interval is wider"
    return _with_remark(moved, remark)


def _distribution(forecast: Forecast) -> ScoreDistribution:
    """The forecast's distribution, or a normal one that has its interval."""
    if forecast.distribution is not None:
        return forecast.distribution
    ends = (np.array([x]) for x in (forecast.accuracy, forecast.low, forecast.high))
    return between(*ends, level=forecast.level, freedom=np.inf)


def _with_remark(forecast: Forecast, remark: str) -> Forecast:
    return replace(forecast, remark="; ".join(filter(None, (forecast.remark, remark))))


def _error_matrix(fits: Sequence[TaskFit]) -> tuple[Floats, npt.NDArray[np.str_]]:
    """Out-of-fold errors as angles, accuracy minus forecast (M × T), and the family of each model."""
    named = [fit.out_of_fold for fit in fits if fit.out_of_fold.models]
    family_of = {m: str(f) for held in named for m, f in zip(held.models, held.families, strict=True)}
    row_of = {model: i for i, model in enumerate(family_of)}
    errors = np.full((len(row_of), len(fits)), np.nan)
    for t, fit in enumerate(fits):
        held_out = fit.out_of_fold
        if held_out.models and len(held_out.observed):
            rows = [row_of[m] for m in held_out.models]
            errors[rows, t] = angle(held_out.observed) - angle(held_out.observed + held_out.errors)
    return errors, np.array(list(family_of.values()), str)


def _covariance(errors: Floats, families: npt.NDArray[np.str_]) -> Floats:
    """Mean products of the errors of each pair of tasks, around 0; all families weigh the same."""
    weight = family_balanced(families)[:, None] if len(families) else np.zeros((0, 1))
    known = np.isfinite(errors)
    filled = np.where(known, errors, 0.0)
    return np.asarray((filled * weight).T @ filled / np.maximum((known * weight).T @ known, 1e-300))


def _shrunk(covariance: Floats, shrinkage: float) -> Floats:
    diagonal = np.diag(np.maximum(np.diag(covariance), 1e-12))
    return np.asarray((1 - shrinkage) * covariance + shrinkage * diagonal)


def _select(errors: Floats, families: npt.NDArray[np.str_], usable: Bools) -> tuple[Floats, Floats]:
    """The shrinkage of each task (T) with the surest gain on left-out families, and the error that remains."""
    tasks = errors.shape[1]
    names = np.unique(families)
    if len(names) < FEWEST_FAMILIES or tasks < 2:
        return np.ones(tasks), np.ones(tasks)
    squares = np.stack(
        [_left_out_squares(errors, families, usable, hidden=families == name) for name in names]
    )  # F × strengths + 1 × T
    change = squares[:, :-1] - squares[:, -1:]
    count = np.maximum(np.isfinite(change).sum(axis=0), 1)
    middle = np.nansum(change, axis=0) / count
    spread = np.sqrt(np.nansum((change - middle) ** 2, axis=0) / np.maximum(count - 1, 1) / count)
    surest = middle + SURE * spread
    best = np.argmin(surest, axis=0)
    enough = np.isfinite(squares[:, -1]).sum(axis=0) >= FEWEST_FAMILIES
    helps = enough & (surest[best, np.arange(tasks)] < 0)
    totals = np.nansum(squares, axis=0)
    ratio = np.sqrt(totals[best, np.arange(tasks)] / np.maximum(totals[-1], 1e-300))
    return np.where(helps, np.array(SHRINKAGES)[best], 1.0), np.where(helps, ratio, 1.0)


def _left_out_squares(errors: Floats, families: npt.NDArray[np.str_], usable: Bools, *, hidden: Bools) -> Floats:
    """Mean squared error of the hidden family, with each shrinkage and last uncorrected (strengths + 1 × T)."""
    covariance = _covariance(errors[~hidden], families[~hidden])
    matrices = [_shrunk(covariance, strength) for strength in (*SHRINKAGES, 1.0)]
    out = np.full((len(matrices), errors.shape[1]), np.nan)
    for t in range(errors.shape[1]):
        rows = errors[hidden & np.isfinite(errors[:, t])]
        if len(rows):
            out[:, t] = [np.mean(_unexplained(matrix, t, rows, usable=usable[t]) ** 2) for matrix in matrices]
    return out


def _unexplained(matrix: Floats, t: int, rows: Floats, *, usable: Bools) -> Floats:
    """Errors of models on a task, minus what their errors on the others let expect."""
    known = np.isfinite(rows) & usable
    left = rows[:, t].copy()
    for pattern in np.unique(known, axis=0):
        if pattern.any():
            alike = (known == pattern).all(axis=1)
            left[alike] -= rows[np.ix_(alike, pattern)] @ _regression(matrix, t, pattern)
    return left


def _regression(matrix: Floats, t: int, known: Bools) -> Floats:
    """Weights of the known errors in the expected error of a task."""
    return np.linalg.solve(matrix[np.ix_(known, known)], matrix[known, t])
