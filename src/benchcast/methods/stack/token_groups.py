"""Step 1: groups of tokens, from which `salience` and `stack` form their weights.

A weight vector is a combination of groups: all tokens, the tokens of each source, the answers of each source, the texts
that a task names as its answers, and clusters of tokens with similar hidden states. The combination is learned on small
matrices, models × groups, one for each view of the losses. Where models have choice losses, the texts of each task are
a group, too: a model's value is the mean of its choice losses.

Tokens are clustered in the largest principal components of the standardised hidden states, which a randomised subspace
iteration finds (Halko, Martinsson and Tropp 2011), by k-means from k-means++ centres (Arthur and Vassilvitskii 2007).

Axes: M models, N tokens, S texts, K groups, D features, n points, d dimensions, k clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from array_api_compat import device as device_of

from benchcast.devices import Array, place, subspace_iteration, to_numpy
from benchcast.losses.dataset import VIEWS, Dataset, Features, view
from benchcast.methods.features import StreamedBlocks
from benchcast.methods.stack.settings import Grouping, StackSettings
from benchcast.records import CHOICE_COLUMN, Bools, Floats, Ints

BLOCK = 16384  # tokens summed at a time; changes sums by rounding errors only

Points = npt.NDArray[np.floating]  # n × d


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Disjoint groups of one grouping."""

    grouping: Grouping
    group: Ints  # N: number of each token's group, −1 for none; of choice losses S: of each text's group
    count: int  # of groups
    by_source: bool = False  # group i holds tokens of source i
    task: str = ""  # the task that names the texts of the group as its answers or choices, if there is one

    @property
    def of_choices(self) -> bool:
        """Whether the groups are of texts with choice losses."""
        return self.grouping == "choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGroups:
    """The groups of all partitions, one partition after the other."""

    partitions: tuple[Partition, ...]
    grouping: npt.NDArray[np.str_]  # K: `Grouping`
    source: Ints  # K: the source that a group is confined to, −1 for none
    task: npt.NDArray[np.str_]  # K: the task whose `answers` a group consists of, "" for none
    size: Floats  # K: supported tokens in each group

    @classmethod
    def of(cls, partitions: tuple[Partition, ...], supported: Bools) -> TokenGroups:
        """Number the groups of some partitions; `supported` (N) marks the tokens that count."""
        sizes = [
            np.ones(p.count)  # a mean of choice losses is one value, whatever the number of texts
            if p.of_choices
            else np.bincount(p.group[(p.group >= 0) & supported], minlength=p.count)
            for p in partitions
        ]
        counts = [p.count for p in partitions]
        return cls(
            partitions=partitions,
            grouping=np.repeat([p.grouping for p in partitions], counts),
            source=np.concatenate([np.arange(p.count) if p.by_source else np.full(p.count, -1) for p in partitions]),
            task=np.repeat([p.task for p in partitions], counts),
            size=np.concatenate(sizes).astype(np.float64),
        )

    @property
    def clusters(self) -> Bools:
        """The groups of the grouping "cluster" that have tokens (K)."""
        return np.asarray((self.grouping == "cluster") & (self.size > 0))

    def token_weights(self, mix: Floats) -> npt.NDArray[np.float32]:
        """The weight of every token (N) for one combination of groups (K)."""
        return self._spread(mix, of_choices=False, mean=False)

    def choice_weights(self, mix: Floats) -> npt.NDArray[np.float32]:
        """The weight of every text's choice loss (S) for one combination of groups (K); empty without such groups."""
        return self._spread(mix, of_choices=True, mean=True)

    def _spread(self, mix: Floats, *, of_choices: bool, mean: bool) -> npt.NDArray[np.float32]:
        """The sum over partitions of the weight of each member's group; for means, over the members of the group."""
        total: Floats = np.zeros(0)
        at = 0
        for p in self.partitions:
            if p.of_choices == of_choices:
                of_group = mix[at : at + p.count]
                if mean:
                    of_group = of_group / np.bincount(p.group[p.group >= 0], minlength=p.count)
                total = np.append(of_group, 0.0)[p.group] + (total if len(total) else 0.0)
            at += p.count
        return total.astype(np.float32)

    def without_choices(self) -> TokenGroups:
        """The groups of tokens alone."""
        kept = np.repeat([not p.of_choices for p in self.partitions], [p.count for p in self.partitions])
        return TokenGroups(
            partitions=tuple(p for p in self.partitions if not p.of_choices),
            grouping=self.grouping[kept],
            source=self.source[kept],
            task=self.task[kept],
            size=self.size[kept],
        )


def group_tokens(dataset: Dataset, settings: StackSettings) -> TokenGroups:
    """The groups of a dataset's tokens."""
    tokens, answers = dataset.reference_tokens, dataset.reference_tokens.answer
    n_sources = len(tokens.sources)
    partitions = [
        Partition(grouping="all", group=np.zeros(len(tokens.text), np.int64), count=1),
        Partition(grouping="source", group=tokens.source, count=n_sources, by_source=True),
        Partition(grouping="answer", group=np.where(answers, tokens.source, -1), count=n_sources, by_source=True),
        *_similar_tokens(dataset, settings),
    ]
    for task in dataset.tasks:
        if task.answers:
            named = np.where(tokens.of_texts(task.answers), 0, -1)
            partitions.append(Partition(grouping="answer", group=named, count=1, task=task.name))
    return TokenGroups.of((*partitions, *_choice_partitions(dataset)), tokens.supported)


def _choice_partitions(dataset: Dataset) -> list[Partition]:
    """For each task one group of texts: those of its sources, answers or columns of choices that have choice losses."""
    tokens, used = dataset.reference_tokens, dataset.choices.texts
    if not dataset.choices.used:
        return []
    of_columns = dataset.choices.name == CHOICE_COLUMN
    partitions = []
    for task in dataset.tasks:
        own = np.zeros(len(used), bool)
        own[tokens.text[tokens.of_texts(task.choices) if of_columns else tokens.of_task(task)]] = True
        if (own & used).any():
            group = np.where(own & used, 0, -1)
            partitions.append(Partition(grouping="choice", group=group, count=1, task=task.name))
    return partitions


def group_losses(dataset: Dataset, groups: TokenGroups) -> dict[str, Floats]:
    """For each view, every model's loss per character on each group of tokens, or mean choice loss (M × K)."""
    plain = groups.without_choices()
    choices = [p for p in groups.partitions if p.of_choices]
    by_view = {name: _group_sums(dataset, name, plain) / dataset.characters for name in VIEWS}
    return {name: np.hstack([x, *(_mean_choices(dataset, name, p) for p in choices)]) for name, x in by_view.items()}


def _mean_choices(dataset: Dataset, name: str, partition: Partition) -> Floats:
    """Mean of one view of the choice losses over every group (M × groups).

    A model that lacks one has 0: it is not learned from, and its forecast does not come from here.
    """
    values = (dataset.metadata.choices or {})[dataset.choices.name]
    members = partition.group[:, None] == np.arange(partition.count)
    used = members.any(axis=1)
    means = view(values[:, used], name) @ (members[used] / members[used].sum(axis=0))
    return np.where(np.isnan(means), 0.0, means)


def _group_sums(dataset: Dataset, name: str, groups: TokenGroups) -> Floats:
    """Sum of one view of the tokens over every group (M × K)."""
    nats, device = dataset.nats, dataset.device
    total = np.zeros((len(nats), len(groups.grouping)), np.float64)
    for start in range(0, nats.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        one_hot = np.hstack([p.group[part, None] == np.arange(p.count) for p in groups.partitions])
        seen = view(place(nats[:, part], device, "float32"), name)
        total += to_numpy(seen @ place(one_hot, device, "float32"))
    return total


def _similar_tokens(dataset: Dataset, settings: StackSettings) -> list[Partition]:
    """Clusters of tokens with similar hidden states; without features, one group for each text.

    There are two groupings of clusters. A "cluster" is within one cell, the answers or the other tokens of one source,
    so that a task's tokens are resolved finely. A "kind" (of token) is over all texts, so that a task with few texts
    borrows strength from the others.
    """
    tokens = dataset.reference_tokens
    if dataset.features is None:
        texts_per_group = int(np.ceil((int(tokens.text.max()) + 1) / settings.most_text_groups))
        group = tokens.text // texts_per_group
        return [Partition(grouping="cluster", group=group, count=int(group.max()) + 1)]
    points = _main_directions(dataset.features, dataset.device, settings)
    cell = 2 * tokens.source + tokens.answer
    most = int(np.clip(settings.source_clusters // len(np.unique(cell)), 1, settings.most_per_cell))
    clusters = _cluster_cells(points, cell, most=most, settings=settings)
    kinds = _cluster_cells(points, np.zeros_like(cell), most=settings.kind_clusters, settings=settings)
    return [
        Partition(grouping="cluster", group=clusters, count=int(clusters.max()) + 1),
        Partition(grouping="kind", group=kinds, count=int(kinds.max()) + 1),
    ]


def _main_directions(features: Features, device: str, settings: StackSettings) -> npt.NDArray[np.float32]:
    """Principal components of the standardised features, each with unit variance (N × directions)."""
    sample = place(features.sample(settings.sample, np.random.default_rng(settings.seed)), device, "float64")
    xp = array_namespace(sample)
    mean = xp.mean(sample, axis=0)
    spread = xp.sqrt(xp.mean((sample - mean) ** 2, axis=0))
    dead = spread < settings.smallest_spread * max(float(xp.max(spread)), 1e-30)
    spread = xp.where(dead, xp.full_like(spread, np.inf), spread)
    values, vectors = _largest_directions((sample - mean) / spread, settings)
    count = min(settings.directions, int(xp.sum(values > settings.smallest_spread * values[0])))
    scale = values[:count] / len(sample) ** 0.5
    turn = vectors[:, :count] / scale / spread[:, None]
    shift = to_numpy(mean @ turn).astype(np.float32)
    columns = place(turn.T, device, "float32")
    parts = [to_numpy(block.project(columns)).T - shift for _, block in StreamedBlocks(features, device)]
    return np.concatenate(parts)


def _largest_directions(rows: Array, settings: StackSettings) -> tuple[Array, Array]:
    """Largest singular values and their right vectors, by subspace iteration; exact if there are few features."""
    xp = array_namespace(rows)
    width = min(settings.directions + settings.extra_directions, *rows.shape)
    start = np.random.default_rng(settings.seed).standard_normal((rows.shape[1], width))
    rounds = settings.direction_rounds if width < rows.shape[1] else 0
    start = xp.asarray(start, device=device_of(rows))
    basis = subspace_iteration(lambda columns: rows.T @ (rows @ columns), start, rounds=rounds)
    _, values, turn = xp.linalg.svd(rows @ basis, full_matrices=False)
    return values, basis @ turn.T


def _cluster_cells(points: Points, cell: Ints, *, most: int, settings: StackSettings) -> Ints:
    """The cluster of each token (N); each cell (a label per token) has clusters of its own, at most `most`."""
    groups, count = np.full(len(points), -1), 0
    for name in np.unique(cell):
        members = np.flatnonzero(cell == name)
        centres = _centres(points[members], min(most, len(members) // settings.fewest_per_cluster), settings)
        groups[members] = count + nearest(points[members], centres)
        count += len(centres)
    return groups


def _centres(points: Points, count: int, settings: StackSettings) -> Points:
    """Cluster centres of tokens; one centre if there are few tokens or all are equal."""
    rng = np.random.default_rng(settings.seed)
    sample = points[np.sort(rng.choice(len(points), min(settings.sample, len(points)), replace=False))]
    count = min(count, len(np.unique(sample, axis=0)) if points.shape[1] else 1)
    if count < 2:
        return points[:1]
    return cluster(sample, count, rounds=settings.cluster_rounds, seed=settings.seed)


def cluster(points: Points, count: int, *, rounds: int, seed: int) -> Points:
    """Centres of `count` clusters (k × d) by k-means; the centre of an empty cluster is not moved."""
    centres = _first_centres(points, count, seed)
    for _ in range(rounds):
        label = nearest(points, centres)
        size = np.bincount(label, minlength=count)
        order = np.argsort(label, kind="stable")
        used = np.flatnonzero(size)
        starts = np.cumsum(size)[used] - size[used]
        centres = centres.copy()
        centres[used] = np.add.reduceat(points[order], starts, axis=0, dtype=np.float64) / size[used, None]
    return centres


def nearest(points: Points, centres: Points) -> Ints:
    """Index of the nearest centre of each point (n)."""
    return np.argmax(points @ centres.T - 0.5 * (centres**2).sum(axis=1), axis=1).astype(np.int64)


def _first_centres(points: Points, count: int, seed: int) -> Points:
    """k-means++: each centre is drawn with probability ∝ the squared distance to the nearest earlier centre."""
    rng = np.random.RandomState(seed)
    chosen = [int(rng.randint(len(points)))]
    far = np.full(len(points), np.inf)
    for _ in range(count - 1):
        far = np.minimum(far, ((points - points[chosen[-1]]).astype(np.float64) ** 2).sum(axis=1))
        chosen.append(int(np.searchsorted(np.cumsum(far / far.sum()), rng.uniform())))
    return points[chosen]
