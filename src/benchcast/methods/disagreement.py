"""How much the candidates of an average disagree about a model.

The log-odds of candidate c for a model are z_c, its share is p_c. The disagreement is the variance Σ_c p_c (z_c − z̄)²
with z̄ = Σ_c p_c z_c. Candidates are linear in the losses, so each principal component of √p_c (z_c − z̄) is a weighted
loss, too; the sum of the squares of the largest few is stored with a fit in place of all candidates.

Axes: M models, N reference tokens, S texts with choice losses, V views, R rows, C candidates, D directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.methods.capability import WeightedLoss, weighted_loss
from benchcast.records import Floats, ModelMetadata

DIRECTIONS = 3  # with three, interval scores are those of all candidates within 1% (lab/LOG.md)
ARRAYS = ("weights", "scale", "choices", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Variance of the candidates' log-odds, from the losses of a model."""

    weights: npt.NDArray[np.float16]  # D × V × N, the largest of each direction is 1: three digits are enough
    scale: Floats  # D, of the weights of each direction
    choices: npt.NDArray[np.float32]  # D × V × S; S is 0 where no choice losses are read
    offset: Floats  # D

    @classmethod
    def of_directions(
        cls, tokens: npt.NDArray[np.float32], choices: npt.NDArray[np.float32], offset: Floats
    ) -> Disagreement:
        """From directions Σ weight · loss + offset in log-odds; `tokens` is D × V × N, `choices` D × V × S."""
        scale = np.abs(tokens).max(axis=(1, 2), initial=0.0).astype(np.float64)
        scale[scale == 0] = 1.0
        weights = (tokens / scale[:, None, None]).astype(np.float16)
        return cls(weights=weights, scale=scale, choices=choices, offset=offset)

    def of(self, nats: npt.NDArray[np.floating], metadata: ModelMetadata | None, like: WeightedLoss) -> Floats:
        """The variance for each model (M).

        `nats` is M × N; views, unit and choice losses are those of the fit's weighted losses (`like`).
        """
        total = np.zeros(len(nats))
        parts = zip(self.weights, self.scale, self.choices, self.offset, strict=True)
        for weights, scale, choices, offset in parts:
            direction = scale * weighted_loss(nats, like.views, weights.astype(np.float32)) / like.unit + offset
            if like.choices is not None and choices.size:
                direction += replace(like.choices, weights=choices).of(metadata, like.views)
            total += direction**2
        return total


def main_directions(log_odds: Floats, shares: Floats, weight: Floats) -> Floats:
    """Coefficients of the candidates in each direction (D × C), from log-odds of rows (R × C) and weights of rows (R).

    A direction is Σ_c coefficient_c z_c; its mean square on the rows is as large as it can be.
    """
    root = np.sqrt(shares)
    apart = (log_odds - (log_odds @ shares)[:, None]) * root
    _, _, components = np.linalg.svd(np.sqrt(weight)[:, None] * apart, full_matrices=False)
    on_candidates = components[:DIRECTIONS] * root
    return np.asarray(on_candidates - on_candidates.sum(axis=1, keepdims=True) * shares)
