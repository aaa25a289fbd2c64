"""The result of a method: a fitted forecast for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import Dataset, LossView, view
from benchcast.methods.capability import BenchmarkScore, Ladder, Predictor, TrainingCompute, ladder_loss
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.profile import LossProfile
from benchcast.records import Bools, Floats, Ints, ModelMetadata, Task

TOKEN_BLOCK = 1 << 16  # tokens per block in weighted sums


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

    @classmethod
    def of(cls, dataset: Dataset, rows: Sequence[Bools], errors: Floats, kind: str) -> OutOfFoldErrors:
        """Errors of the models of several masks, one mask after the other."""
        index = np.concatenate([np.flatnonzero(mask) for mask in rows]) if len(rows) else np.zeros(0, np.int64)
        hidden_set = np.repeat(np.arange(len(rows)), [int(mask.sum()) for mask in rows])
        return cls(errors, dataset.groups[index], kind, tuple(dataset.models[i] for i in index), hidden_set)

    @classmethod
    def none(cls, kind: str) -> OutOfFoldErrors:
        """No errors: no model could be held out."""
        return cls(np.zeros(0), np.zeros(0, str), kind)


NO_ERRORS = OutOfFoldErrors.none("stronger models")


@dataclass(frozen=True, slots=True)
class Fade:
    """How far a model counts as stronger than the training models, by its mean loss."""

    strongest: float  # lowest mean loss of a training model; at or below it a model is stronger, 1
    usual: float  # mean loss at or above which a model is inside the range, 0

    @classmethod
    def of(cls, mean_loss: Floats, quantile: float) -> Fade:
        """From the mean losses of the training models, of which those below the quantile are in between."""
        return cls(float(mean_loss.min()), float(np.quantile(mean_loss, quantile)))

    def __call__(self, mean_loss: Floats) -> Floats:
        """0 inside the range of the training models, 1 beyond it."""
        width = self.usual - self.strongest
        stronger = (self.usual - mean_loss) / width if width > 0 else (mean_loss < self.strongest) * 1.0
        return np.clip(stronger, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Member:
    """One of several weighted losses whose log-odds a fit averages."""

    weights: npt.NDArray[np.float32]  # views × N
    law: SigmoidLaw
    share: float  # of the average, for a model inside the range of the training models
    share_of_stronger: float  # the same, for a model that is stronger than all training models


@dataclass(frozen=True, slots=True)
class Members:
    """Weighted losses whose log-odds are averaged; which shares they have depends on how strong a model is."""

    members: tuple[Member, ...]
    fade: Fade

    def log_odds(self, nats: npt.NDArray[np.float32], views: Sequence[str], unit: float) -> Floats:
        """Averaged log-odds of models (M × N losses)."""
        stronger = self.fade(weighted_loss(nats, (LossView.NATS,), np.ones((1, nats.shape[1]), np.float32)) / unit)
        return sum(
            (
                (m.share + stronger * (m.share_of_stronger - m.share))
                * m.law.log_odds(weighted_loss(nats, views, m.weights) / unit)
                for m in self.members
            ),
            np.zeros(len(nats)),
        )


@dataclass(frozen=True, slots=True)
class TaskFit:
    """A fitted forecast of one task: weights over inputs, and a law (equations 1 and 2).

    A fit with members averages their log-odds: its capability is minus that average, and its weights are those of the
    average for a model inside the range, without the members' calibration curves.
    """

    task: Task
    method: str
    reads: tuple[Predictor, ...]  # the input of each row of weights, all of one kind; () for a constant forecast
    weights: npt.NDArray[np.float32]  # views × N; 1 × 1 for flops; benchmarks × 1; ladders × 5
    unit: float  # divisor of the weighted sum; N_c for losses
    law: SigmoidLaw
    out_of_fold: OutOfFoldErrors
    range: tuple[float, float]  # lowest and highest capability of the training models
    notes: dict[str, Any] = field(default_factory=dict)  # chosen settings, as JSON values
    history: dict[str, npt.NDArray[Any]] = field(default_factory=dict)  # values per step, for figure 6
    stronger: OutOfFoldErrors = NO_ERRORS  # of models that were hidden because they are stronger than the others
    profile: LossProfile | None = None  # of the training models; None if unknown
    average: Members | None = None  # None: one weighted sum

    @property
    def reads_losses(self) -> bool:
        """Whether a forecast needs token losses."""
        return bool(self.views)

    @property
    def views(self) -> tuple[LossView, ...]:
        """The views of the losses that are read; empty if none."""
        return tuple(p for p in self.reads if isinstance(p, LossView))

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The benchmarks whose scores are read; empty if none."""
        return tuple(p.benchmark for p in self.reads if isinstance(p, BenchmarkScore))

    def capability(self, nats: npt.NDArray[np.float32], metadata: ModelMetadata) -> Floats:
        """Capability of each model (equation 1); NaN where an input is unknown.

        Parameters
        ----------
        nats : M × N losses on the reference tokens
        metadata : metadata of the same models
        """
        if TrainingCompute() in self.reads:
            return np.log10(metadata.flops, where=metadata.flops > 0, out=np.full(len(metadata.flops), np.nan))
        if ladders := [p.family for p in self.reads if isinstance(p, Ladder)]:
            return ladder_loss(ladders, self.weights, metadata)
        if self.benchmarks:
            return np.stack([metadata.score(name) for name in self.benchmarks], axis=1) @ self.weights[:, 0]
        if self.average is not None:
            return -self.average.log_odds(nats, self.views, self.unit)
        return weighted_loss(nats, self.views, self.weights) / self.unit

    def known(self, metadata: ModelMetadata) -> Bools:
        """Mask of the models whose metadata has all inputs: FLOPs, size and training tokens, or scores."""
        everyone = np.ones(len(metadata.flops), bool)
        return np.logical_and.reduce([everyone, *(p.known(metadata) for p in self.reads)])

    def lacking(self, metadata: ModelMetadata) -> str:
        """Description of the input that is missing; `metadata` is that of one model."""
        match [p for p in self.reads if not p.known(metadata)[0]]:
            case [TrainingCompute(), *_]:
                return "no training FLOPs known"
            case [Ladder(), *_]:
                return "no parameters and training tokens known"
            case [BenchmarkScore(), *_] as absent:
                return f"no score known on {', '.join(p.benchmark for p in absent if isinstance(p, BenchmarkScore))}"
        return "no capability"

    def forecast(self, nats: npt.NDArray[np.float32], metadata: ModelMetadata) -> Floats:
        """Forecast accuracy (0..1) of each model; arguments as for `capability`."""
        return self.law.accuracy(self.capability(nats, metadata))

    def salience(self, nats: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Weight of each token: the derivative of capability by its nats, averaged over the models of `nats`."""
        total = np.zeros(nats.shape[1])
        for name, weights in zip(self.views, self.weights, strict=True):
            for part in token_blocks(len(weights)):
                losses = losses_at(nats, part)
                slope = 1.0 if name is LossView.NATS else ((1 + losses) ** -2).mean(axis=0, dtype=np.float64)
                total[part] += slope * weights[part]
        return total.astype(np.float32)


def token_blocks(count: int) -> list[slice]:
    """Slices of at most `TOKEN_BLOCK` tokens that cover `count` tokens."""
    return [slice(start, min(count, start + TOKEN_BLOCK)) for start in range(0, count, TOKEN_BLOCK)]


def losses_at(nats: npt.NDArray[np.floating], part: slice) -> npt.NDArray[Any]:
    """Losses of all models on some tokens, in float32 or better; `nats` may be a memory-mapped file in float16."""
    losses = np.asarray(nats[:, part])
    return losses.astype(np.float32) if losses.dtype == np.float16 else losses


def weighted_loss(
    nats: npt.NDArray[np.float32], views: Sequence[str], weights: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Sum over views and tokens of weight times loss, for every model, without a copy of all losses.

    Parameters
    ----------
    nats : M × N losses
    views : what is read of each token (see `predictors.LossView`)
    weights : views × N

    Returns
    -------
    M weighted sums.
    """
    total = np.zeros(len(nats))
    for name, row in zip(views, weights, strict=True):
        for part in token_blocks(len(row)):
            total += view(losses_at(nats, part), name) @ row[part]
    return total


SAME = 1e-6  # capabilities with a smaller relative difference count as equal


def has_range(fit: TaskFit) -> bool:
    """Whether the capabilities of the training models differ by more than rounding error."""
    low, high = fit.range
    return high - low > SAME * max(abs(low), abs(high))


def is_level(fit: TaskFit) -> bool:
    """Whether one unit more of every input changes the log-odds by less than rounding error.

    An average of laws that are all level may keep weights such as 1e-19.
    """
    slope = 1.0 if np.isnan(fit.law.slope) else abs(fit.law.slope)
    return slope * float(np.abs(fit.weights).sum(dtype=np.float64)) < SAME * fit.unit
