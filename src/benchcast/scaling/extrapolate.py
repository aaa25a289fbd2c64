"""Forecast a model to come: compute → capability by the family's law → accuracy by the task's fit; with a backtest.

The backtest hides some models of every family, fits everything again without them, and forecasts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchcast.devices import check_device, few_blas_threads
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.forecasts.all_models import AllModels, with_unscored
from benchcast.forecasts.forecast import ScoredForecast
from benchcast.messages import counted, did_you_mean, plain
from benchcast.methods import CAPABILITY_METHOD, MethodName
from benchcast.methods.capability import BlendedLosses
from benchcast.methods.spec import check_methods, fit_method, without_weak_tasks
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats
from benchcast.scaling.family_law import (
    COMPUTE,
    FEWEST,
    FEWEST_VALUES,
    FORMS,
    HOLDOUT_KINDS,
    HOLDOUT_RULES,
    SIZE_AND_TOKENS,
    Drift,
    ExtrapolatedForecast,
    FamilyLaw,
    ScalePoints,
    estimate_drift,
    extrapolate_task,
    fit_family,
    hide_largest,
)
from benchcast.splits import Fold
from benchcast.steps import steps
from benchcast.study.study import Study, StudyLike
from benchcast.study.tables import quantity

PATH_POINTS = 25  # between the largest known model and the target, for the figure
FAR = 10.0  # ratio to the compute of the largest known model above which a remark is added


@dataclass(frozen=True, slots=True)
class Target:
    """The model to forecast: its parameters, training tokens and training compute in FLOPs; NaN if not given.

    >>> import benchcast as bc
    >>> bc.Target.parse("params=7B,tokens=2T")
    Target(params=7000000000.0, tokens=2000000000000.0, flops=nan)
    """

    params: float = math.nan
    tokens: float = math.nan
    flops: float = math.nan

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `params=7B,tokens=2T`; flops= may be added or used instead."""
        known = ("params", "tokens", "flops")
        values: dict[str, float] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, _, value = (x.strip() for x in part.partition("="))
            if name not in known:
                example = f"known: {', '.join(known)}, as in params=7B,tokens=2T{did_you_mean(name, known)}"
                raise InputError(f"--to: unknown quantity {name!r}; {example}")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenModel(ScoredForecast):
    """A hidden model with its forecast and its observed score."""

    kind: str  # largest or latest
    family: str
    model: str
    unchanged: float  # score of the family's visible model nearest in compute: the baseline


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
            t.task: t.forecast.at_target(0)
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


@few_blas_threads()
def extrapolate(
    study: StudyLike,
    family: str,
    target: Target | str,
    *,
    tasks: Sequence[str] = (),
    method: MethodName = CAPABILITY_METHOD,
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
    allowed = _forms_for(target)
    in_family = models.families == family
    names = sorted(set(map(str, models.families)))
    if not in_family.any():
        raise InputError(f"unknown family {family!r}; models.csv has {', '.join(names)}{did_you_mean(family, names)}")
    tell("fitting")
    fits = models.fits(np.ones(len(models.models), bool))
    if not fits[0].reads_losses:
        raise InputError(f"method {method!r} does not read losses; use one that does, such as {CAPABILITY_METHOD}")
    models, fits, left_out = _with_capability(models, fits, asked_for=bool(tasks))
    family_points = models.points.take(in_family)
    point = target.as_points(family_points)
    if not np.isfinite(family_points.flops).any():
        raise NotEnoughDataError(_too_few(family, family_points, allowed))
    if not np.isfinite(point.flops[0]):
        raise InputError("the target's compute is not a finite number; are its params and tokens right?")
    way = _points_between(family_points, point)
    forecasts = []
    for fit in fits:
        laws = family_laws(models, models.log_capability(fit), ~np.zeros(len(in_family), bool), allowed=allowed)
        if family not in laws:
            raise NotEnoughDataError(_too_few(family, family_points, allowed))
        law, drift = laws[family], estimate_drift([*laws.values()])
        forecasts.append(
            TaskExtrapolation(
                task=fit.task.name,
                forecast=extrapolate_task(fit, law, drift, target=point),
                path=extrapolate_task(fit, law, drift, target=way),
                form=law.form,
                floor=law.law.floor,
                exponents=tuple(float(x) for x in law.law.exponents),
                drift=drift,
            )
        )
    return Extrapolation(
        family=family,
        target=point,
        way=way,
        known=family_points,
        observed={fit.task.name: scores[in_family] for fit, scores in zip(fits, models.observed, strict=True)},
        tasks=tuple(forecasts),
        hidden=tuple(
            row
            for kind in steps(HOLDOUT_KINDS, "sets of hidden models")
            for row in backtest(models, kind, on_step=tell)
        ),
        remarks=(*models.weak, *left_out, *_remarks(forecasts, point, family_points)),
    )


def _with_capability(
    models: StudyModels, fits: Sequence[TaskFit], *, asked_for: bool
) -> tuple[StudyModels, list[TaskFit], list[str]]:
    """Models and fits of the tasks whose capability follows a power law, and a line for each other task.

    A task that was asked for must have one.
    """
    good, left_out = [], []
    for fit in fits:
        try:
            models.log_capability(fit)
        except NotEnoughDataError as error:
            if asked_for:
                raise
            left_out.append(f"left out: {error}")
        else:
            good.append(fit)
    if not good:
        raise NotEnoughDataError("; ".join(left_out))
    dataset = models.dataset.for_tasks([fit.task.name for fit in good])
    return replace(models, dataset=dataset) if left_out else models, good, left_out


def _forms_for(target: Target) -> tuple[str, ...]:
    """The forms of law whose inputs a target has."""
    both = np.isfinite([target.params, target.tokens]).all()
    if not both and math.isnan(target.flops):
        absent = "tokens" if math.isnan(target.tokens) else "params"
        raise InputError(f"the target has no {absent}; give both params and tokens, or flops")
    values = [x for x in (target.params, target.tokens, target.flops) if not math.isnan(x)]
    if not all(0 < x < math.inf for x in values):
        raise InputError("the target's params, tokens and flops must be positive numbers")
    return FORMS if both else (COMPUTE,)


def _points_between(known: ScalePoints, target: ScalePoints) -> ScalePoints:
    """Points between the family's largest model and the target, evenly spaced in logs."""
    last = int(np.nanargmax(known.flops))
    fraction = np.linspace(0, 1, PATH_POINTS)

    def between(a: Floats, b: Floats) -> Floats:
        return np.asarray(a[last] ** (1 - fraction) * b[0] ** fraction)

    return ScalePoints(
        between(known.params, target.params), between(known.tokens, target.tokens), between(known.flops, target.flops)
    )


def _too_few(family: str, points: ScalePoints, allowed: Sequence[str]) -> str:
    placed = points.take(np.isfinite(points.flops))
    both = placed.take(np.isfinite(placed.params * placed.tokens))
    needed = f"{FEWEST[COMPUTE]} models of {FEWEST_VALUES} different values of compute"
    if SIZE_AND_TOKENS in allowed:
        needed += f", or {FEWEST[SIZE_AND_TOKENS]} of {FEWEST_VALUES} sizes and lengths of training"
    return (
        f"family {family!r} has too few points for a power law: {len(points)} models with losses, {len(placed)} with "
        f"known compute, {len(both)} with params and tokens; a law needs {needed} (see models.csv)"
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


@dataclass(frozen=True)
class StudyModels(AllModels):
    """All models of a study that have losses, and the method that measures their capability."""

    method: str
    weak: tuple[str, ...] = ()  # tasks that no method could learn from, and what they lack

    @property
    def points(self) -> ScalePoints:
        """Size, training tokens and compute of each model."""
        return ScalePoints(self.metadata.params, self.metadata.training_tokens, self.metadata.flops)

    def fits(self, seen: Bools) -> list[TaskFit]:
        """One fit for each task, from the scored models in `seen`."""
        dataset = self.dataset.of_models(seen[: self.scored])
        return fit_method(self.method, dataset, [Fold.of_all(len(dataset.models))])[0]

    def log_capability(self, fit: TaskFit) -> Floats:
        """Log capability of every model."""
        if isinstance(fit.capability, BlendedLosses):
            raise InputError(
                f"method {self.method!r} averages several weighted losses, a power law needs one; "
                f"use --method {CAPABILITY_METHOD}"
            )
        capability = fit.capability.of(self.nats, self.metadata)
        if not (capability > 0).all():
            remedy = f"use --method {CAPABILITY_METHOD}"
            if self.method == CAPABILITY_METHOD:
                remedy = "do better models score lower on it? check its scores, and forecast other tasks with --task"
            raise NotEnoughDataError(
                f"{fit.task.name}: method {self.method!r} gives some models no positive capability, "
                f"which a power law needs; {remedy}"
            )
        return np.log(capability)


def read_study_models(
    study: Study, tasks: Sequence[str] = (), *, method: str = CAPABILITY_METHOD, device: str = ""
) -> StudyModels:
    """Losses, scores and sizes of a study's models; models whose losses lack part of the support are left out.

    Parameters
    ----------
    study : the study
    tasks : names of tasks; empty: all that can be fitted
    method : name of the method that measures capability
    device : torch device for the fits; empty: numpy

    Returns
    -------
    the models, those with scores first
    """
    check_methods([method])
    # Choice losses do not follow a power law: they stay near ln of the number of options up to some size.
    dataset = replace(study.dataset(tasks).without_choices(), device=check_device(device))
    dataset, weak = without_weak_tasks(dataset, [Fold.of_all(len(dataset.models))], asked_for=bool(tasks))
    lines = tuple(f"left out: {task}: {why}" for task, why in weak.items())
    return StudyModels(**vars(with_unscored(study, dataset)), method=method, weak=lines)


def family_laws(
    models: StudyModels, log_capability: Floats, seen: Bools, *, allowed: Sequence[str] = FORMS
) -> dict[str, FamilyLaw]:
    """The law of every family with enough points, fitted to the models in `seen`."""
    laws = {}
    placed = seen & np.isfinite(models.points.flops)
    for family in map(str, np.unique(models.families)):
        rows = placed & (models.families == family)
        law = fit_family(models.points.take(rows), log_capability[rows], allowed=allowed)
        if law is not None:
            laws[family] = law
    return laws


def backtest(
    models: StudyModels, kind: str, *, on_step: Callable[[str], None] = lambda line: None
) -> list[HiddenModel]:
    """Hide some models of every family, refit everything without them, and forecast them.

    Parameters
    ----------
    models : the models of a study
    kind : "largest" or "latest", the models to hide
    on_step : called with a line at each step

    Returns
    -------
    one entry for each hidden model and task with a score
    """
    on_step(f"hiding the {kind}")
    hidden = np.zeros(len(models.models), bool)
    for family in np.unique(models.families):
        in_family = (models.families == family) & np.isfinite(models.points.flops)
        if any(models.points.take(in_family).supports(form) for form in FORMS):
            hidden[in_family] = HOLDOUT_RULES[kind](models.points.take(in_family))
    remaining = ~hidden[: models.scored]
    if not hidden.any() or remaining.sum() < FEWEST[COMPUTE]:
        return []
    rows = []
    visible = models.dataset.of_models(remaining)
    kept, _ = without_weak_tasks(visible, [Fold.of_all(len(visible.models))], asked_for=False)
    forecastable = replace(models, dataset=models.dataset.for_tasks([t.name for t in kept.tasks]))
    for t, fit in enumerate(forecastable.fits(~hidden)):
        try:
            log_capability = forecastable.log_capability(fit)
        except NotEnoughDataError:  # without the hidden models; the task itself is forecast
            continue
        laws = family_laws(forecastable, log_capability, ~hidden)
        rows += _forecast_hidden(forecastable, t, fit, laws=laws, hidden=hidden, kind=kind)
    return rows


def _forecast_hidden(
    models: StudyModels, t: int, fit: TaskFit, *, laws: Mapping[str, FamilyLaw], hidden: Bools, kind: str
) -> list[HiddenModel]:
    """Forecasts of the hidden models that have a score on one task."""
    observed, drift = models.observed[t], estimate_drift([*laws.values()])
    rows = []
    for family, law in laws.items():
        in_family = (models.families == family) & np.isfinite(observed)
        targets = np.flatnonzero(in_family & hidden)
        if not len(targets):
            continue
        forecasts = extrapolate_task(fit, law, drift, target=models.points.take(in_family & hidden))
        visible = np.flatnonzero(in_family & ~hidden)
        for i, row in enumerate(targets):
            distance = np.abs(np.log(models.points.flops[visible] / models.points.flops[row]))
            rows.append(
                HiddenModel(
                    task=fit.task.name,
                    observed=float(observed[row]),
                    forecast=float(forecasts.accuracy[i]),
                    low=float(forecasts.low[i]),
                    high=float(forecasts.high[i]),
                    kind=kind,
                    family=family,
                    model=models.models[row],
                    unchanged=float(observed[visible[distance.argmin()]]) if len(visible) else math.nan,
                )
            )
    return rows
