"""Generated evidence for the timings: losses and scores with some structure, so that solvers do real work."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchcast.devices import place
from benchcast.evidence import Evidence, Features, Fold, Tokens
from benchcast.methods.descent import Problems
from benchcast.records import Task

TASKS, TEXTS, FAMILIES = 6, 550, 9


class Generated:
    """An array of random numbers that is never whole: every slice is made when it is asked for."""

    def __init__(self, rows: int, columns: int, *, device: str = "", positive: bool = False) -> None:
        self.shape = (rows, columns)
        self.device, self.positive = device, positive

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: Any) -> Any:
        part, rows = (at[1], self.shape[0]) if isinstance(at, tuple) else (at, None)
        start, stop, _ = part.indices(self.shape[1] if rows else self.shape[0])
        shape = (rows, stop - start) if rows else (stop - start, self.shape[1])
        if self.device:
            import torch

            made = torch.randn(shape, device=self.device)
            return made.abs() if self.positive else made
        made = np.random.default_rng(start).standard_normal(shape, dtype=np.float32)
        return np.abs(made) if self.positive else made


def make_evidence(
    features: Features, *, models: int, tasks: int = TASKS, generated: bool = False
) -> tuple[Evidence, Fold]:
    """Evidence on these features; with `generated`, losses are made when they are asked for."""
    rng = np.random.default_rng(1)
    n = features.shape[0]
    ability = rng.normal(size=(models, 1)).astype(np.float32)
    nats: Any = Generated(models, n, device=features.values.device, positive=True) if generated else None
    if nats is None:
        nats = np.exp(0.3 * rng.standard_normal((models, n), dtype=np.float32) - 0.3 * ability)
    accuracy = 1 / (1 + np.exp(-(ability.T + 0.3 * rng.normal(size=(tasks, models)))))
    text = np.arange(n) * TEXTS // n
    tokens = Tokens(
        edges=np.arange(n + 1) * 4,
        text=text,
        source=text % tasks,
        answer=rng.random(n) < 0.05,
        sources=tuple(f"source{t}" for t in range(tasks)),
        supported=np.ones(n, bool),
    )
    evidence = Evidence(
        models=tuple(f"m{i}" for i in range(models)),
        families=np.array([f"family{i % FAMILIES}" for i in range(models)]),
        nats=nats,
        characters=4.0 * n,
        tasks=tuple(Task(f"task{t}", 0.25 * (t % 2), (f"source{t}",)) for t in range(tasks)),
        accuracy=accuracy,
        n_items=np.full(accuracy.shape, 2000.0),
        flops=np.full(models, np.nan),
        tokens=tokens,
        features=features,
    )
    role = np.arange(models) % 5
    return evidence, Fold(role < 3, role == 3, role == 4)


def problems_of(evidence: Evidence, fold: Fold, rates: int) -> Problems:
    """All tasks at one or two learning rates, side by side."""

    def placed(values: Any) -> Any:
        return place(np.tile(np.asarray(values), (rates,) + (1,) * (np.ndim(values) - 1)), evidence.device)

    tasks = len(evidence.tasks)
    train, validation = (np.tile(mask.astype(float), (tasks, 1)) for mask in (fold.train, fold.validation))
    rate = place(np.repeat(np.array([1e-2, 1e-3], np.float32)[:rates], tasks), evidence.device)
    return Problems(placed(evidence.accuracy), placed(evidence.chance), placed(train), placed(validation), rate)
