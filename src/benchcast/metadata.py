"""Model metadata: family, size, training data, compute and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.records import Bools, Floats, Ints, ModelInfo, Score, TokenLosses


def family_names(models: Sequence[ModelInfo]) -> npt.NDArray[np.str_]:
    """The family of each model; a model without a family forms its own."""
    return np.array([m.family_name for m in models], dtype=str)


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Metadata of M models; NaN where unknown."""

    families: npt.NDArray[np.str_]  # never empty
    flops: Floats  # training FLOPs
    params: Floats
    training_tokens: Floats
    scores: Floats  # M × benchmarks, accuracy
    benchmarks: tuple[str, ...]

    @classmethod
    def of(cls, models: Sequence[ModelInfo], scores: Sequence[Score]) -> ModelMetadata:
        """Build from rows of models.csv and scores.csv, with all benchmarks of the scores."""
        benchmarks = tuple(dict.fromkeys(s.task for s in scores))
        table, row_of = np.full((len(models), len(benchmarks)), np.nan), {m.model: i for i, m in enumerate(models)}
        for score in scores:
            if score.model in row_of:
                table[row_of[score.model], benchmarks.index(score.task)] = score.accuracy
        return cls(
            families=family_names(models),
            flops=np.array([m.compute for m in models], np.float64),
            params=np.array([m.params for m in models], np.float64),
            training_tokens=np.array([m.tokens for m in models], np.float64),
            scores=table,
            benchmarks=benchmarks,
        )

    @classmethod
    def of_losses(cls, losses: TokenLosses) -> ModelMetadata:
        """Metadata of one model, as stored with its losses."""
        info = losses.info if losses.info is not None and losses.info.model == losses.model else ModelInfo(losses.model)
        return cls.of([info], [s for s in losses.scores if s.model == losses.model])

    def take(self, rows: Bools | Ints) -> ModelMetadata:
        """Metadata of some of the models."""
        return replace(
            self,
            families=self.families[rows],
            flops=self.flops[rows],
            params=self.params[rows],
            training_tokens=self.training_tokens[rows],
            scores=self.scores[rows],
        )

    def score(self, benchmark: str) -> Floats:
        """Accuracy of each model on a benchmark; NaN where unknown."""
        if benchmark not in self.benchmarks:
            return np.full(len(self.flops), np.nan)
        return self.scores[:, self.benchmarks.index(benchmark)]
