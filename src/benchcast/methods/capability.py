"""What a fit reads of a model: its token losses, its training compute, its size and training data, or other scores.

Predictors are records; their text form (`str(predictor)`, `parse_predictor`) is used only in files and reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import LossView
from benchcast.records import Bools, Floats, ModelInfo, ModelMetadata


@dataclass(frozen=True, slots=True)
class TrainingCompute:
    """The log10 of training FLOPs."""

    def __str__(self) -> str:
        return "flops"

    def known(self, metadata: ModelMetadata) -> Bools:
        """Mask of the models with known FLOPs."""
        return np.asarray(metadata.flops > 0)

    def used(self, info: ModelInfo) -> list[str]:
        """The values that are read from a model's row of models.csv."""
        return [str(info.compute)]


@dataclass(frozen=True, slots=True)
class Ladder:
    """The loss that a scaling law predicts from parameters and training tokens."""

    family: str = ""  # the family with parameters of its own; empty: all others

    def __str__(self) -> str:
        return f"ladder: {self.family}" if self.family else "ladder"

    def known(self, metadata: ModelMetadata) -> Bools:
        """Mask of the models with known parameters and training tokens."""
        return np.asarray((metadata.params > 0) & (metadata.training_tokens > 0))

    def used(self, info: ModelInfo) -> list[str]:
        """The values that are read from a model's row of models.csv."""
        return [str(info.params), str(info.tokens)]


@dataclass(frozen=True, slots=True)
class BenchmarkScore:
    """The score on another benchmark."""

    benchmark: str

    def __str__(self) -> str:
        return f"score: {self.benchmark}"

    def known(self, metadata: ModelMetadata) -> Bools:
        """Mask of the models with a known score."""
        return np.isfinite(metadata.score(self.benchmark))

    def used(self, info: ModelInfo) -> list[str]:
        """The values that are read from a model's row of models.csv: none."""
        return []


Predictor = LossView | TrainingCompute | Ladder | BenchmarkScore


def parse_predictor(text: str) -> Predictor:
    """The inverse of `str`; a ValueError for other texts.

    >>> parse_predictor("ladder: elm")
    Ladder(family='elm')
    >>> str(parse_predictor("score: mmlu"))
    'score: mmlu'
    """
    kind, _, name = text.partition(": ")
    if kind == "ladder":
        return Ladder(name)
    if kind == "score" and name:
        return BenchmarkScore(name)
    return TrainingCompute() if text == "flops" else LossView(text)


def ladder_loss(families: Sequence[str], rows: npt.NDArray[np.floating], metadata: ModelMetadata) -> Floats:
    """Loss of each model predicted from parameters P and training tokens D: E + A / P^a + B / D^b.

    Parameters
    ----------
    families : the family of each row; the first row is that of all other families
    rows : for each ladder, E, log A, a, log B, b
    metadata : metadata of the models
    """
    row_of_family = {family: i for i, family in enumerate(families) if i}
    E, log_a, a, log_b, b = np.asarray(rows, np.float64)[[row_of_family.get(str(f), 0) for f in metadata.families]].T
    with np.errstate(divide="ignore", invalid="ignore"):
        by_size = np.exp(log_a - a * np.log(metadata.params))
        by_data = np.exp(log_b - b * np.log(metadata.training_tokens))
        return np.asarray(E + by_size + by_data)
