"""Forecasts of aggregates: the mean of their members' forecasts, or their own fit, whichever errs less out of fold.

`predict_tasks` forecasts one model on many tasks from its token losses; `predict_task` many models on one task from
arrays. Both take the mean of members from `AggregateFit.combine`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.choices import DEFAULT_LEVEL
from benchcast.forecasts.forecast import Forecast
from benchcast.forecasts.intervals import (
    Predictions,
    ScoreDistribution,
    fewer_families,
    group_squares,
    predict,
    root_mean_square,
    unit_scale,
)
from benchcast.forecasts.stored_fit import Fit, load
from benchcast.methods.interval_width import AS_BEFORE, angle, errors_as_angles, width_of_rows
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Floats, ModelMetadata, Task, TokenLosses
from benchcast.study.mean_scores import aggregate_accuracies, weights
from benchcast.study.study import Study


@dataclass(frozen=True, slots=True, repr=False)
class AggregateFit:
    """The fits of the members of an aggregate, with the errors of both ways on the same held-out models."""

    task: Task
    members: tuple[TaskFit, ...]
    joint: OutOfFoldErrors  # of the mean of the members' forecasts
    wide: Floats  # relative width of the members' intervals for the same models, mean of members
    own_error: float  # root mean square on families that were held out
    mean_error: float

    def __repr__(self) -> str:
        return f"<AggregateFit of {self.task.name!r} from {len(self.members)} members>"

    @property
    def by_members(self) -> bool:
        """Whether the mean of the members' forecasts is used."""
        return self.mean_error < self.own_error

    def combine(self, members: Sequence[Forecast] | Sequence[Predictions]) -> tuple[Floats, ScoreDistribution]:
        """Mean of the members' forecasts of each model, in the members' order, and the distribution of its score.

        Its interval has the width of the members' joint errors. It is wider for a model whose forecasts by the members
        have wider intervals than the models that they were held out with, such as a model unlike any other. All are
        NaN where a member has no forecast.
        """
        accuracy = np.array([np.atleast_1d(m.accuracy) for m in members])
        mean = aggregate_accuracies(self.task, accuracy, {f.task.name: f.task.chance for f in self.members})
        scales = np.array([m.distribution.below if m.distribution else [np.nan] for m in members])
        units = np.array([[unit_scale(fit)] for fit in self.members])
        wide = np.divide(scales, units, out=np.ones_like(scales), where=units != 0)
        squares = group_squares(errors_as_angles(self.joint) / self.wide, self.joint.families)
        joint = fewer_families(self.members[0], len(squares)) * np.sqrt(squares.mean()) * wide.mean(axis=0)
        freedom = np.full_like(mean, len(squares) - 1 if len(squares) > 1 else np.nan)
        return mean, ScoreDistribution(centre=angle(mean), below=joint, above=joint, freedom=freedom)

    def describe(self) -> str:
        """One line with both errors, in points."""
        used, other = ("members", "own fit") if self.by_members else ("own fit", "members")
        errors = {"members": self.mean_error, "own fit": self.own_error}
        return (
            f"{self.task.name}: forecast by {used}, {100 * errors[used]:.1f} points on families not shown; "
            f"by {other} {100 * errors[other]:.1f}"
        )


def member_fits(study: Study, fits: Sequence[Fit]) -> list[Fit]:
    """Stored fits of the members of aggregates among the fits, without those that are among the fits."""
    given, stored = {fit.task for fit in fits}, study.fitted_tasks()
    members = dict.fromkeys(m for task in study.tasks if task.name in given for m in task.members)
    return [load(study.fit_folder(m)) for m in members if m not in given and m in stored]


def aggregate_fits(study: Study, fits: Sequence[Fit]) -> list[AggregateFit]:
    """Aggregates among the fits whose members are all fitted, here or in the study.

    Parameters
    ----------
    study : the study
    fits : fits of some of its tasks
    """
    return _aggregates([*fits, *member_fits(study, fits)])


def _aggregates(fits: Sequence[Fit]) -> list[AggregateFit]:
    """Aggregates among the fits whose members are among them, too."""
    task_fits = {fit.task: fit.task_fit for fit in fits}
    aggregates = [_aggregate_fit(task_fit.task, task_fits) for task_fit in task_fits.values()]
    return [aggregate for aggregate in aggregates if aggregate is not None]


def predict_tasks(fits: Sequence[Fit], losses: TokenLosses, level: float = DEFAULT_LEVEL) -> list[Forecast]:
    """Forecasts of one model, one for each fit; those of aggregates as they are to be used if all members are given.

    Parameters
    ----------
    fits : fits of some tasks
    losses : of the model, on the texts of the fits
    level : nominal coverage of the intervals
    """
    alone = {fit.task: fit.predict(losses, level=level) for fit in fits}
    return [*with_aggregates(_aggregates(fits), alone).values()]


def predict_task(
    task: Task, fits: Mapping[str, TaskFit], nats: npt.NDArray[np.floating], metadata: ModelMetadata
) -> Predictions:
    """Forecasts of models on a task; on an aggregate, by its own fit or by those of its members if all are given.

    Parameters
    ----------
    task : the task
    fits : fits of the task and of others, by task
    nats : losses on the reference tokens (M × N)
    metadata : of the models
    """
    by_own_fit = predict(fits[task.name], nats, metadata)
    aggregate = _aggregate_fit(task, fits)
    if aggregate is None or not aggregate.by_members:
        return by_own_fit
    members = [predict(fit, nats, metadata) for fit in aggregate.members]
    accuracy, distribution = aggregate.combine(members)
    used = np.isfinite(accuracy)
    distribution = distribution.where(used, by_own_fit.distribution)
    low, high = distribution.interval(DEFAULT_LEVEL)
    accuracy = np.where(used, accuracy, by_own_fit.accuracy)
    return replace(by_own_fit, accuracy=accuracy, low=low, high=high, distribution=distribution)


def _aggregate_fit(task: Task, fits: Mapping[str, TaskFit]) -> AggregateFit | None:
    """Both ways on the models that all fits have held out; None if there are none, or a fit is missing."""
    if not task.members or not all(name in fits for name in (task.name, *task.members)):
        return None
    own_errors, members = fits[task.name].out_of_fold, tuple(fits[m] for m in task.members)
    errors = [dict(zip(f.out_of_fold.models, f.out_of_fold.errors, strict=False)) for f in members]
    rows = [i for i, m in enumerate(own_errors.models) if all(m in known for known in errors)]
    if not rows:
        return None
    of_own, weight = _part(own_errors, rows), weights(task, {f.task.name: f.task.chance for f in members})
    mean = np.array([np.dot(weight, [known[m] for known in errors]) for m in of_own.models])
    joint = replace(of_own, errors=mean)
    return AggregateFit(
        task=task,
        members=members,
        joint=joint,
        wide=np.mean([_width_of_models(fit, of_own.models) for fit in members], axis=0),
        own_error=root_mean_square(of_own),
        mean_error=root_mean_square(joint),
    )


def _width_of_models(fit: TaskFit, models: Sequence[str]) -> Floats:
    """Relative width of the intervals of held-out models."""
    of_rows = dict(zip(fit.out_of_fold.models, width_of_rows(fit, fit.width or AS_BEFORE), strict=True))
    return np.array([of_rows[m] for m in models])


def _part(errors: OutOfFoldErrors, rows: Sequence[int]) -> OutOfFoldErrors:
    """Errors of some of the models."""
    arrays = {
        name: value[list(rows)]
        for name in ("errors", "families", "hidden_set", "observed", "distance", "disagreement")
        if len(value := getattr(errors, name)) == len(errors.errors)
    }
    return replace(errors, models=tuple(errors.models[i] for i in rows), **arrays)


def with_aggregates(aggregates: Sequence[AggregateFit], forecasts: Mapping[str, Forecast]) -> dict[str, Forecast]:
    """Forecasts of one model by task, with those of aggregates as they are to be used; others are unchanged.

    `forecasts` has to hold those of all members.
    """
    combined = dict(forecasts)
    for aggregate in (a for a in aggregates if a.by_members):
        own, members = forecasts[aggregate.task.name], [forecasts[m] for m in aggregate.task.members]
        mean, distribution = aggregate.combine(members)
        if math.isfinite(mean[0]):
            remarks = [f.remark for f in members if f.remark]
            remark = f"{len(remarks)} of {len(members)} members: {remarks[0]}" if remarks else ""
            low, high = (float(end[0]) for end in distribution.interval(own.level))
            combined[own.task] = replace(
                own,
                accuracy=float(mean[0]),
                low=low,
                high=high,
                capability=math.nan,
                remark=remark,
                distribution=distribution,
            )
    return combined
