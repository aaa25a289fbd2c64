"""Forecasts of aggregates: the mean of their members' forecasts, or their own fit, whichever errs less out of fold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchcast.aggregates import aggregate_accuracy, weights
from benchcast.fits import Fit, Forecast, load
from benchcast.intervals import spread_of
from benchcast.records import Task
from benchcast.store import Study
from benchcast.task_fit import OutOfFoldErrors


@dataclass(frozen=True, slots=True, repr=False)
class AggregateFit:
    """The own fit of an aggregate and the fits of its members, with their errors on the same held-out models."""

    task: Task
    own: Fit
    members: tuple[Fit, ...]
    chance: Mapping[str, float]  # of the members
    joint: OutOfFoldErrors  # of the mean of the members' forecasts
    own_error: float  # root mean square on families that were held out
    mean_error: float

    def __repr__(self) -> str:
        return f"<AggregateFit of {self.task.name!r} from {len(self.members)} members>"

    @property
    def by_members(self) -> bool:
        """Whether the mean of the members' forecasts is used."""
        return self.mean_error < self.own_error

    def combine(self, forecasts: Sequence[Forecast], own: Forecast) -> Forecast:
        """The forecast of a model from those of the members, in their order, and from that of the own fit.

        The interval has the width of the members' joint errors. It is wider for a model whose forecasts by the members
        have wider intervals than the models that they were held out with, such as a model unlike any other.
        """
        if not self.by_members or not all(math.isfinite(f.accuracy) for f in forecasts):
            return own
        accuracy = aggregate_accuracy(self.task, [f.accuracy for f in forecasts], self.chance)
        usual = [spread_of(fit.core.out_of_fold, own.level).half_width for fit in self.members]
        wider = np.mean([(f.high - f.low) / 2 / u for f, u in zip(forecasts, usual, strict=True)])
        half = spread_of(self.joint, own.level).half_width * float(wider)
        low, high = max(accuracy - half, 0.0), min(accuracy + half, 1.0)
        remarks = [f.remark for f in forecasts if f.remark]
        remark = f"{len(remarks)} of {len(forecasts)} members: {remarks[0]}" if remarks else ""
        return replace(own, accuracy=accuracy, low=low, high=high, capability=math.nan, remark=remark)

    def describe(self) -> str:
        """One line with both errors, in points."""
        used, other = ("members", "own fit") if self.by_members else ("own fit", "members")
        errors = {"members": self.mean_error, "own fit": self.own_error}
        return (
            f"{self.task.name}: forecast by {used}, {100 * errors[used]:.1f} points on families not shown; "
            f"by {other} {100 * errors[other]:.1f}"
        )


def aggregate_fits(study: Study, fits: Sequence[Fit]) -> list[AggregateFit]:
    """Aggregates among the fits whose members are all fitted, here or in the study.

    Parameters
    ----------
    study : the study, which says what the members are
    fits : fits of some of its tasks
    """
    by_task = {fit.task: fit for fit in fits}
    found = []
    for task in study.tasks:
        if not task.members or task.name not in by_task:
            continue
        fitted = study.fitted_tasks()
        for member in task.members:
            if member not in by_task and member in fitted:
                by_task[member] = load(study.fit_folder(member))
        if all(member in by_task for member in task.members):
            made = _aggregate_fit(study, task, by_task[task.name], [by_task[m] for m in task.members])
            found += [made] if made is not None else []
    return found


def _aggregate_fit(study: Study, task: Task, own: Fit, members: Sequence[Fit]) -> AggregateFit | None:
    """Both ways on the models that all fits have held out; None if there are none."""
    errors = [dict(zip(f.core.out_of_fold.models, f.core.out_of_fold.errors, strict=False)) for f in (own, *members)]
    shared = [m for m in own.core.out_of_fold.models if all(m in known for known in errors)]
    if not shared:
        return None
    chance = {t.name: t.chance for t in study.tasks}
    rows = [i for i, m in enumerate(own.core.out_of_fold.models) if m in set(shared)]
    of_own = _part(own.core.out_of_fold, rows)
    mean = np.array([np.dot(weights(task, chance), [known[m] for known in errors[1:]]) for m in of_own.models])
    joint = replace(of_own, errors=mean)
    return AggregateFit(task, own, tuple(members), chance, joint, spread_of(of_own).scale, spread_of(joint).scale)


def _part(errors: OutOfFoldErrors, rows: Sequence[int]) -> OutOfFoldErrors:
    """Errors of some of the models."""
    arrays = {
        name: value[list(rows)]
        for name in ("errors", "families", "hidden_set", "observed", "distance")
        if len(value := getattr(errors, name)) == len(errors.errors)
    }
    return replace(errors, models=tuple(errors.models[i] for i in rows), **arrays)


def with_aggregates(aggregates: Sequence[AggregateFit], forecasts: Mapping[str, Forecast]) -> dict[str, Forecast]:
    """Forecasts of one model by task, with those of aggregates as they are to be used; others are unchanged.

    `forecasts` has to hold those of all members.
    """
    combined = dict(forecasts)
    for made in aggregates:
        members = [forecasts[fit.task] for fit in made.members]
        combined[made.task.name] = made.combine(members, forecasts[made.task.name])
    return combined
