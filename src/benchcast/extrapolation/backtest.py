"""Read all models of a study, fit the families' laws, and backtest: hide some models, refit, and forecast them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchcast.all_models import AllModels, with_unscored
from benchcast.dataset import Fold
from benchcast.devices import check_device
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.extrapolation.family_law import (
    FEWEST,
    FORMS,
    HOLDOUT_RULES,
    FamilyLaw,
    ScalePoints,
    estimate_drift,
    extrapolate_task,
    fit_family,
)
from benchcast.fits.forecasts import ScoredForecast
from benchcast.learnable import without_weak_tasks
from benchcast.methods import check_methods, fit_method
from benchcast.methods.capability import BlendedLosses
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats
from benchcast.store import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenModel(ScoredForecast):
    """A hidden model with its forecast and its observed score."""

    kind: str  # largest or latest
    family: str
    model: str
    unchanged: float  # score of the family's visible model nearest in compute: the baseline


@dataclass(frozen=True)
class StudyModels(AllModels):
    """All models of a study that have losses, and the method that measures their capability."""

    method: str

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
                f"method {self.method!r} averages several weighted losses, a power law needs one; use --method salience"
            )
        capability = fit.capability.of(self.nats, self.metadata)
        if not (capability > 0).all():
            raise NotEnoughDataError(
                f"{fit.task.name}: method {self.method!r} gives some models no positive capability, "
                "which a power law needs; use --method salience"
            )
        return np.log(capability)


def read_study_models(
    study: Study, tasks: Sequence[str] = (), *, method: str = "salience", device: str = ""
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
    dataset = replace(study.dataset(tasks), device=check_device(device))
    dataset, _ = without_weak_tasks(dataset, [Fold.of_all(len(dataset.models))], asked_for=bool(tasks))
    return StudyModels(**vars(with_unscored(study, dataset)), method=method)


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
    if not hidden.any() or remaining.sum() < FEWEST[FORMS[1]]:
        return []
    rows = []
    visible = models.dataset.of_models(remaining)
    kept, _ = without_weak_tasks(visible, [Fold.of_all(len(visible.models))], asked_for=False)
    forecastable = replace(models, dataset=models.dataset.for_tasks([t.name for t in kept.tasks]))
    for t, fit in enumerate(forecastable.fits(~hidden)):
        laws = family_laws(forecastable, forecastable.log_capability(fit), ~hidden)
        rows += _forecast_hidden(forecastable, t, fit, laws, hidden, kind)
    return rows


def _forecast_hidden(
    models: StudyModels, t: int, fit: TaskFit, laws: Mapping[str, FamilyLaw], hidden: Bools, kind: str
) -> list[HiddenModel]:
    """Forecasts of the hidden models that have a score on one task."""
    observed, drift = models.observed[t], estimate_drift([*laws.values()])
    rows = []
    for family, law in laws.items():
        in_family = (models.families == family) & np.isfinite(observed)
        targets = np.flatnonzero(in_family & hidden)
        if not len(targets):
            continue
        forecasts = extrapolate_task(fit, law, drift, models.points.take(in_family & hidden))
        visible = np.flatnonzero(in_family & ~hidden)
        for i, row in enumerate(targets):
            distance = np.abs(np.log(models.points.flops[visible] / models.points.flops[row]))
            unchanged = float(observed[visible[distance.argmin()]]) if len(visible) else math.nan
            numbers = (float(x) for x in (observed[row], forecasts.accuracy[i], forecasts.low[i], forecasts.high[i]))
            name, model = fit.task.name, models.models[row]
            rows.append(HiddenModel(name, *numbers, kind=kind, family=family, model=model, unchanged=unchanged))
    return rows
