"""What a fit reads of a model, and the capability that it makes of it (equation 1).

A capability is one number for each model, from token losses, training compute, size and training data, or other scores;
the law of a fit turns it into an accuracy. Each kind is a record with the methods of `Capability`. `fields` and
`read_capability` write and read what a stored fit holds of it (docs/formats.md).

Axes: M models, N reference tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import LossView, view
from benchcast.messages import counted
from benchcast.methods.law import SigmoidLaw, log_odds_above
from benchcast.records import CHOICE_COLUMN, Bools, Floats, ModelMetadata

NO_CAPABILITY = "no capability"
SAME = 1e-6  # capabilities with a smaller relative difference count as equal
TOKEN_BLOCK = 1 << 16  # tokens per block in weighted sums

Arrays = dict[str, npt.NDArray[Any]]
Weights = npt.NDArray[np.float32]


class Capability(ABC):
    """What is read of a model, and one number from it; lower is better unless the law says otherwise."""

    __slots__ = ()
    reads_losses: ClassVar[bool] = False  # whether token losses are needed
    columns_used: ClassVar[tuple[str, ...]] = ()  # attributes of `ModelInfo`

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """The input of each row of the stored weights, as in fit.json; empty if nothing is read."""

    @abstractmethod
    def of(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata) -> Floats:
        """Capability of each model (M); NaN where an input is unknown.

        Parameters
        ----------
        nats : M × N losses on the reference tokens
        metadata : metadata of the same models
        """

    def known(self, metadata: ModelMetadata) -> Bools:
        """Mask of the models whose metadata has all inputs (M)."""
        return np.ones(len(metadata.flops), bool)

    def missing(self, metadata: ModelMetadata) -> str:
        """Description of the input that is missing; `metadata` is that of one model."""
        return NO_CAPABILITY

    @property
    def scores_used(self) -> tuple[str, ...]:
        """The benchmarks whose scores are read."""
        return ()

    def token_weights(self, nats: npt.NDArray[np.floating]) -> Weights:
        """Weight of each token (N): the derivative of capability by its nats, averaged over the models of `nats`."""
        return np.zeros(nats.shape[1], np.float32)

    @abstractmethod
    def is_flat(self, slope: float) -> bool:
        """Whether slope × capability changes by no more than rounding error with one unit more of every input.

        An average of laws that are all flat may keep weights such as 1e-19.
        """

    @abstractmethod
    def fields(self) -> tuple[dict[str, Any], Arrays]:
        """Values of fit.json ("reads", "unit" and, for a blend, "average"), and arrays of salience.safetensors."""

    @classmethod
    @abstractmethod
    def from_fields(cls, values: Mapping[str, Any], arrays: Arrays) -> Capability:
        """The inverse of `fields`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceWeights:
    """Weights of choice losses, which belong to texts and are added to a weighted loss of tokens."""

    name: str  # which choice losses: a key of `ModelMetadata.choices`
    weights: Weights  # views × S

    def of(self, metadata: ModelMetadata | None, views: Sequence[str]) -> Floats | float:
        """Weighted sum of each model's choice losses (M); NaN where one is unknown."""
        used = self.used
        if not used.any():
            return 0.0
        values = self._values(metadata)
        if values is None:
            return np.nan
        read = values[:, used]
        return np.asarray(
            sum(view(read, name) @ row[used].astype(np.float64) for name, row in zip(views, self.weights, strict=True))
        )

    @property
    def used(self) -> Bools:
        """Mask of the texts whose choice losses have weight (S)."""
        return np.asarray((self.weights != 0).any(axis=0))

    def known(self, metadata: ModelMetadata) -> Bools:
        """Mask of the models that have all choice losses with weight (M); all where nobody looked at them."""
        values, count = self._values(metadata), len(metadata.flops)
        if metadata.choices is None or not self.used.any():
            return np.ones(count, bool)
        if values is None:
            return np.zeros(count, bool)
        return np.asarray(np.isfinite(values[:, self.used]).all(axis=1))

    def missing(self, metadata: ModelMetadata) -> str:
        """How much one model lacks."""
        values = self._values(metadata)
        share = 1.0 if values is None else 1 - float(np.isfinite(values[0, self.used]).mean())
        of_texts = "column" if self.name == CHOICE_COLUMN else "text"
        return (
            f"no choice loss on {share:.0%} of the {counted(int(self.used.sum()), of_texts)} that the fit reads one of"
        )

    def _values(self, metadata: ModelMetadata | None) -> Floats | None:
        values = None if metadata is None or metadata.choices is None else metadata.choices.get(self.name)
        return values if values is not None and values.shape[1] == self.weights.shape[1] else None

    def slopes(self, metadata: ModelMetadata, views: Sequence[str]) -> Floats:
        """The derivative of capability by each text's choice loss (S), averaged over the models that have it."""
        values = self._values(metadata)
        total = np.zeros(self.weights.shape[1])
        if values is None:
            return total
        for name, row in zip(views, self.weights, strict=True):
            slope = np.ones_like(values) if name == LossView.NATS else (1 + values) ** -2.0
            known = np.isfinite(slope)
            total += row * np.where(known, slope, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        return total

    def times(self, factor: float) -> Weights:
        """The weights times a factor."""
        return (factor * self.weights).astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedLoss(Capability):
    """Weighted sum of token losses, divided by a unit, and of choice losses."""

    reads_losses: ClassVar[bool] = True

    views: tuple[LossView, ...]
    weights: Weights  # views × N
    unit: float  # N_c, the number of characters; 1 if the weights include it
    choices: ChoiceWeights | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(map(str, self.views))

    def of(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata | None = None) -> Floats:
        """Capability of each model (M); of metadata, choice losses alone are read."""
        tokens = weighted_loss(nats, self.views, self.weights) / self.unit
        return tokens if self.choices is None else tokens + self.choices.of(metadata, self.views)

    def known(self, metadata: ModelMetadata) -> Bools:
        return np.ones(len(metadata.flops), bool) if self.choices is None else self.choices.known(metadata)

    def missing(self, metadata: ModelMetadata) -> str:
        if self.choices is None or self.choices.known(metadata)[0]:
            return NO_CAPABILITY
        return self.choices.missing(metadata)

    def token_weights(self, nats: npt.NDArray[np.floating]) -> Weights:
        """The weights; those of saturated losses times the slope of the saturation, 1 / (1 + loss)²."""
        total = np.zeros(nats.shape[1])
        for name, weights in zip(self.views, self.weights, strict=True):
            for part in token_blocks(len(weights)):
                losses = losses_at(nats, part)
                slope = 1.0 if name is LossView.NATS else ((1 + losses) ** -2).mean(axis=0, dtype=np.float64)
                total[part] += slope * weights[part]
        return total.astype(np.float32)

    def is_flat(self, slope: float) -> bool:
        flat = self.choices is None or _is_flat(slope, self.choices.weights)
        return flat and _is_flat(slope, self.weights, self.unit)

    def fields(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = {"reads": list(self.reads), "unit": self.unit}, {"weights": self.weights}
        if self.choices is None:
            return values, arrays
        return values | {"choices": self.choices.name}, arrays | {"choices": self.choices.weights}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any], arrays: Arrays) -> WeightedLoss:
        views = tuple(map(LossView, values["reads"]))
        choices = ChoiceWeights(name=values["choices"], weights=arrays["choices"]) if "choices" in values else None
        return cls(views=views, weights=arrays["weights"], unit=values["unit"], choices=choices)


@dataclass(frozen=True, slots=True)
class StrengthRamp:
    """How far a model counts as stronger than the known models, by its mean loss (nats per character).

    The known models are those that a fit was learned from. The ramp has two ends, `strongest` and `usual`. A model of
    usual strength has a mean loss at or above `usual`, also if it is weaker than all known models. Where both ends are
    the same number, only a model below it counts as stronger.
    """

    strongest: float  # lowest mean loss of a known model; at or below it the fade is 1
    usual: float  # at or above it the fade is 0

    @classmethod
    def of(cls, mean_loss: Floats, quantile: float) -> StrengthRamp:
        """From the lowest mean loss of the known models up to a quantile of their mean losses."""
        return cls(float(mean_loss.min()), float(np.quantile(mean_loss, quantile)))

    def fade(self, mean_loss: Floats) -> Floats:
        """0 for a model of usual strength, 1 for one as strong as the strongest or stronger, linear in between."""
        width = self.usual - self.strongest
        fade = (self.usual - mean_loss) / width if width > 0 else (mean_loss < self.strongest) * 1.0
        return np.clip(fade, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendPart:
    """One of several weighted losses whose log-odds are averaged."""

    weights: Weights  # views × N
    choices: ChoiceWeights | None = None
    law: SigmoidLaw
    share: float  # of the average, for a model of usual strength
    share_of_stronger: float  # the same, for a model as strong as the strongest known one or stronger


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendedLosses(Capability):
    """Minus the averaged log-odds of several weighted losses; the shares depend on how strong a model is.

    Log-odds are those above the floor of the first part. Forecasts use the parts. `stand_in` is the one weighted loss
    that stands for the blend where a weight per token is needed, as in `explain` and `select`: the gradient for a model
    of usual strength, without the parts' curves and floors.
    """

    reads_losses: ClassVar[bool] = True

    stand_in: WeightedLoss
    parts: tuple[BlendPart, ...]
    ramp: StrengthRamp

    @classmethod
    def of_parts(
        cls, parts: tuple[BlendPart, ...], ramp: StrengthRamp, *, views: tuple[LossView, ...], unit: float
    ) -> BlendedLosses:
        """Blend parts whose weights are on the same views, with the same unit."""
        gradients = np.stack([-part.law.slope * part.share * part.weights for part in parts])
        weights = gradients.sum(axis=0).astype(np.float32)
        of_choices = [part.choices.times(-part.law.slope * part.share) for part in parts if part.choices is not None]
        first = parts[0].choices
        choices = first and ChoiceWeights(name=first.name, weights=np.sum(of_choices, axis=0, dtype=np.float32))
        stand_in = WeightedLoss(views=views, weights=weights, unit=unit, choices=choices)
        return cls(stand_in=stand_in, parts=parts, ramp=ramp)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.stand_in.reads

    def of(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata | None = None) -> Floats:
        views, unit = self.stand_in.views, self.stand_in.unit
        everything = np.ones((1, nats.shape[1]), np.float32)
        fade = self.ramp.fade(weighted_loss(nats, (LossView.NATS,), everything) / unit)
        floor, log_odds = self.parts[0].law.chance, np.zeros(len(nats))
        for part in self.parts:
            loss = weighted_loss(nats, views, part.weights) / unit
            loss += 0.0 if part.choices is None else part.choices.of(metadata, views)
            share = part.share + fade * (part.share_of_stronger - part.share)
            log_odds += share * log_odds_above(floor, part.law.log_odds(loss), own=part.law.chance)
        return -log_odds

    def known(self, metadata: ModelMetadata) -> Bools:
        return self.stand_in.known(metadata)

    def missing(self, metadata: ModelMetadata) -> str:
        return self.stand_in.missing(metadata)

    def token_weights(self, nats: npt.NDArray[np.floating]) -> Weights:
        return self.stand_in.token_weights(nats)

    def is_flat(self, slope: float) -> bool:
        return self.stand_in.is_flat(slope)

    def fields(self) -> tuple[dict[str, Any], Arrays]:
        """Those of the stand-in, and the parts: "average", and their weights as "member.0", …"""
        values, arrays = self.stand_in.fields()
        members = [
            {"law": part.law.fields(), "share": part.share, "share_of_stronger": part.share_of_stronger}
            for part in self.parts
        ]
        average = {"fade": asdict(self.ramp), "members": members}
        arrays |= {f"member.{k}": p.weights for k, p in enumerate(self.parts)}
        arrays |= {f"member.{k}.choices": p.choices.weights for k, p in enumerate(self.parts) if p.choices is not None}
        return values | {"average": average}, arrays

    @classmethod
    def from_fields(cls, values: Mapping[str, Any], arrays: Arrays) -> BlendedLosses:
        parts = (
            BlendPart(
                weights=arrays[f"member.{k}"],
                choices=ChoiceWeights(name=values["choices"], weights=arrays[f"member.{k}.choices"])
                if "choices" in values
                else None,
                law=SigmoidLaw.from_fields(row["law"]),
                share=row["share"],
                share_of_stronger=row["share_of_stronger"],
            )
            for k, row in enumerate(values["average"]["members"])
        )
        return cls(
            stand_in=WeightedLoss.from_fields(values, arrays),
            parts=tuple(parts),
            ramp=StrengthRamp(**values["average"]["fade"]),
        )


def one_weighted_loss(capability: Capability) -> WeightedLoss | None:
    """The weighted loss that a capability is; of a blend its stand-in; None where no losses are read."""
    loss = capability.stand_in if isinstance(capability, BlendedLosses) else capability
    return loss if isinstance(loss, WeightedLoss) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCompute(Capability):
    """The log10 of training FLOPs."""

    columns_used: ClassVar[tuple[str, ...]] = ("compute",)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("flops",)

    def of(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata) -> Floats:
        return np.log10(metadata.flops, where=metadata.flops > 0, out=np.full(len(metadata.flops), np.nan))

    def known(self, metadata: ModelMetadata) -> Bools:
        return np.asarray(metadata.flops > 0)

    def missing(self, metadata: ModelMetadata) -> str:
        return NO_CAPABILITY if self.known(metadata)[0] else "no training FLOPs known"

    def is_flat(self, slope: float) -> bool:
        return slope < SAME

    def fields(self) -> tuple[dict[str, Any], Arrays]:
        return {"reads": list(self.reads), "unit": 1.0}, {"weights": np.ones((1, 1), np.float32)}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any], arrays: Arrays) -> LogCompute:
        return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingLadder(Capability):
    """The loss that a scaling law predicts from parameters P and training tokens D: E + A / P^a + B / D^b.

    A family may have a law of its own.
    """

    columns_used: ClassVar[tuple[str, ...]] = ("params", "tokens")

    families: tuple[str, ...]  # the family of each law; the first is "", the law of all other families
    laws: npt.NDArray[np.floating]  # for each law E, log A, a, log B, b

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(f"ladder: {family}" if family else "ladder" for family in self.families)

    def of(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata) -> Floats:
        return self.loss(metadata)

    def loss(self, metadata: ModelMetadata) -> Floats:
        """The predicted loss of each model (M)."""
        number = {family: i for i, family in enumerate(self.families) if i}
        laws = np.asarray(self.laws, np.float64)[[number.get(str(family), 0) for family in metadata.families]]
        E, log_a, a, log_b, b = laws.T
        with np.errstate(divide="ignore", invalid="ignore"):
            by_size = np.exp(log_a - a * np.log(metadata.params))
            by_data = np.exp(log_b - b * np.log(metadata.training_tokens))
            return np.asarray(E + by_size + by_data)

    def known(self, metadata: ModelMetadata) -> Bools:
        return np.asarray((metadata.params > 0) & (metadata.training_tokens > 0))

    def missing(self, metadata: ModelMetadata) -> str:
        return NO_CAPABILITY if self.known(metadata)[0] else "no parameters and training tokens known"

    def is_flat(self, slope: float) -> bool:
        return _is_flat(slope, self.laws)

    def fields(self) -> tuple[dict[str, Any], Arrays]:
        return {"reads": list(self.reads), "unit": 1.0}, {"weights": self.laws}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any], arrays: Arrays) -> ScalingLadder:
        families = tuple(name.partition(": ")[2] for name in values["reads"])
        return cls(families=families, laws=arrays["weights"])


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedScores(Capability):
    """Weighted sum of the scores on other benchmarks."""

    benchmarks: tuple[str, ...]
    weights: Weights  # benchmarks × 1

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(f"score: {name}" for name in self.benchmarks)

    @property
    def scores_used(self) -> tuple[str, ...]:
        return self.benchmarks

    def of(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata) -> Floats:
        return np.stack([metadata.score(name) for name in self.benchmarks], axis=1) @ self.weights[:, 0]

    def known(self, metadata: ModelMetadata) -> Bools:
        return np.logical_and.reduce([np.isfinite(metadata.score(name)) for name in self.benchmarks])

    def missing(self, metadata: ModelMetadata) -> str:
        absent = [name for name in self.benchmarks if not np.isfinite(metadata.score(name)[0])]
        return f"no score known on {', '.join(absent)}" if absent else NO_CAPABILITY

    def is_flat(self, slope: float) -> bool:
        return _is_flat(slope, self.weights)

    def fields(self) -> tuple[dict[str, Any], Arrays]:
        return {"reads": list(self.reads), "unit": 1.0}, {"weights": self.weights}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any], arrays: Arrays) -> WeightedScores:
        benchmarks = tuple(name.partition(": ")[2] for name in values["reads"])
        return cls(benchmarks=benchmarks, weights=arrays["weights"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(Capability):
    """Nothing is read: the same capability, 0, for every model."""

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    def of(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata) -> Floats:
        return np.zeros(len(nats))

    def is_flat(self, slope: float) -> bool:
        return True

    def fields(self) -> tuple[dict[str, Any], Arrays]:
        return {"reads": [], "unit": 1.0}, {"weights": np.zeros((0, 0), np.float32)}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any], arrays: Arrays) -> Nothing:
        return cls()


KINDS: dict[str, type[Capability]] = {  # by the first word of what is read
    **dict.fromkeys(map(str, LossView), WeightedLoss),
    "flops": LogCompute,
    "ladder": ScalingLadder,
    "score": WeightedScores,
}


def read_capability(values: Mapping[str, Any], arrays: Arrays) -> Capability:
    """The capability whose `fields` are given; a ValueError for inputs that are unknown or do not go together.

    >>> values, arrays = ScalingLadder(families=("", "elm"), laws=np.ones((2, 5))).fields()
    >>> values["reads"], type(read_capability(values, arrays)).__name__
    (['ladder', 'ladder: elm'], 'ScalingLadder')
    """
    reads = values["reads"]
    kinds = {KINDS.get(name.partition(": ")[0]) for name in reads}
    if len(kinds) > 1 or len(set(reads)) < len(reads):
        raise ValueError(f"reads {', '.join(map(str, reads))}, which do not go together")
    kind = kinds.pop() if kinds else Nothing
    if kind is None:
        raise ValueError(f"reads {reads[0]!r}, which is unknown")
    found: Capability = (BlendedLosses if "average" in values else kind).from_fields(values, arrays)
    written, written_arrays = found.fields()
    if written["reads"] != reads or written["unit"] != values["unit"]:
        raise ValueError(f"reads {reads} with unit {values['unit']}, which no method does")
    if not np.array_equal(written_arrays["weights"], arrays["weights"], equal_nan=True):
        raise ValueError(f"weights of {kind.__name__} are not those that it has")
    return found


def _is_flat(slope: float, weights: npt.NDArray[np.floating], unit: float = 1.0) -> bool:
    return slope * float(np.abs(weights).sum(dtype=np.float64)) < SAME * unit


def weighted_loss(nats: npt.NDArray[np.floating], views: Sequence[str], weights: Weights) -> npt.NDArray[np.float64]:
    """Sum over views and tokens of weight times loss, for every model, without a copy of all losses.

    Parameters
    ----------
    nats : M × N losses
    views : what is read of each token
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


def token_blocks(count: int) -> list[slice]:
    """Slices of at most `TOKEN_BLOCK` tokens that cover `count` tokens."""
    return [slice(start, min(count, start + TOKEN_BLOCK)) for start in range(0, count, TOKEN_BLOCK)]


def losses_at(nats: npt.NDArray[np.floating], part: slice) -> npt.NDArray[Any]:
    """Losses of all models on some tokens, in float32 or better; `nats` may be a memory-mapped file in float16."""
    losses = np.asarray(nats[:, part])
    return losses.astype(np.float32) if losses.dtype == np.float16 else losses
