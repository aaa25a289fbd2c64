"""Non-negative functions of tokens, from which `salience` builds its weights.

A weight vector is a non-negative mix of columns: all tokens, the tokens of each source, the answers of
each source, clusters of tokens that look alike to the scorer, and the two sides of the main directions
of its hidden states. Since every column is non-negative, so is the mix. What the data say about the
mix sits in one small matrix, models × columns, made in one pass over the features.
Axes: M models, N tokens, K columns, D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.cluster.vq import kmeans2

from benchcast.evidence import Evidence, Features
from benchcast.records import Floats, Ints

CLUSTERS = 128
DIRECTIONS = 24
MOST_TEXT_GROUPS = 400
SAMPLE = 8192  # tokens that directions and clusters are learned from
SEED = 0


@dataclass(frozen=True, slots=True)
class Basis:
    """The columns: groups of tokens first, then (with features) the sides of the main directions."""

    groups: tuple[tuple[Ints, int], ...]  # each token's group (−1 for none) and the number of groups
    sides: npt.NDArray[np.float32] | None  # N × 2·DIRECTIONS, non-negative
    kinds: npt.NDArray[np.str_]  # of each column: "all", "source", "answer", "cluster" or "side"
    source: Ints  # the source a column is confined to, −1 for none
    mass: Floats  # sum of squares of each column over the supported tokens

    def weights(self, theta: Floats) -> npt.NDArray[np.float32]:
        """The weight of every token under one mix."""
        total = np.zeros(len(self.groups[0][0]))
        at = 0
        for group, size in self.groups:
            total += np.append(theta[at : at + size], 0.0)[group]
            at += size
        if self.sides is not None:
            total += self.sides @ theta[at:]
        return total.astype(np.float32)


def build_basis(evidence: Evidence) -> tuple[Basis, Floats]:
    """The columns, and the loss per character of every model on each (M × K)."""
    tokens = evidence.tokens
    n_sources = len(tokens.sources)
    look = None if evidence.features is None else _main_directions(evidence.features)
    clusters = _text_groups(tokens.text) if look is None else _clusters(look)
    kinds = ("all", "source", "answer", "cluster")
    groups = (
        (np.zeros(len(tokens.text), np.int64), 1),
        (tokens.source, n_sources),
        (np.where(tokens.answer, tokens.source, -1), n_sources),
        (clusters, int(clusters.max()) + 1),
    )
    sums = [_group_sums(evidence.nats, group, size) for group, size in groups]
    mass = [np.bincount(g[(g >= 0) & tokens.supported], minlength=size) for g, size in groups]
    names = [np.full(size, kind) for (_, size), kind in zip(groups, kinds, strict=True)]
    confined = [np.array([-1]), np.arange(n_sources), np.arange(n_sources), np.full(groups[3][1], -1)]
    sides = None
    if look is not None:
        sides = np.hstack([np.maximum(look, 0), np.maximum(-look, 0)])
        sums.append(evidence.nats @ sides)
        mass.append((sides[tokens.supported].astype(np.float64) ** 2).sum(axis=0))
        names.append(np.full(sides.shape[1], "side"))
        confined.append(np.full(sides.shape[1], -1))
    per_column = (np.concatenate(names), np.concatenate(confined), np.concatenate(mass).astype(np.float64))
    return Basis(groups, sides, *per_column), np.hstack(sums).astype(np.float64) / evidence.characters


def _group_sums(nats: npt.NDArray[np.float32], group: Ints, size: int) -> npt.NDArray[np.float32]:
    """Sum of nats over each group (M × size)."""
    total = np.zeros((len(nats), size), np.float32)
    step = max(1, (32 << 20) // (4 * size))
    for start in range(0, nats.shape[1], step):
        part = slice(start, start + step)
        one_hot = (group[part, None] == np.arange(size)).astype(np.float32)
        total += nats[:, part] @ one_hot
    return total


def _main_directions(features: Features) -> npt.NDArray[np.float32]:
    """Standardised features on their main directions, each scaled to unit spread (N × DIRECTIONS)."""
    sample = features.sample(SAMPLE, np.random.default_rng(SEED)).astype(np.float64)
    mean, spread = sample.mean(axis=0), sample.std(axis=0)
    spread[spread < 1e-6 * max(float(spread.max()), 1e-30)] = np.inf
    _, values, vectors = np.linalg.svd((sample - mean) / spread, full_matrices=False)
    count = min(DIRECTIONS, int((values > 1e-6 * values[0]).sum()))
    scale = values[:count] / np.sqrt(len(sample))
    turn = (vectors[:count] / scale[:, None]).T / spread[:, None]
    shift = (mean @ turn).astype(np.float32)
    parts = [block @ turn.astype(np.float32) - shift for _, block in features.blocks()]
    return np.concatenate(parts)


def _clusters(look: npt.NDArray[np.float32]) -> Ints:
    """Which cluster of like tokens each token belongs to."""
    rng = np.random.default_rng(SEED)
    sample = look[np.sort(rng.choice(len(look), min(SAMPLE, len(look)), replace=False))]
    count = min(CLUSTERS, max(2, len(sample) // 20))
    centres, _ = kmeans2(sample, count, minit="++", iter=20, seed=SEED, missing="warn")
    half_norms = 0.5 * (centres**2).sum(axis=1)
    return np.argmax(look @ centres.T - half_norms, axis=1).astype(np.int64)


def _text_groups(text: Ints) -> Ints:
    """Without features every text is a group; of very many texts, neighbours share one."""
    share = int(np.ceil((int(text.max()) + 1) / MOST_TEXT_GROUPS))
    return text // share
