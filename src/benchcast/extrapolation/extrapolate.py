"""Forecast models that do not exist yet: compute → capability → accuracy, with a backtest of both steps.

extrapolate(study, "oak-a", Target(params=2e8, tokens=1e8))

The backtest hides the largest models of every family, then the latest checkpoints, refits everything without them and
forecasts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchcast.choices import MethodName
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.extrapolation.backtest import HiddenModel, backtest, family_laws, read_study_models
from benchcast.extrapolation.family_law import (
    FEWEST,
    FEWEST_VALUES,
    FORMS,
    HOLDOUT_KINDS,
    Drift,
    ExtrapolatedForecast,
    ScalePoints,
    estimate_drift,
    extrapolate_task,
    hide_largest,
)
from benchcast.formatting import counted, did_you_mean, plain
from benchcast.records import Floats
from benchcast.storage.tables import quantity
from benchcast.store import Study, StudyLike

WAY = 25  # points between the largest known model and the target, for the figure
FAR = 10.0  # ratio to the compute of the largest known model above which a remark is added


@dataclass(frozen=True, slots=True)
class Target:
    """The model to forecast; NaN if not given."""

    params: float = math.nan
    tokens: float = math.nan  # training tokens
    flops: float = math.nan  # training compute

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `params=7B,tokens=2T`; flops= may be added or used instead."""
        known = ("params", "tokens", "flops")
        values: dict[str, float] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, _, value = (x.strip() for x in part.partition("="))
            if name not in known:
                hint = did_you_mean(name, known)
                raise InputError(f"--to: unknown quantity {name!r}; known: {', '.join(known)}{hint}")
            if not value or name in values:
                raise InputError(f"--to: {name} needs one value, as in params=7B,tokens=2T")
            values[name] = quantity("--to", name, value)
        return cls(**values)

    def as_points(self, family: ScalePoints) -> ScalePoints:
        """The target as a point; missing FLOPs follow the family's median ratio to 6 × params × tokens."""
        flops = self.flops
        if math.isnan(flops):
            ratio = family.flops / (6 * family.params * family.tokens)
            flops = 6 * self.params * self.tokens * (float(np.nanmedian(ratio)) if np.isfinite(ratio).any() else 1.0)
        return ScalePoints(np.array([self.params]), np.array([self.tokens]), np.array([flops]))


@dataclass(frozen=True, slots=True)
class TaskExtrapolation:
    """The target's forecast on one task and the law behind it."""

    task: str
    forecast: ExtrapolatedForecast
    path: ExtrapolatedForecast  # at the points between the largest model and the target
    form: str
    floor: float  # irreducible capability
    exponents: tuple[float, ...]
    drift: Drift


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """Forecasts of the target, and the backtest on hidden models of all families."""

    family: str
    target: ScalePoints
    way: ScalePoints  # from the family's largest model to the target
    known: ScalePoints  # the family's models
    observed: dict[str, Floats]  # accuracies of the family's models by task; NaN if unknown
    tasks: tuple[TaskExtrapolation, ...]
    hidden: tuple[HiddenModel, ...]
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        tasks = counted(len(self.tasks), "task")
        return f"<Extrapolation of {self.family!r} to {self.target.flops[0]:.3g} FLOPs on {tasks}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `benchcast extrapolate --json` prints them; unknown numbers are None."""
        tasks = {
            t.task: {k: v[0] for k, v in asdict(t.forecast).items()}
            | {"law": {"form": t.form, "floor": t.floor, "exponents": t.exponents, "drift": asdict(t.drift)}}
            for t in self.tasks
        }
        content = {
            "family": self.family,
            "target": {k: getattr(self.target, k)[0] for k in ("params", "tokens", "flops")},
            "tasks": tasks,
            "remarks": self.remarks,
            "hidden": [asdict(h) | {"inside": h.inside} for h in self.hidden],
        }
        return dict(plain(content))


def extrapolate(
    study: StudyLike,
    family: str,
    target: Target | str,
    *,
    tasks: Sequence[str] = (),
    method: MethodName = "salience",
    tell: Callable[[str], None] = lambda line: None,
) -> Extrapolation:
    """Forecast a larger or longer-trained model of a family, and backtest the procedure on hidden models.

    Parameters
    ----------
    study : an opened study or its folder
    family : a family of models.csv with losses at several sizes or training lengths
    target : params and training tokens of the model, or its training compute in FLOPs; text such as
        "params=7B,tokens=2T" works, too
    tasks : tasks of study.toml; empty: all
    method : method that measures capability; it must read losses
    tell : called with a line at each step

    Returns
    -------
    forecasts with prediction intervals for each task (accuracies from 0 to 1), the backtest, and remarks; `.to_dict()`

    >>> import benchcast as bc
    >>> bc.extrapolate("study", "ash", "params=200M,tokens=4B", tasks=["code"], method="label-token")
    <Extrapolation of 'ash' to 4.8e+18 FLOPs on 1 task>
    """
    target = Target.parse(target) if isinstance(target, str) else target
    models = read_study_models(Study.of(study), tasks, method=method)
    allowed = _allowed(target)
    in_family = models.families == family
    names = sorted(set(map(str, models.families)))
    if not in_family.any():
        raise InputError(f"unknown family {family!r}; models.csv has {', '.join(names)}{did_you_mean(family, names)}")
    tell("fitting")
    fits = models.fits(np.ones(len(models.models), bool))
    if not fits[0].reads_losses:
        raise InputError(f"method {method!r} does not read losses; use one that does, such as salience")
    family_points = models.points.take(in_family)
    point = target.as_points(family_points)
    if not np.isfinite(family_points.flops).any():
        raise NotEnoughDataError(_too_few(family, family_points, allowed))
    if not np.isfinite(point.flops[0]):
        raise InputError("the target's compute is not a finite number; are its params and tokens right?")
    way = _way(family_points, point)
    forecasts = []
    for fit in fits:
        laws = family_laws(models, models.log_capability(fit), ~np.zeros(len(in_family), bool), allowed=allowed)
        if family not in laws:
            raise NotEnoughDataError(_too_few(family, family_points, allowed))
        law, drift = laws[family], estimate_drift([*laws.values()])
        exponents = tuple(float(x) for x in law.law.exponents)
        forecast, path = extrapolate_task(fit, law, drift, point), extrapolate_task(fit, law, drift, way)
        forecasts.append(TaskExtrapolation(fit.task.name, forecast, path, law.form, law.law.floor, exponents, drift))
    observed = {fit.task.name: scores[in_family] for fit, scores in zip(fits, models.observed, strict=True)}
    hidden = [row for kind in HOLDOUT_KINDS for row in backtest(models, kind, on_step=tell)]
    remarks = _remarks(forecasts, point, family_points)
    return Extrapolation(family, point, way, family_points, observed, tuple(forecasts), tuple(hidden), remarks)


def _way(known: ScalePoints, target: ScalePoints) -> ScalePoints:
    """Points between the family's largest model and the target, evenly spaced in logs."""
    last = int(np.nanargmax(known.flops))
    fraction = np.linspace(0, 1, WAY)

    def between(a: Floats, b: Floats) -> Floats:
        return np.asarray(a[last] ** (1 - fraction) * b[0] ** fraction)

    return ScalePoints(
        between(known.params, target.params), between(known.tokens, target.tokens), between(known.flops, target.flops)
    )


def _allowed(target: Target) -> tuple[str, ...]:
    both = np.isfinite([target.params, target.tokens]).all()
    if not both and math.isnan(target.flops):
        absent = "tokens" if math.isnan(target.tokens) else "params"
        raise InputError(f"the target has no {absent}; give both params and tokens, or flops")
    values = [x for x in (target.params, target.tokens, target.flops) if not math.isnan(x)]
    if not all(0 < x < math.inf for x in values):
        raise InputError("the target's params, tokens and flops must be positive numbers")
    return FORMS if both else FORMS[1:]


def _too_few(family: str, points: ScalePoints, allowed: Sequence[str]) -> str:
    placed = points.take(np.isfinite(points.flops))
    both = placed.take(np.isfinite(placed.params * placed.tokens))
    needed = f"{FEWEST[FORMS[1]]} models of {FEWEST_VALUES} different values of compute"
    also = f", or {FEWEST[FORMS[0]]} of {FEWEST_VALUES} sizes and lengths of training" if FORMS[0] in allowed else ""
    return (
        f"family {family!r} has too few points for a power law: {len(points)} models with losses, {len(placed)} with "
        f"known compute, {len(both)} with params and tokens; a law needs {needed}{also} (see models.csv)"
    )


def _remarks(tasks: Sequence[TaskExtrapolation], target: ScalePoints, known: ScalePoints) -> tuple[str, ...]:
    remarks = []
    ratio = float(target.flops[0] / np.nanmax(known.flops))
    if ratio > FAR:
        smaller = known.flops[~hide_largest(known)]
        reach = float(np.nanmax(known.flops) / np.nanmax(smaller)) if np.isfinite(smaller).any() else 1.0
        remarks.append(
            f"far outside: {ratio:,.3g} times the compute of the family's largest model, while the check below covers "
            f"{reach:.2g} times; the true uncertainty may be larger than the interval"
        )
    if min(t.drift.groups for t in tasks) < 2:
        remarks.append("fewer than two families have enough models to hide some: the interval's width is a guess")
    return tuple(remarks)
