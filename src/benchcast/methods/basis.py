"""Groups of tokens, from which `salience` builds its weights.

A weight vector is a non-negative mix of groups: all tokens, the tokens of each source, the answers of each
source, and clusters of tokens that look alike to the scorer. What the data say about the mix sits in
small matrices, models × groups, one for each view of the losses.
Axes: M models, N tokens, K groups, D features.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.cluster.vq import kmeans2

from benchcast.evidence import VIEWS, Evidence, Features, view
from benchcast.records import Floats, Ints

CLUSTERS = 128
DIRECTIONS = 24  # of the hidden states, in which tokens are clustered
MOST_TEXT_GROUPS = 400
SAMPLE = 8192  # tokens that directions and clusters are learned from
BLOCK = 16384  # tokens worked on at a time
SEED = 0


@dataclass(frozen=True, slots=True)
class Basis:
    """The groups. Each partition gives every token a group or none (−1)."""

    partitions: tuple[tuple[Ints, int], ...]  # each token's group, and the number of groups
    kinds: npt.NDArray[np.str_]  # of each group: "all", "source", "answer" or "cluster"
    source: Ints  # the source a group is confined to, −1 for none
    size: Floats  # supported tokens in each group

    def weights(self, theta: Floats) -> npt.NDArray[np.float32]:
        """The weight of every token under one mix."""
        total = np.zeros(len(self.partitions[0][0]))
        at = 0
        for group, count in self.partitions:
            total += np.append(theta[at : at + count], 0.0)[group]
            at += count
        return total.astype(np.float32)


def build_basis(evidence: Evidence) -> tuple[Basis, dict[str, Floats]]:
    """The groups, and for each view the loss per character of every model on each (M × K)."""
    tokens = evidence.tokens
    n_sources = len(tokens.sources)
    clusters = _text_groups(tokens.text) if evidence.features is None else _clusters(evidence.features)
    partitions = (
        (np.zeros(len(tokens.text), np.int64), 1),
        (tokens.source, n_sources),
        (np.where(tokens.answer, tokens.source, -1), n_sources),
        (clusters, int(clusters.max()) + 1),
    )
    counts = [count for _, count in partitions]
    kinds = np.repeat(["all", "source", "answer", "cluster"], counts)
    source = np.concatenate([[-1], np.arange(n_sources), np.arange(n_sources), np.full(counts[3], -1)])
    size = [np.bincount(g[(g >= 0) & tokens.supported], minlength=n) for g, n in partitions]
    basis = Basis(partitions, kinds, source, np.concatenate(size).astype(np.float64))
    return basis, {name: _group_sums(evidence.nats, name, basis) / evidence.characters for name in VIEWS}


def _group_sums(nats: npt.NDArray[np.float32], name: str, basis: Basis) -> Floats:
    """Sum of one view of the nats over every group (M × K)."""
    total = np.zeros((len(nats), len(basis.kinds)), np.float64)
    for start in range(0, nats.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        one_hot = [(g[part, None] == np.arange(n)).astype(np.float32) for g, n in basis.partitions]
        total += view(nats[:, part], name) @ np.hstack(one_hot)
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


def _clusters(features: Features) -> Ints:
    """Which cluster of like tokens each token belongs to."""
    look = _main_directions(features)
    if not look.shape[1]:  # all tokens look the same
        return np.zeros(len(look), np.int64)
    rng = np.random.default_rng(SEED)
    sample = look[np.sort(rng.choice(len(look), min(SAMPLE, len(look)), replace=False))]
    count = min(CLUSTERS, max(2, len(sample) // 20), len(np.unique(sample, axis=0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a cluster may stay empty: then it is not used
        centres, _ = kmeans2(sample, count, minit="++", iter=20, seed=SEED, missing="warn")
    half_norms = 0.5 * (centres**2).sum(axis=1)
    return np.argmax(look @ centres.T - half_norms, axis=1).astype(np.int64)


def _text_groups(text: Ints) -> Ints:
    """Without features every text is a group; of very many texts, neighbours share one."""
    share = int(np.ceil((int(text.max()) + 1) / MOST_TEXT_GROUPS))
    return text // share
