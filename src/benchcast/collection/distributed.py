"""Collect losses on an executor: each job scores one portion of the texts with one model.

The driver cuts the texts into portions and stores the results; it loads tokenizers but no model. A worker loads its
model once for all its portions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchcast.backends import open_backend, open_scorer
from benchcast.backends.base import ModelSettings
from benchcast.collection import NOTHING, CollectJob, CollectResult, Report, begin, portions, store
from benchcast.collection.features import RemoteStates, Scorer, states
from benchcast.collection.portions import BackendInfo, Portion, PortionResult, score
from benchcast.collection.shards import ShardStore, exclusive
from benchcast.errors import BenchcastError, InputError
from benchcast.executor import Executor, Job
from benchcast.records import ModelInfo
from benchcast.store import Study

OnDone = Callable[[str, CollectResult | None], None]  # called with a model and its summary; None: stored before


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything a worker needs to open a model; plain data that can be sent to it."""

    backend: str  # empty: open as a scorer
    settings: tuple[tuple[str, str], ...]
    device: str = ""
    batch_size: int = 0  # 0: the backend's default
    gpus: float = 0.0  # GPUs that each worker reserves

    def open(self) -> Any:
        """Open the backend; the model itself is loaded when it first scores."""
        settings = ModelSettings(dict(self.settings))
        if self.backend:
            return open_backend(self.backend, settings, device=self.device, batch_size=self.batch_size)
        source = dict(self.settings).get("pretrained", "")
        return open_scorer(source, settings, device=self.device, batch_size=self.batch_size)


_loaded: dict[ModelSpec, Any] = {}  # the one model that this process holds


def _open_once(spec: ModelSpec) -> Any:
    if spec not in _loaded:
        _loaded.clear()
        _loaded[spec] = spec.open()
    return _loaded[spec]


def score_portion(shared: None, work: tuple[ModelSpec, Portion]) -> tuple[str, list[PortionResult]] | BenchcastError:
    """Run one job of `collect`: return the backend's description and the nats, or the error of this model."""
    spec, portion = work
    try:
        backend = _open_once(spec)
        return BackendInfo.of(backend).line, list(score(backend, portion))
    except BenchcastError as error:
        return InputError(str(error))


def state_portion(dtype: str, work: tuple[ModelSpec, Portion]) -> tuple[str, list[PortionResult]]:
    """Run one job of `features`: return the backend's description and the hidden states."""
    spec, portion = work
    scorer: Scorer = _open_once(spec)
    return BackendInfo.of(scorer).line, list(states(scorer, portion, dtype))


def states_on_executor(executor: Executor, spec: ModelSpec) -> RemoteStates:
    """The `remote` argument of `make_features` that computes hidden states on an executor."""

    def remote(work: Sequence[Portion], dtype: str) -> Iterator[tuple[str, PortionResult]]:
        for _, (backend_line, parts) in executor.run(state_portion, _jobs(spec, work), dtype):
            for part in parts:
                yield backend_line, part

    return remote


def _jobs(spec: ModelSpec, work: Sequence[Portion]) -> list[Job]:
    model = work[0].model if work else ""
    return [
        Job(
            f"{model}, {len(p.ids)} texts from {next(iter(p.names.values()))!r} on",
            (spec, p),
            group=model,
            cost=p.left * max(1.0, spec.gpus),
            gpus=spec.gpus,
        )
        for p in work
    ]


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """A model to collect."""

    spec: ModelSpec
    name: str = ""
    metadata: ModelInfo = NOTHING  # for models.csv
    skip_refused: bool = False

    @property
    def title(self) -> str:
        """The model's name in the study."""
        return (self.name or self.spec.open().model).strip()


@dataclass(slots=True)
class _CollectRun:
    """State of a model that is being collected."""

    request: CollectRequest
    job: CollectJob
    shard_store: ShardStore
    began: float  # seconds of the monotonic clock
    backend_line: str = ""  # the backend's description in this run's results
    failure: str = ""
    stored: bool = False

    @property
    def jobs(self) -> list[Job]:
        """Jobs for the unfinished portions."""
        texts = self.job.study.texts
        return _jobs(self.request.spec, portions(self.job.model, texts, self.job.encoded, self.shard_store.done))

    def take(self, answer: tuple[str, list[PortionResult]] | BenchcastError) -> Sequence[PortionResult]:
        """Add a portion's results; the model fails if workers differ in backend, version or dtype."""
        if isinstance(answer, BenchcastError):
            self.failure = self.failure or str(answer)
            return ()
        backend_line, parts = answer
        if self.backend_line and backend_line != self.backend_line:
            self.failure = (
                f"model {self.job.model!r}: workers differ, {self.backend_line} and {backend_line}; "
                "give all nodes the same"
            )
        self.backend_line = backend_line
        for part in parts:
            self.shard_store.take(backend_line, part.rows)
        return parts

    def store_if_whole(self, *, force: bool) -> CollectResult | None:
        """Store the losses if all texts are finished."""
        finished = len(self.shard_store.done) + len(self.job.refused)
        if self.stored or self.failure or finished < len(self.job.study.texts):
            return None
        remarks = store(self.job, self.shard_store, force=force)
        self.stored = True
        fresh = len(self.shard_store.done) - self.shard_store.resumed
        seconds = time.monotonic() - self.began
        done = (self.job.model, fresh, self.shard_store.resumed, self.shard_store.rows, seconds, self.job.refused)
        return CollectResult(*done, remarks=remarks)


def collect_on(
    executor: Executor,
    study: Study,
    requests: Sequence[CollectRequest],
    *,
    force: bool = False,
    report: Report,
    on_done: OnDone,
) -> dict[str, str]:
    """Collect several models concurrently and store each as soon as all its texts are finished.

    Parameters
    ----------
    executor : runs the jobs
    study : the study whose texts are scored
    requests : the models; their names must differ
    force : replace losses that are already stored
    report : called with the number of texts and tokens just finished
    on_done : called with each model's name and summary, None where its losses were stored already

    Returns
    -------
    the reason for each model that failed, by name
    """
    with ExitStack() as stack:
        runs, failed = _begin_all(study, requests, stack, force=force, on_done=on_done)
        for run in runs:
            report(run.shard_store.resumed + len(run.job.refused), 0)
        going = runs
        while going:
            for run in going:
                _finish(run, on_done, force=force)
            jobs = [(run, job) for run in going if not run.stored for job in run.jobs]
            for number, answer in executor.run(score_portion, [job for _, job in jobs]):
                run = jobs[number][0]
                for part in run.take(answer):
                    report(len(part.rows), part.tokens)
                _finish(run, on_done, force=force)
            going = [run for run in going if not run.stored and not run.failure]
    return failed | {run.job.model: run.failure for run in runs if run.failure}


def _begin_all(
    study: Study, requests: Sequence[CollectRequest], stack: ExitStack, *, force: bool, on_done: OnDone
) -> tuple[list[_CollectRun], dict[str, str]]:
    """Start a run for each model without losses; return the runs, and the errors of models that cannot start."""
    titles, runs, failed = [request.title for request in requests], [], {}
    for title, request in zip(titles, requests, strict=True):
        if titles.count(title) > 1:
            raise InputError(f"model {title!r} occurs twice in the list; give one of them another name")
        try:
            run = _begin(study, request, stack, force=force)
        except BenchcastError as error:
            failed[title] = str(error)
            continue
        if run is None:
            on_done(title, None)
        else:
            runs.append(run)
    if runs:
        study.add_models([ModelInfo(run.job.model) for run in runs])  # keeps the order of the list
    return runs, failed


def _begin(study: Study, request: CollectRequest, stack: ExitStack, *, force: bool) -> _CollectRun | None:
    """Lock a model and open its shards; None if its losses are stored. The lock is held until `stack` closes."""
    job = CollectJob(study, request.spec.open(), request.title, request.skip_refused, request.metadata)
    stack.enter_context(exclusive(job.folder, repr(job.model)))
    shard_store = begin(job, force=force)
    if shard_store is None:
        return None
    stack.callback(shard_store.flush)
    return _CollectRun(request, job, shard_store, time.monotonic())


def _finish(run: _CollectRun, on_done: OnDone, *, force: bool) -> None:
    done = run.store_if_whole(force=force)
    if done is not None:
        on_done(run.job.model, done)
