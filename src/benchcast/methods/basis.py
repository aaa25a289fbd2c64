"""Groups of tokens, from which `salience` builds its weights.

A weight vector is a non-negative mix of groups: all tokens, the tokens of each source, the answers of each
source, and groups of tokens that look alike to the scorer. What the data say about the mix sits in
small matrices, models × groups, one for each view of the losses.
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
from benchcast.methods.inputs import StreamedBlocks
from benchcast.methods.kmeans import cluster, nearest
from benchcast.predictors import VIEWS, view
from benchcast.records import Floats, Ints
from benchcast.solvers import subspace_iteration

TOKEN_KIND_CLUSTERS = 128  # of tokens, wherever they are
CLUSTERS = 224  # within the sources, at most, in all
MOST_PER_CELL = 16  # clusters among the answers, or the other tokens, of one source
FEWEST_PER_CLUSTER = 20  # tokens
DIRECTIONS = 24  # of the hidden states, in which tokens are clustered
MOST_TEXT_GROUPS = 400
SPARE = 40  # more directions to look for, which makes the wanted ones exact sooner
ROUNDS = 6  # of looking; hidden states have few large directions
SAMPLE = 8192  # tokens that directions and clusters are learned from
BLOCK = 16384  # tokens worked on at a time
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
        """The weight of every token under one mix."""
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
    """Sum of one view of the nats over every group (M × K)."""
    nats, device = dataset.nats, dataset.device
    total = np.zeros((len(nats), len(basis.kinds)), np.float64)
    for start in range(0, nats.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        one_hot = np.hstack([g[part, None] == np.arange(n) for g, n in basis.partitions])
        seen = view(place(nats[:, part], device, "float32"), name)
        total += to_numpy(seen @ place(one_hot, device, "float32"))
    return total


def _main_directions(features: Features, device: str) -> npt.NDArray[np.float32]:
    """Standardised features on their main directions, each scaled to unit spread (N × DIRECTIONS)."""
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
    """Largest singular values and their right vectors, by subspace iteration: exact where features are few."""
    xp = array_namespace(rows)
    width = min(DIRECTIONS + SPARE, *rows.shape)
    start = np.random.default_rng(SEED).standard_normal((rows.shape[1], width))
    rounds = ROUNDS if width < rows.shape[1] else 0
    start = xp.asarray(start, device=device_of(rows))
    basis = subspace_iteration(lambda columns: rows.T @ (rows @ columns), start, rounds=rounds)
    _, values, turn = xp.linalg.svd(rows @ basis, full_matrices=False)
    return values, basis @ turn.T


def _learned_groups(dataset: Dataset) -> dict[str, Ints]:
    """Groups of tokens that look alike to the scorer; without a scorer, of tokens of one text.

    A "cluster" lies within the answers, or within the other tokens, of one source: a task tells its own tokens apart
    finely. A "kind" may lie anywhere: what few texts of a task show is taken from all.
    """
    if dataset.features is None:
        return {"cluster": _text_groups(dataset.reference_tokens.text)}
    look = _main_directions(dataset.features, dataset.device)
    cell = 2 * dataset.reference_tokens.source + dataset.reference_tokens.answer
    most = int(np.clip(CLUSTERS // len(np.unique(cell)), 1, MOST_PER_CELL))
    return {"cluster": _clusters(look, cell, most), "kind": _clusters(look, np.zeros_like(cell), TOKEN_KIND_CLUSTERS)}


def _clusters(look: npt.NDArray[np.float32], cell: Ints, most: int) -> Ints:
    """Which cluster of like tokens each token belongs to; clusters lie within cells, at most so many in each."""
    groups, count = np.full(len(look), -1), 0
    for name in np.unique(cell):
        own = np.flatnonzero(cell == name)
        centres = _centres(look[own], min(most, len(own) // FEWEST_PER_CLUSTER))
        groups[own] = count + nearest(look[own], centres)
        count += len(centres)
    return groups


def _centres(look: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
    """Centres of like tokens; one where they are few, or all the same."""
    rng = np.random.default_rng(SEED)
    sample = look[np.sort(rng.choice(len(look), min(SAMPLE, len(look)), replace=False))]
    count = min(count, len(np.unique(sample, axis=0)) if look.shape[1] else 1)
    return look[:1] if count < 2 else cluster(sample, count, rounds=20, seed=SEED)


def _text_groups(text: Ints) -> Ints:
    """Without features every text is a group; of very many texts, neighbours share one."""
    share = int(np.ceil((int(text.max()) + 1) / MOST_TEXT_GROUPS))
    return text // share
