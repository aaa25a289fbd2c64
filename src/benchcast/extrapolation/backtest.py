"""Read all models of a study, fit the families' laws, and backtest: hide some models, refit, and forecast them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.align import align_models
from benchcast.dataset import Dataset, Fold
from benchcast.devices import check_device
from benchcast.errors import NotEnoughDataError
from benchcast.extrapolation.family_law import (
    FEWEST,
    FORMS,
    HOLDOUT_RULES,
    FamilyLaw,
    ScalePoints,
    estimate_drift,
    fit_family,
)
from benchcast.extrapolation.task_forecast import extrapolate_task
from benchcast.fitting import without_weak_tasks
from benchcast.folds import family_names
from benchcast.metadata import ModelMetadata
from benchcast.methods import check_methods, fit_method
from benchcast.records import Bools, Floats
from benchcast.store import Study
from benchcast.task_fit import TaskFit


def silent(_: str) -> None:
    """Ignore progress messages."""


@dataclass(frozen=True, slots=True)
class HiddenModel:
    """A hidden model with its forecast and its observed score."""

    kind: str  # largest or latest
    family: str
    task: str
    model: str
    observed: float
    forecast: float
    low: float
    high: float
    unchanged: float  # score of the family's visible model nearest in compute: the baseline

    @property
    def inside(self) -> bool:
        """Whether the interval covers the observed score."""
        return self.low <= self.observed <= self.high


@dataclass(frozen=True)
class StudyModels:
    """All models of a study that have losses, with or without scores."""

    dataset: Dataset  # of the scored models, which come first in `models`
    models: tuple[str, ...]
    families: npt.NDArray[np.str_]
    points: ScalePoints
    nats: npt.NDArray[np.float32]
    metadata: ModelMetadata
    method: str

    @property
    def scored(self) -> int:
        """Number of models with scores."""
        return len(self.dataset.models)

    @property
    def observed(self) -> Floats:
        """Observed accuracies (tasks × models); NaN if unknown."""
        accuracy = self.dataset.accuracy
        return np.pad(accuracy, ((0, 0), (0, len(self.models) - self.scored)), constant_values=np.nan)

    def fits(self, seen: Bools) -> list[TaskFit]:
        """One fit for each task, from the scored models in `seen`."""
        dataset = self.dataset.of_models(seen[: self.scored])
        everyone = np.ones(len(dataset.models), bool)
        return fit_method(self.method, dataset, [Fold(everyone, ~everyone, ~everyone)])[0]

    def log_capability(self, fit: TaskFit) -> Floats:
        """Log capability of every model."""
        capability = fit.capability(self.nats, self.metadata)
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
    everyone = np.ones(len(dataset.models), bool)
    dataset, _ = without_weak_tasks(dataset, [Fold(everyone, ~everyone, ~everyone)], asked_for=bool(tasks))
    others = [m for m in study.models_with_losses() if m not in set(dataset.models)]
    nats = dataset.nats
    if others:
        other_nats = align_models([study.losses(m) for m in others], dataset.reference_tokens.edges, study.texts)
        complete = np.flatnonzero(np.isfinite(other_nats[:, dataset.reference_tokens.supported]).all(axis=1))
        others = [others[i] for i in complete]
        nats = np.concatenate([nats, np.where(dataset.reference_tokens.supported, other_nats[complete], np.float32(0))])
    models = (*dataset.models, *others)
    infos = study.infos(models)
    metadata = ModelMetadata.of(infos, study.scores())
    points = ScalePoints(metadata.params, metadata.training_tokens, metadata.flops)
    return StudyModels(dataset, models, family_names(infos), points, nats, metadata, method)


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


def backtest(models: StudyModels, kind: str, *, tell: Callable[[str], None] = silent) -> list[HiddenModel]:
    """Hide some models of every family, refit everything without them, and forecast them.

    Parameters
    ----------
    models : the models of a study
    kind : "largest" or "latest", the models to hide
    tell : called with a line at each step

    Returns
    -------
    one entry for each hidden model and task with a score
    """
    tell(f"hiding the {kind}")
    hidden = np.zeros(len(models.models), bool)
    for family in np.unique(models.families):
        in_family = (models.families == family) & np.isfinite(models.points.flops)
        if any(models.points.take(in_family).supports(form) for form in FORMS):
            hidden[in_family] = HOLDOUT_RULES[kind](models.points.take(in_family))
    remaining = ~hidden[: models.scored]
    if not hidden.any() or remaining.sum() < FEWEST[FORMS[1]]:
        return []
    rows = []
    everyone = np.ones(int(remaining.sum()), bool)
    kept, _ = without_weak_tasks(
        models.dataset.of_models(remaining), [Fold(everyone, ~everyone, ~everyone)], asked_for=False
    )
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
            rows.append(
                HiddenModel(
                    kind=kind,
                    family=family,
                    task=fit.task.name,
                    model=models.models[row],
                    observed=float(observed[row]),
                    forecast=float(forecasts.accuracy[i]),
                    low=float(forecasts.low[i]),
                    high=float(forecasts.high[i]),
                    unchanged=unchanged,
                )
            )
    return rows
