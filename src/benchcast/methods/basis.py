"""Build groups of tokens, from which `salience` and `stack` form their weights.

A weight vector is a non-negative combination of groups: all tokens, the tokens of each source, the answers of each
source, and clusters of tokens with similar hidden states. The combination is fitted on small matrices, models × groups,
one for each view of the losses.
Axes: M models, N tokens, K groups, D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from array_api_compat import device as device_of

from benchcast.dataset import Dataset, Features
from benchcast.devices import Array, place, to_numpy
from benchcast.methods.features import StreamedBlocks
from benchcast.methods.kmeans import cluster, nearest
from benchcast.predictors import VIEWS, view
from benchcast.records import Floats, Ints
from benchcast.solvers import subspace_iteration

TOKEN_KIND_CLUSTERS = 128  # clusters over all texts
CLUSTERS = 224  # clusters within sources, at most, in total
MOST_PER_CELL = 16  # clusters among the answers, or the other tokens, of one source
FEWEST_PER_CLUSTER = 20  # tokens
DIRECTIONS = 24  # of the hidden states, in which tokens are clustered
MOST_TEXT_GROUPS = 400
SPARE = 40  # oversampling: extra directions that speed up convergence
ROUNDS = 6  # subspace iterations; the spectrum of hidden states decays fast
SAMPLE = 8192  # tokens used to estimate directions and clusters
BLOCK = 16384  # tokens per block
SEED = 0


@dataclass(frozen=True, slots=True)
class Basis:
    """The groups. Each partition gives every token a group or none (−1)."""

    partitions: tuple[tuple[Ints, int], ...]  # each token's group, and the number of groups
    kinds: npt.NDArray[np.str_]  # of each group: "all", "source", "answer", "cluster" or "kind"
    source: Ints  # the source a group is confined to, −1 for none
    task: npt.NDArray[np.str_]  # the task whose `answers` a group consists of, "" for none
    size: Floats  # supported tokens in each group

    def weights(self, theta: Floats) -> npt.NDArray[np.float32]:
        """The weight of every token for one combination of groups."""
        total = np.zeros(len(self.partitions[0][0]))
        at = 0
        for group, count in self.partitions:
            total += np.append(theta[at : at + count], 0.0)[group]
            at += count
        return total.astype(np.float32)


def build_basis(dataset: Dataset) -> tuple[Basis, dict[str, Floats]]:
    """The groups, and for each view the loss per character of every model on each (M × K)."""
    tokens = dataset.reference_tokens
    n_sources = len(tokens.sources)
    partitions = {
        "all": (np.zeros(len(tokens.text), np.int64), 1),
        "source": (tokens.source, n_sources),
        "answer": (np.where(tokens.answer, tokens.source, -1), n_sources),
    }
    for kind, groups in _learned_groups(dataset).items():
        partitions[kind] = (groups, int(groups.max()) + 1)
    named = _named_answers(dataset)
    partitions |= named
    kinds = np.repeat(list(partitions), [count for _, count in partitions.values()])
    source = np.full(len(kinds), -1)
    for kind in ("source", "answer"):
        source[kinds == kind] = np.arange(n_sources)
    task = np.where(np.isin(kinds, list(named)), np.char.partition(kinds, ":")[:, 2], "")
    size = [np.bincount(g[(g >= 0) & tokens.supported], minlength=n) for g, n in partitions.values()]
    kinds = np.where(task != "", "answer", kinds)
    basis = Basis(tuple(partitions.values()), kinds, source, task, np.concatenate(size).astype(np.float64))
    return basis, {name: _group_sums(dataset, name, basis) / dataset.characters for name in VIEWS}


def _named_answers(dataset: Dataset) -> dict[str, tuple[Ints, int]]:
    """For each task that names texts as its answers, a partition with one group: these texts."""
    return {
        f"answers:{task.name}": (np.where(dataset.reference_tokens.of_texts(task.answers), 0, -1), 1)
        for task in dataset.tasks
        if task.answers
    }


def _group_sums(dataset: Dataset, name: str, basis: Basis) -> Floats:
    """Sum of one view of the tokens over every group (M × K)."""
    nats, device = dataset.nats, dataset.device
    total = np.zeros((len(nats), len(basis.kinds)), np.float64)
    for start in range(0, nats.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        one_hot = np.hstack([g[part, None] == np.arange(n) for g, n in basis.partitions])
        seen = view(place(nats[:, part], device, "float32"), name)
        total += to_numpy(seen @ place(one_hot, device, "float32"))
    return total


def _main_directions(features: Features, device: str) -> npt.NDArray[np.float32]:
    """Principal components of the standardised features, each with unit variance (N × DIRECTIONS)."""
    sample = place(features.sample(SAMPLE, np.random.default_rng(SEED)), device, "float64")
    xp = array_namespace(sample)
    mean = xp.mean(sample, axis=0)
    spread = xp.sqrt(xp.mean((sample - mean) ** 2, axis=0))
    dead = spread < 1e-6 * max(float(xp.max(spread)), 1e-30)
    spread = xp.where(dead, xp.full_like(spread, np.inf), spread)
    values, vectors = _largest((sample - mean) / spread)
    count = min(DIRECTIONS, int(xp.sum(values > 1e-6 * values[0])))
    scale = values[:count] / len(sample) ** 0.5
    turn = vectors[:, :count] / scale / spread[:, None]
    shift = to_numpy(mean @ turn).astype(np.float32)
    columns = place(turn.T, device, "float32")
    parts = [to_numpy(block.project(columns)).T - shift for _, block in StreamedBlocks(features, device)]
    return np.concatenate(parts)


def _largest(rows: Array) -> tuple[Array, Array]:
    """Largest singular values and their right vectors, by subspace iteration; exact if there are few features."""
    xp = array_namespace(rows)
    width = min(DIRECTIONS + SPARE, *rows.shape)
    start = np.random.default_rng(SEED).standard_normal((rows.shape[1], width))
    rounds = ROUNDS if width < rows.shape[1] else 0
    start = xp.asarray(start, device=device_of(rows))
    basis = subspace_iteration(lambda columns: rows.T @ (rows @ columns), start, rounds=rounds)
    _, values, turn = xp.linalg.svd(rows @ basis, full_matrices=False)
    return values, basis @ turn.T


def _learned_groups(dataset: Dataset) -> dict[str, Ints]:
    """Clusters of tokens with similar hidden states; without features, one group for each text.

    A "cluster" is within the answers, or within the other tokens, of one source, so that a task's tokens are resolved
    finely. A "kind" is over all texts, so that a task with few texts borrows strength from the others.
    """
    if dataset.features is None:
        return {"cluster": _text_groups(dataset.reference_tokens.text)}
    look = _main_directions(dataset.features, dataset.device)
    cell = 2 * dataset.reference_tokens.source + dataset.reference_tokens.answer
    most = int(np.clip(CLUSTERS // len(np.unique(cell)), 1, MOST_PER_CELL))
    return {"cluster": _clusters(look, cell, most), "kind": _clusters(look, np.zeros_like(cell), TOKEN_KIND_CLUSTERS)}


def _clusters(look: npt.NDArray[np.float32], cell: Ints, most: int) -> Ints:
    """The cluster of each token; each cell (a label per token) has clusters of its own, at most `most`."""
    groups, count = np.full(len(look), -1), 0
    for name in np.unique(cell):
        members = np.flatnonzero(cell == name)
        centres = _centres(look[members], min(most, len(members) // FEWEST_PER_CLUSTER))
        groups[members] = count + nearest(look[members], centres)
        count += len(centres)
    return groups


def _centres(look: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
    """Cluster centres of tokens; one centre if there are few tokens or all are equal."""
    rng = np.random.default_rng(SEED)
    sample = look[np.sort(rng.choice(len(look), min(SAMPLE, len(look)), replace=False))]
    count = min(count, len(np.unique(sample, axis=0)) if look.shape[1] else 1)
    return look[:1] if count < 2 else cluster(sample, count, rounds=20, seed=SEED)


def _text_groups(text: Ints) -> Ints:
    """Without features each text is a group; above `MOST_TEXT_GROUPS` texts, consecutive texts share a group."""
    share = int(np.ceil((int(text.max()) + 1) / MOST_TEXT_GROUPS))
    return text // share
