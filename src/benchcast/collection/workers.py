"""The work of one job: open a model and score one portion of the texts, in this process or on a worker.

A worker loads its model once for all its portions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchcast.backends import open_backend, open_scorer
from benchcast.backends.base import Backend, ModelSettings
from benchcast.collection.portions import BackendInfo, Portion, PortionResult, score
from benchcast.errors import BenchcastError
from benchcast.executor import Job

Work = tuple[Any, Portion]  # a model, opened or as a ModelSpec, and the texts to score with it


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything a worker needs to open a model; plain data that can be sent to it."""

    backend: str  # empty: open as a scorer
    settings: str | tuple[tuple[str, str], ...]  # "pretrained=…,dtype=…", or pairs of key and value
    device: str = ""
    batch_size: int = 0  # 0: the backend's default
    gpus: float = 0.0  # GPUs that each worker reserves

    def open(self) -> Any:
        """Open the backend; the model itself is loaded when it first scores."""
        given = self.settings
        settings = ModelSettings.parse(given) if isinstance(given, str) else ModelSettings(dict(given))
        if self.backend:
            return open_backend(self.backend, settings, device=self.device, batch_size=self.batch_size)
        return open_scorer(
            settings.values().get("pretrained", ""), settings, device=self.device, batch_size=self.batch_size
        )


_loaded: dict[ModelSpec, Any] = {}  # the one model that this process holds


def opened(model: Any) -> Any:
    """The backend of a job; a ModelSpec is opened once in each process."""
    if not isinstance(model, ModelSpec):
        return model
    if model not in _loaded:
        _loaded.clear()
        _loaded[model] = model.open()
    return _loaded[model]


def portion_jobs(model: ModelSpec | Backend, work: Sequence[Portion]) -> list[Job]:
    """One job for each portion; the jobs of a model run on the same workers."""
    gpus = model.gpus if isinstance(model, ModelSpec) else 0.0
    return [
        Job(
            f"{portion.model}, {len(portion.ids)} texts from {next(iter(portion.names.values()))!r} on",
            (model, portion),
            group=portion.model,
            cost=portion.left * max(1.0, gpus),
            gpus=gpus,
        )
        for portion in work
    ]


def score_portion(_: None, work: Work) -> Iterator[tuple[str, PortionResult] | BenchcastError]:
    """Run one job of `collect`: yield the backend's description with each batch, or the error of this model."""
    model, portion = work
    try:
        backend = opened(model)
        backend_line = BackendInfo.of(backend).line
        for part in score(backend, portion):
            yield backend_line, part
    except BenchcastError as error:
        yield error
