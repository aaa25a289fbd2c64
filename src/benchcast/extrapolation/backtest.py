"""All models of a study, their families' laws, and the check: hide some, do everything again, forecast them."""

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
    """Where nobody listens."""


@dataclass(frozen=True, slots=True)
class HiddenModel:
    """A model that was hidden, what was forecast of it and what it scored."""

    kind: str  # largest or latest
    family: str
    task: str
    model: str
    observed: float
    forecast: float
    low: float
    high: float
    unchanged: float  # the score of the nearest model of the family that was not hidden

    @property
    def inside(self) -> bool:
        """Whether the interval held."""
        return self.low <= self.observed <= self.high


@dataclass(frozen=True)
class StudyModels:
    """Every model of a study that has losses, those without scores too."""

    dataset: Dataset  # of the scored ones; they come first
    models: tuple[str, ...]
    families: npt.NDArray[np.str_]
    points: ScalePoints
    nats: npt.NDArray[np.float32]
    metadata: ModelMetadata
    method: str

    @property
    def scored(self) -> int:
        """How many have scores."""
        return len(self.dataset.models)

    @property
    def observed(self) -> Floats:
        """Scores, tasks × models, NaN where unknown."""
        accuracy = self.dataset.accuracy
        return np.pad(accuracy, ((0, 0), (0, len(self.models) - self.scored)), constant_values=np.nan)

    def fits(self, seen: Bools) -> list[TaskFit]:
        """One fit a task, learned from the scored models among these."""
        dataset = self.dataset.of_models(seen[: self.scored])
        everyone = np.ones(len(dataset.models), bool)
        return fit_method(self.method, dataset, [Fold(everyone, ~everyone, ~everyone)])[0]

    def log_capability(self, fit: TaskFit) -> Floats:
        """Of every model."""
        capability = fit.capability(self.nats, self.metadata)
        if not (capability > 0).all():
            raise NotEnoughDataError(
                f"{fit.task.name}: method {self.method!r} gives some models no positive capability, "
                "so there is no power law of it; take --method salience"
            )
        return np.log(capability)


def read_study_models(
    study: Study, tasks: Sequence[str] = (), *, method: str = "salience", device: str = ""
) -> StudyModels:
    """Losses, scores and sizes of a study's models; those whose losses lack part of the support are left out."""
    check_methods([method])
    dataset = replace(study.dataset(tasks), device=check_device(device))
    everyone = np.ones(len(dataset.models), bool)
    dataset, _ = without_weak_tasks(dataset, [Fold(everyone, ~everyone, ~everyone)], asked_for=bool(tasks))
    others = [m for m in study.models_with_losses() if m not in set(dataset.models)]
    nats = dataset.nats
    if others:
        added = align_models([study.losses(m) for m in others], dataset.reference_tokens.edges, study.texts)
        whole = np.flatnonzero(np.isfinite(added[:, dataset.reference_tokens.supported]).all(axis=1))
        others = [others[i] for i in whole]
        nats = np.concatenate([nats, np.where(dataset.reference_tokens.supported, added[whole], np.float32(0))])
    models = (*dataset.models, *others)
    infos = study.infos(models)
    metadata = ModelMetadata.of(infos, study.scores())
    points = ScalePoints(metadata.params, metadata.training_tokens, metadata.flops)
    return StudyModels(dataset, models, family_names(infos), points, nats, metadata, method)


def family_laws(
    known: StudyModels, log_capability: Floats, seen: Bools, *, allowed: Sequence[str] = FORMS
) -> dict[str, FamilyLaw]:
    """The law of every family that has points enough, from the models seen."""
    laws = {}
    placed = seen & np.isfinite(known.points.flops)
    for family in map(str, np.unique(known.families)):
        rows = placed & (known.families == family)
        made = fit_family(known.points.take(rows), log_capability[rows], allowed=allowed)
        if made is not None:
            laws[family] = made
    return laws


def backtest(known: StudyModels, kind: str, *, tell: Callable[[str], None] = silent) -> list[HiddenModel]:
    """Hide some models of every family, do everything again without them, and forecast them."""
    tell(f"hiding the {kind}")
    hidden = np.zeros(len(known.models), bool)
    for family in np.unique(known.families):
        own = (known.families == family) & np.isfinite(known.points.flops)
        if any(known.points.take(own).supports(form) for form in FORMS):
            hidden[own] = HOLDOUT_RULES[kind](known.points.take(own))
    left = ~hidden[: known.scored]
    if not hidden.any() or left.sum() < FEWEST[FORMS[1]]:
        return []
    rows = []
    everyone = np.ones(int(left.sum()), bool)
    kept, _ = without_weak_tasks(known.dataset.of_models(left), [Fold(everyone, ~everyone, ~everyone)], asked_for=False)
    able = replace(known, dataset=known.dataset.for_tasks([t.name for t in kept.tasks]))
    for t, fit in enumerate(able.fits(~hidden)):
        laws = family_laws(able, able.log_capability(fit), ~hidden)
        rows += _judge(able, t, fit, laws, hidden, kind)
    return rows


def _judge(
    known: StudyModels, t: int, fit: TaskFit, laws: Mapping[str, FamilyLaw], hidden: Bools, kind: str
) -> list[HiddenModel]:
    """Forecasts of the hidden models of one task that have a score."""
    observed, drift = known.observed[t], estimate_drift([*laws.values()])
    rows = []
    for family, law in laws.items():
        own = (known.families == family) & np.isfinite(observed)
        at = np.flatnonzero(own & hidden)
        if not len(at):
            continue
        said = extrapolate_task(fit, law, drift, known.points.take(own & hidden))
        rest = np.flatnonzero(own & ~hidden)
        for i, model in enumerate(at):
            gap = np.abs(np.log(known.points.flops[rest] / known.points.flops[model]))
            unchanged = float(observed[rest[gap.argmin()]]) if len(rest) else math.nan
            rows.append(
                HiddenModel(
                    kind=kind,
                    family=family,
                    task=fit.task.name,
                    model=known.models[model],
                    observed=float(observed[model]),
                    forecast=float(said.accuracy[i]),
                    low=float(said.low[i]),
                    high=float(said.high[i]),
                    unchanged=unchanged,
                )
            )
    return rows
