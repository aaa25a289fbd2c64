"""A dataset together with the models that have losses and no score: what extrapolation and the report forecast.

Axes: M models (those of the dataset, then those without a score), N reference tokens, T tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.losses.choice_losses import choice_arrays, noting
from benchcast.losses.dataset import Dataset
from benchcast.losses.regroup import align_models
from benchcast.records import CHOICE_COLUMN, Floats, ModelInfo, ModelMetadata
from benchcast.steps import steps
from benchcast.study.study import Study


@dataclass(frozen=True)
class AllModels:
    """All models of a study whose losses cover the dataset's tokens, with or without scores."""

    dataset: Dataset  # of the scored models, which come first
    infos: list[ModelInfo]
    nats: npt.NDArray[np.float32]  # M × N, 0 outside the common support
    metadata: ModelMetadata
    left_out: dict[str, str]  # model without a score whose losses do not cover the tokens → why

    @property
    def models(self) -> list[str]:
        """Names of the models."""
        return [m.model for m in self.infos]

    @property
    def families(self) -> npt.NDArray[np.str_]:
        """The family of each model; a model without a family forms its own."""
        return self.metadata.families

    @property
    def scored(self) -> int:
        """Number of models with scores."""
        return len(self.dataset.models)

    @property
    def observed(self) -> Floats:
        """Observed accuracies (T × M); NaN if unknown."""
        unscored = len(self.infos) - self.scored
        return np.pad(self.dataset.accuracy, ((0, 0), (0, unscored)), constant_values=np.nan)


def with_unscored(study: Study, dataset: Dataset) -> AllModels:
    """The dataset's models, then all others with losses, on its tokens."""
    tokens, known = dataset.reference_tokens, set(dataset.models)
    others = [m for m in study.models_with_losses() if m not in known]
    inputs: list[dict[str, Floats]] = []
    losses = noting((study.losses(m) for m in steps(others, "models read")), inputs)
    rows = align_models(losses, tokens.edges, study.texts) if others else dataset.nats[:0]
    lacking = 1 - np.isfinite(rows[:, tokens.supported]).mean(axis=1)
    complete = np.flatnonzero(lacking == 0)
    infos = study.infos([*dataset.models, *(others[i] for i in complete)])
    of_columns = dataset.choices.name == CHOICE_COLUMN
    added = choice_arrays([inputs[i] for i in complete], of_columns=of_columns)
    choices = {
        name: np.concatenate([values, added.get(name, np.full((len(complete), values.shape[1]), np.nan))])
        for name, values in (dataset.metadata.choices or {}).items()
    }
    nats = np.concatenate([dataset.nats, np.where(tokens.supported, rows[complete], 0)])
    return AllModels(
        dataset=dataset,
        infos=infos,
        nats=nats.astype(np.float32, copy=False),
        metadata=ModelMetadata.of(infos, study.scores(), choices),
        left_out={
            model: f"no loss on {share:.1%} of the tokens that the others have"
            for model, share in zip(others, lacking, strict=True)
            if share
        },
    )
