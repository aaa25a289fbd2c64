"""Generated dataset for the timings: losses and scores with some structure, so that solvers do real work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.devices import Array, place
from benchcast.losses.dataset import Dataset, Features, ReferenceTokens
from benchcast.methods.paper import Problems
from benchcast.records import ModelInfo, ModelMetadata, Task
from benchcast.splits import Fold

TASKS, TEXTS, FAMILIES = 6, 550, 9


class Generated:
    """An array of random numbers that is never whole: a slice is cut from one of a few blocks that come round."""

    def __init__(self, rows: int, columns: int, *, device: str = "", positive: bool = False) -> None:
        self.shape = (rows, columns)
        self.device, self.positive = device, positive
        self.blocks: dict[tuple[int, tuple[int, int]], Any] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: Any) -> Any:
        across = isinstance(at, tuple)
        start, stop, _ = (at[1] if across else at).indices(self.shape[1 if across else 0])
        shape = (self.shape[0], stop - start) if across else (stop - start, self.shape[1])
        turn = (start // max(1, stop - start)) % 4, shape
        if turn not in self.blocks:
            made = np.random.default_rng(turn[0]).standard_normal(shape, dtype=np.float32)
            self.blocks[turn] = place(np.abs(made) if self.positive else made, self.device)
        return self.blocks[turn]


def write_rows(path: Path, tokens: int, dims: int, *, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """A memory-mapped file of features, written in blocks."""
    rng = np.random.default_rng(0)
    values = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=(tokens, dims))
    for start in range(0, tokens, 8192):
        part = values[start : start + 8192]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
    values.flush()
    return np.load(path, mmap_mode="r")


def make_dataset(values: Array, *, models: int, tasks: int = TASKS, generated: bool = False) -> tuple[Dataset, Fold]:
    """Dataset on these features; with `generated`, losses are made when they are asked for."""
    rng = np.random.default_rng(1)
    n = len(values)
    ability = rng.normal(size=(models, 1)).astype(np.float32)
    place_of = str(getattr(values, "device", ""))
    nats: Any = Generated(models, n, device=place_of, positive=True) if generated else None
    if nats is None:
        nats = np.exp(0.3 * rng.standard_normal((models, n), dtype=np.float32) - 0.3 * ability)
    accuracy = 1 / (1 + np.exp(-(ability.T + 0.3 * rng.normal(size=(tasks, models)))))
    text = np.arange(n) * TEXTS // n
    tokens = ReferenceTokens(
        edges=np.arange(n + 1) * 4,
        text=text,
        source=text % tasks,
        answer=rng.random(n) < 0.05,
        sources=tuple(f"source{t}" for t in range(tasks)),
        supported=np.ones(n, bool),
    )
    dataset = Dataset(
        models=tuple(f"m{i}" for i in range(models)),
        metadata=ModelMetadata.of([ModelInfo(f"m{i}", f"family{i % FAMILIES}") for i in range(models)], []),
        nats=nats,
        characters=4.0 * n,
        tasks=tuple(Task(f"task{t}", 0.25 * (t % 2), (f"source{t}",)) for t in range(tasks)),
        accuracy=accuracy,
        n_items=np.full(accuracy.shape, 2000.0),
        reference_tokens=tokens,
        features=Features(values, tokens.edges, "generated"),
    )
    role = np.arange(models) % 5
    return dataset, Fold(role < 3, role == 3, role == 4)


def problems_of(dataset: Dataset, fold: Fold, rates: int) -> Problems:
    """All tasks at one or two learning rates, side by side."""

    def placed(values: Any) -> Any:
        return place(np.tile(np.asarray(values), (rates,) + (1,) * (np.ndim(values) - 1)), dataset.device)

    tasks = len(dataset.tasks)
    train, validation = (np.tile(mask.astype(float), (tasks, 1)) for mask in (fold.train, fold.validation))
    rate = place(np.repeat(np.array([1e-2, 1e-3], np.float32)[:rates], tasks), dataset.device)
    return Problems(placed(dataset.accuracy), placed(dataset.chance), placed(train), placed(validation), rate)
