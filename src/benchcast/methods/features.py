"""Features and losses in blocks for repeated passes, with the features' mean and standard deviation.

Axes: M models, N tokens, D features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from benchcast.devices import Array, fits_tf32, free_bytes, place, to_numpy
from benchcast.losses.dataset import Dataset, Features
from benchcast.methods.products import RowBlock, TiledBlock, TokenBlock, shared_out
from benchcast.records import Floats

KEEP_IN_MEMORY = 8 << 30  # bytes; larger features are read again on every pass
KEEP_ON_DEVICE = 0.6  # the same on a CUDA device, as a share of the free memory
DEVICE_BLOCKS = 4  # block size on a device, relative to a CPU
CACHED = 1 << 16  # features summed at a time on a CPU


@dataclass(frozen=True, slots=True)
class Inputs:
    """The large arrays, read once in the forward and once in the backward pass of every step."""

    blocks: Iterable[TokenBlock]  # a list if they are kept in memory
    characters: float
    mean: Array  # D, of the features
    spread: Array  # D


@dataclass(frozen=True, slots=True)
class Moments:
    """Statistics from one pass over the features."""

    mean: Floats  # D
    spread: Floats  # D; 1 where a feature never varies
    sums: Floats  # M × D: features summed over tokens, weighted by each model's nats; no rows if not computed


def placed_blocks(features: Features, device: str) -> Iterator[tuple[slice, Array]]:
    """Consecutive rows of the features in float32 on a device, each with the tokens they belong to."""
    for part, block in features.blocks(blown_up=DEVICE_BLOCKS if device else 1):
        yield part, place(block, device, "float32")


def measure(dataset: Dataset, *, weigh: bool) -> Moments:
    """Mean and spread of every feature and, if `weigh`, its sums weighted by nats, in one pass."""
    features, device = dataset.features, dataset.device
    assert features is not None
    n, d = features.shape
    pilot: Array = None
    total: Array = 0.0
    squares: Array = 0.0
    sums: Array = 0.0 if weigh else np.zeros((0, d))
    for part, block in placed_blocks(features, device):
        xp = array_namespace(block)
        pilot = xp.mean(block[:1024], axis=0) if pilot is None else pilot
        one, two = _sums(block, pilot)
        total, squares = total + one, squares + two
        if weigh:
            sums = sums + xp.astype(place(dataset.nats[:, part], device, "float32") @ block, xp.float64)
    total, squares = to_numpy(total), to_numpy(squares)
    mean = total / n
    spread = np.sqrt(np.maximum(squares / n - mean**2, 0))
    spread[spread < 1e-6 * max(1e-30, float(spread.max()))] = 1.0
    return Moments(mean + to_numpy(pilot), spread, to_numpy(sums))


def _sums(values: Array, pilot: Array) -> tuple[Array, Array]:
    """Sums and sums of squares of every feature, relative to `pilot`, which avoids cancellation.

    A CPU adds parts that stay in its cache; a device adds in double precision, without a copy.
    """
    xp = array_namespace(values)
    if is_torch_array(values):
        n, middle = len(values), xp.astype(pilot, xp.float64)
        total = xp.sum(values, axis=0, dtype=xp.float64)
        squares = xp.linalg.vector_norm(values, axis=0, dtype=xp.float64) ** 2
        return total - n * middle, squares - 2 * middle * total + n * middle**2
    step = max(1, CACHED // values.shape[1])

    def add_up(rows: Array) -> tuple[Array, Array]:
        total, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        for start in range(0, len(rows), step):
            centred = rows[start : start + step] - pilot
            total += centred.sum(axis=0)
            squares += (centred * centred).sum(axis=0)
        return total, squares

    parts = shared_out(add_up, values)
    return sum(one for one, _ in parts), sum(two for _, two in parts)


def prepare_inputs(dataset: Dataset, *, standardise: bool) -> Inputs:
    """Features in blocks with their mean and standard deviation; kept in memory if they fit."""
    features, device = dataset.features, dataset.device
    assert features is not None
    moments = measure(dataset, weigh=False)
    mean = moments.mean if standardise else np.zeros_like(moments.mean)
    spread = moments.spread if standardise else np.ones_like(moments.spread)
    blocks = _kept(dataset) if _fits(features.shape, device) else _StreamedTokenBlocks(dataset)
    return Inputs(blocks, dataset.characters, place(mean, device, "float32"), place(spread, device, "float32"))


def _fits(shape: tuple[int, int], device: str) -> bool:
    """Whether the features fit: two tiled copies in memory, or one on a device."""
    size = 4 * shape[0] * shape[1]
    free = free_bytes(device)
    return 2 * size <= KEEP_IN_MEMORY if free is None else size <= KEEP_ON_DEVICE * free


def _kept(dataset: Dataset) -> list[TokenBlock]:
    features, nats, device = dataset.features, dataset.nats, dataset.device
    assert features is not None
    if not device:
        blocks = features.blocks()
        return [TokenBlock(part.start, TiledBlock.of(block), TiledBlock.of(nats[:, part].T)) for part, block in blocks]
    values = features.values if features.rows is None else features.values[features.rows]
    losses = place(nats, device, "float32").T.contiguous()
    placed = place(values, device, "float32")
    return [TokenBlock(0, RowBlock(placed, placed.is_cuda and fits_tf32(placed)), RowBlock(losses))]


def keep_on_device(dataset: Dataset) -> Dataset:
    """The same dataset with its features on its device, if they fit, so that they are transferred once."""
    features, device = dataset.features, dataset.device
    if features is None or not device or not _fits(features.shape, device):
        return dataset
    return replace(dataset, features=replace(features, values=place(features.values, device, "float32")))


class StreamedBlocks:
    """Blocks that are read again on every pass, for features larger than memory."""

    def __init__(self, features: Features, device: str) -> None:
        self.features, self.device = features, device

    def __iter__(self) -> Iterator[tuple[slice, RowBlock]]:
        return ((part, RowBlock(block)) for part, block in placed_blocks(self.features, self.device))


class _StreamedTokenBlocks:
    """Blocks of tokens whose features are read again on every pass."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[TokenBlock]:
        features, nats, device = self.dataset.features, self.dataset.nats, self.dataset.device
        assert features is not None
        for part, block in StreamedBlocks(features, device):
            yield TokenBlock(part.start, block, RowBlock(place(nats[:, part], device, "float32").T))
