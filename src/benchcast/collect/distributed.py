"""Models × texts on an executor: a job is one model and one portion of the texts.

The driver cuts, takes in and stores; it loads tokenizers and no model. A worker loads its model once, for all
the portions it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchcast.backends import open_backend, open_scorer
from benchcast.backends.base import ModelSettings
from benchcast.collect import NOTHING, CollectJob, CollectResult, Report, begin, portions, store
from benchcast.collect.features import RemoteStates, Scorer, states
from benchcast.collect.portions import BackendInfo, Portion, PortionResult, score
from benchcast.collect.shards import ShardStore, exclusive
from benchcast.errors import BenchcastError, InputError
from benchcast.executor import Executor, Job
from benchcast.records import ModelInfo
from benchcast.store import Study

OnDone = Callable[[str, CollectResult | None], None]  # a model, and what was done; None: it was there already


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """How a worker opens a model: plain data."""

    backend: str  # empty: as a scorer
    settings: tuple[tuple[str, str], ...]
    device: str = ""
    batch_size: int = 0
    gpus: float = 0.0  # of a worker

    def open(self) -> Any:
        """The backend; nothing heavy is loaded before it is asked to score."""
        settings = ModelSettings(dict(self.settings))
        if self.backend:
            return open_backend(self.backend, settings, device=self.device, batch_size=self.batch_size)
        source = dict(self.settings).get("pretrained", "")
        return open_scorer(source, settings, device=self.device, batch_size=self.batch_size)


_loaded: dict[ModelSpec, Any] = {}  # of this process: the model in use, never two


def _open_once(spec: ModelSpec) -> Any:
    if spec not in _loaded:
        _loaded.clear()
        _loaded[spec] = spec.open()
    return _loaded[spec]


def score_portion(shared: None, given: tuple[ModelSpec, Portion]) -> tuple[str, list[PortionResult]] | BenchcastError:
    """Work of one job of `collect`: who made the nats, and the nats; or what is wrong with this model."""
    spec, portion = given
    try:
        backend = _open_once(spec)
        return BackendInfo.of(backend).line, list(score(backend, portion))
    except BenchcastError as error:
        return InputError(str(error))


def state_portion(dtype: str, given: tuple[ModelSpec, Portion]) -> tuple[str, list[PortionResult]]:
    """Work of one job of `features`."""
    spec, portion = given
    scorer: Scorer = _open_once(spec)
    return BackendInfo.of(scorer).line, list(states(scorer, portion, dtype))


def states_on_executor(executor: Executor, spec: ModelSpec) -> RemoteStates:
    """How `make_features` has its work done by an executor."""

    def remote(work: Sequence[Portion], dtype: str) -> Iterator[tuple[str, PortionResult]]:
        for _, (made, parts) in executor.run(state_portion, _jobs(spec, work), dtype):
            for part in parts:
                yield made, part

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
    """A model that is being collected."""

    request: CollectRequest
    job: CollectJob
    shard_store: ShardStore
    began: float
    maker: str = ""  # of this run's results
    failure: str = ""
    stored: bool = False

    @property
    def jobs(self) -> list[Job]:
        """What is left of it."""
        texts = self.job.study.texts
        return _jobs(self.request.spec, portions(self.job.model, texts, self.job.encoded, self.shard_store.done))

    def take(self, answer: tuple[str, list[PortionResult]] | BenchcastError) -> Sequence[PortionResult]:
        """Add a portion; workers that differ in what losses depend on must not be mixed."""
        if isinstance(answer, BenchcastError):
            self.failure = self.failure or str(answer)
            return ()
        made, parts = answer
        if self.maker and made != self.maker:
            self.failure = f"model {self.job.model!r}: workers differ, {self.maker} and {made}; give all nodes the same"
        self.maker = made
        for part in parts:
            self.shard_store.take(made, part.rows)
        return parts

    def store_if_whole(self, *, force: bool) -> CollectResult | None:
        """Store the losses once all texts are done."""
        settled = len(self.shard_store.done) + len(self.job.refused)
        if self.stored or self.failure or settled < len(self.job.study.texts):
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
    """Collect several models side by side; returns those that could not be, and why. The others are stored."""
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
    """Runs of the models that have no losses yet, and those that cannot even begin, with the reason."""
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
        study.add_models([ModelInfo(run.job.model) for run in runs])  # in the order of the list, whoever is first
    return runs, failed


def _begin(study: Study, request: CollectRequest, stack: ExitStack, *, force: bool) -> _CollectRun | None:
    """A model with what is known of it; None where its losses are stored. It is held until all are through."""
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
