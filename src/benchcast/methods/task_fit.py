"""The result of a method: a fitted forecast for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import Dataset
from benchcast.methods.capability import SAME, BlendedLosses, Capability, WeightedLoss
from benchcast.methods.disagreement import Disagreement
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.profile import LossProfile
from benchcast.records import Bools, Floats, Ints, ModelMetadata, Task


def _no_ints() -> Ints:
    return np.zeros(0, np.int64)


def _no_floats() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True)
class OutOfFoldErrors:
    """Forecast minus accuracy of held-out models, with their families and names."""

    errors: Floats
    families: npt.NDArray[np.str_]  # groups of related families (`Dataset.groups`)
    kind: str  # description of the models that were held out
    models: tuple[str, ...] = ()  # of each error; empty: unknown, as in fits written before names were stored
    hidden_set: Ints = field(default_factory=_no_ints)  # number of the set that each was hidden with; empty: unknown
    observed: Floats = field(default_factory=_no_floats)  # accuracy; empty: unknown
    distance: Floats = field(default_factory=_no_floats)  # squared, from the models learned from (see `profile`)
    disagreement: Floats = field(
        default_factory=_no_floats
    )  # variance of the candidates' log-odds; empty: no candidates

    @classmethod
    def of(cls, dataset: Dataset, rows: Sequence[Bools], errors: Floats, *, kind: str) -> OutOfFoldErrors:
        """Errors of the models of several masks, one mask after the other."""
        index = np.concatenate([np.flatnonzero(mask) for mask in rows]) if len(rows) else np.zeros(0, np.int64)
        return cls(
            errors=errors,
            families=dataset.groups[index],
            kind=kind,
            models=tuple(dataset.models[i] for i in index),
            hidden_set=np.repeat(np.arange(len(rows)), [int(mask.sum()) for mask in rows]),
        )

    @classmethod
    def none(cls, kind: str) -> OutOfFoldErrors:
        """No errors: no model could be held out."""
        return cls(errors=np.zeros(0), families=np.zeros(0, str), kind=kind)


NO_ERRORS = OutOfFoldErrors.none("stronger models")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalWidth:
    """What the variance of an error depends on besides the task (see `interval_width`)."""

    steepness: float  # b, the share that goes with the slope of the law
    disagreement: float  # c, the share that goes with what the candidates disagree about
    distance: float  # p, the power of the distance


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFit:
    """A fitted forecast of one task: a capability, a law (equations 1 and 2) and errors on held-out models."""

    task: Task
    method: str
    capability: Capability
    law: SigmoidLaw
    out_of_fold: OutOfFoldErrors
    range: tuple[float, float]  # lowest and highest capability of the models learned from; NaN: unknown
    stronger: OutOfFoldErrors = NO_ERRORS  # of models that were hidden because they are stronger than the others
    profile: LossProfile | None = None  # of the models learned from; None if unknown
    disagreement: Disagreement | None = None  # of the candidates of an average; None without candidates
    width: IntervalWidth | None = None  # of intervals; None in fits of older versions
    notes: dict[str, Any] = field(default_factory=dict)  # chosen settings, as JSON values
    history: dict[str, npt.NDArray[Any]] = field(default_factory=dict)  # values per step, for figure 6

    @property
    def reads_losses(self) -> bool:
        """Whether a forecast needs token losses."""
        return self.capability.reads_losses

    @property
    def has_range(self) -> bool:
        """Whether the capabilities of the models learned from differ by more than rounding error."""
        low, high = self.range
        return high - low > SAME * max(abs(low), abs(high))

    @property
    def is_level(self) -> bool:
        """Whether the forecast is the same for all models, up to rounding error."""
        return self.capability.is_flat(1.0 if np.isnan(self.law.slope) else abs(self.law.slope))

    def forecast(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata) -> Floats:
        """Forecast accuracy (0..1) of each model; arguments as for `Capability.of`."""
        return self.law.accuracy(self.capability.of(nats, metadata))

    def disagreement_about(
        self, nats: npt.NDArray[np.floating], metadata: ModelMetadata | None = None
    ) -> Floats | None:
        """Variance of the candidates' log-odds for each model, arguments as for `Capability.of`; None if unknown."""
        if self.disagreement is None or not isinstance(self.capability, WeightedLoss | BlendedLosses):
            return None
        loss = self.capability if isinstance(self.capability, WeightedLoss) else self.capability.stand_in
        return self.disagreement.of(nats, metadata, loss)

    def salience(self, nats: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
        """Weight of each token (N), averaged over the models of `nats`; 0 without losses."""
        return self.capability.token_weights(nats)
