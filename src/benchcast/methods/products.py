"""Memory-bound products of features with few columns; numpy or torch.

A head over the features has one column per problem, about a dozen. Each feature takes part in only a few
multiplications, so a BLAS spends more time on repacking the features than memory needs to deliver them. Features in
memory are therefore stored once in tiles: 32 adjacent tokens for one direction, 32 adjacent features for the other.
Both directions then read contiguous memory, in products small enough that OpenBLAS does not repack.
Axes: n tokens of a block, D features, Q columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from array_api_compat import is_torch_array

from benchcast.devices import Array, tf32_split_matmul

Result = TypeVar("Result")
WIDTH = 32  # of a tile
SMALL = 1_000_000  # multiplications up to which OpenBLAS works without copying
FEWEST_ROWS, MOST_ROWS = 16, 64  # rows of features in one small product
DEVICE_ROWS = 2048  # rows per product that a GPU sums over tokens


class FeatureBlock(Protocol):
    """Features of consecutive tokens, to be multiplied from either side."""

    def project(self, columns: Array) -> Array:
        """Projection of every token onto every column: (Q × D) → Q × n."""
        ...

    def gather(self, values: Array) -> Array:
        """Features summed over tokens with these weights: (Q × n) → Q × D."""
        ...


@dataclass(frozen=True, slots=True)
class TokenBlock:
    """Consecutive tokens: their features, and the models' losses on them, which are multiplied in the same way."""

    start: int
    features: FeatureBlock
    losses: FeatureBlock  # one column for each model


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Features in rows, one for each token."""

    values: Array  # n × D
    short: bool = False  # whether they are exact in TF32

    def project(self, columns: Array) -> Array:
        """(Q × D) → Q × n."""
        if self.short:
            return tf32_split_matmul(lambda c: (self.values @ c.T).T, columns)
        if is_torch_array(self.values):
            return (self.values @ columns.contiguous().T).T
        rows = min(MOST_ROWS, SMALL // max(1, columns.size))
        if rows < FEWEST_ROWS:
            return columns @ self.values.T
        return np.concatenate(shared_out(lambda some: _in_batches(some, columns, rows), self.values)).T

    def gather(self, values: Array) -> Array:
        """(Q × n) → Q × D."""
        if self.short:
            return tf32_split_matmul(lambda v: v @ self.values, values)
        n, d = self.values.shape
        bulk = n // DEVICE_ROWS * DEVICE_ROWS if is_torch_array(self.values) else 0
        rest = values[:, bulk:] @ self.values[bulk:]
        if not bulk:
            return rest
        left = values[:, :bulk].reshape(len(values), -1, DEVICE_ROWS).swapaxes(0, 1)
        return (left @ self.values[:bulk].reshape(-1, DEVICE_ROWS, d)).sum(0) + rest


def _in_batches(values: Array, columns: Array, rows: int) -> npt.NDArray[np.floating]:
    """Rows times columns (n × Q), in blocks of rows that BLAS does not copy."""
    bulk = len(values) // rows * rows
    most = values[:bulk].reshape(-1, rows, values.shape[1]) @ columns.T
    return np.concatenate([most.reshape(bulk, len(columns)), values[bulk:] @ columns.T])


@dataclass(frozen=True, slots=True)
class TiledBlock:
    """Features stored in both layouts, so that both products read contiguous memory; numpy."""

    along: npt.NDArray[np.float32]  # tiles × D × WIDTH tokens
    across: npt.NDArray[np.float32]  # tiles × n × WIDTH features; n and D are padded to whole tiles
    shape: tuple[int, int]

    @staticmethod
    def of(values: npt.NDArray[np.floating]) -> TiledBlock:
        """Tiles from features in rows."""
        n, d = values.shape
        whole = np.pad(values, ((0, -n % WIDTH), (0, -d % WIDTH))) if n % WIDTH or d % WIDTH else values
        across = np.ascontiguousarray(whole.reshape(len(whole), -1, WIDTH).transpose(1, 0, 2), np.float32)
        along = np.empty((len(whole) // WIDTH, len(across), WIDTH, WIDTH), np.float32)
        for k, tile in enumerate(across):  # blocks of 32 × 32 values stay in cache
            along[:, k] = tile.reshape(-1, WIDTH, WIDTH).transpose(0, 2, 1)
        return TiledBlock(along.reshape(len(along), -1, WIDTH), across, (n, d))

    def project(self, columns: Array) -> Array:
        """(Q × D) → Q × n."""
        return _times_tiles(columns, self.along)[:, : self.shape[0]]

    def gather(self, values: Array) -> Array:
        """(Q × n) → Q × D."""
        return _times_tiles(values, self.across)[:, : self.shape[1]]


def _times_tiles(left: Array, tiles: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(Q × K) times tiles of K rows each, side by side; K is split so that each product stays small."""
    q, k = len(left), tiles.shape[1]
    padded = left
    if left.shape[1] < k:
        padded = np.zeros((q, k), np.float32)
        padded[:, : left.shape[1]] = left
    cuts = _cuts(k, WIDTH * q)
    parts = padded.reshape(q, cuts, k // cuts).transpose(1, 0, 2)
    products = np.matmul(np.ascontiguousarray(parts, np.float32), tiles.reshape(-1, cuts, k // cuts, WIDTH))
    summed = products.sum(axis=1) if cuts > 1 else products[:, 0]
    return np.ascontiguousarray(summed.transpose(1, 0, 2)).reshape(q, -1)


def _cuts(length: int, width: int) -> int:
    """Number of equal parts into which a sum of `length` terms is split so that each product stays small."""
    cuts = 1
    while length // cuts * width > SMALL and length // cuts % 2 == 0:
        cuts *= 2
    return cuts


def over_blocks(work: Callable[[TokenBlock], Result], blocks: Iterable[TokenBlock]) -> Iterator[Result]:
    """The work on every block, in order; on all cores if blocks are in memory, as BLAS runs small products on one."""
    workers = _cores()
    if workers == 1 or not isinstance(blocks, list) or len(blocks) == 1:
        yield from map(work, blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, blocks)


def shared_out(work: Callable[[Array], Result], rows: Array) -> list[Result]:
    """The work on an equal part of the rows for each core, in order; a torch tensor is not split."""
    workers = 1 if is_torch_array(rows) else min(_cores(), -(-len(rows) // MOST_ROWS))
    if workers <= 1:
        return [work(rows)]
    step = -(-len(rows) // (workers * MOST_ROWS)) * MOST_ROWS
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, [rows[a : a + step] for a in range(0, len(rows), step)]))


def _cores() -> int:
    """Cores this process may use; OMP_NUM_THREADS lowers it, as it does for the BLAS."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(there, int(asked)) if asked.isdigit() and int(asked) > 0 else there
