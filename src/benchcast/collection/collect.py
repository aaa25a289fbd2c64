"""Score the texts of a study with models and store the losses; scores only the texts that are missing.

One loop serves this process and a cluster: the driver cuts the texts into portions, an executor scores them, and the
driver stores the results. It loads tokenizers, but a model only if that runs in this process.

Finished texts are written to shards in collecting/<model>/, each atomically. After a kill the same command reads the
shards and continues. Once all texts are finished, the losses are stored in one step and the shards are deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchcast.collection.backends.base import Backend
from benchcast.collection.backends.loaded import NO_METADATA
from benchcast.collection.jobs import (
    DEFAULT,
    Agreement,
    CollectJob,
    CollectOptions,
    ModelSpec,
    portion_jobs,
    score_portion,
)
from benchcast.collection.shards import ShardStore, exclusive
from benchcast.collection.windows import BackendInfo, PortionResult
from benchcast.errors import BenchcastError, InputError
from benchcast.executors.local import Executor, Job, Local
from benchcast.records import ModelInfo
from benchcast.study.study import Study, StudyLike

Report = Callable[[int, int], None]  # called with the number of texts and of tokens just finished


@dataclass(frozen=True, slots=True)
class CollectResult:
    """Summary of one `collect` run."""

    model: str
    texts: int  # scored in this run
    resumed: int  # texts read from shards of an earlier run
    tokens: int  # scored in this run
    seconds: float
    refused: tuple[str, ...] = ()  # ids of texts without losses, because the tokenizer cannot cover them
    agreement: Agreement | None = None
    remarks: tuple[str, ...] = ()  # one line for each conflict with models.csv


OnDone = Callable[[str, CollectResult | None], None]  # called with a model and its summary; None: stored before


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """A model that `collect_on` scores, its name and metadata in the study, and how.

    >>> import benchcast as bc
    >>> spec = bc.ModelSpec("hf", "pretrained=checkpoint,add_bos_token=true")
    >>> request = bc.CollectRequest(spec, name="my-7b", metadata=bc.ModelInfo("", family="mine", params=7e9))
    >>> study = bc.create_study("new", "texts.jsonl").study
    >>> with bc.open_executor("local") as executor:
    ...     bc.collect_on(executor, study, [request])
    {}
    >>> study.models()[0].family
    'mine'
    """

    model: ModelSpec | Backend  # a ModelSpec is opened by the workers, a backend runs in this process
    name: str = ""  # in the study; empty: the backend's name for it
    metadata: ModelInfo = NO_METADATA  # values for blank cells of models.csv; its name is not used
    options: CollectOptions = DEFAULT

    def job(self, study: Study) -> CollectJob:
        """The driver's side of the work."""
        backend = self.model.open() if isinstance(self.model, ModelSpec) else self.model
        return CollectJob(study, backend, (self.name or backend.model).strip(), self.metadata, self.options)


def collect(
    study: StudyLike,
    backend: Backend,
    *,
    name: str = "",
    metadata: ModelInfo = NO_METADATA,
    options: CollectOptions = DEFAULT,
    report: Report | None = None,
) -> CollectResult | None:
    """Score every text that has no stored loss yet and store the losses of the model.

    Parameters
    ----------
    study : an opened study or its folder, whose texts are scored
    backend : scores token ids, for example from `open_backend`
    name : the model's name in the study; default: the backend's name for it
    metadata : values for blank cells of models.csv; its `model` field is not used
    options : replace stored losses, skip texts that the tokenizer cannot cover, compare with a second backend
    report : called with the number of texts and tokens just finished

    Returns
    -------
    a summary of the run, or None if the losses were stored already

    >>> import benchcast as bc
    >>> study = bc.create_study("new", "texts.jsonl").study
    >>> bc.collect(study, bc.open_backend("hf", "pretrained=checkpoint"), name="my-7b").texts
    6
    """
    request = CollectRequest(backend, name, metadata, options)
    results: dict[str, CollectResult | None] = {}
    quiet = report or (lambda texts, tokens: None)
    failed = collect_on(Local(), study, [request], report=quiet, on_done=results.__setitem__)
    for error in failed.values():
        raise error
    return next(iter(results.values()))


@dataclass(slots=True)
class _CollectRun:
    """State of a model that is being collected."""

    job: CollectJob
    model: ModelSpec | Backend
    shard_store: ShardStore
    agreement: Agreement | None
    began: float  # seconds of the monotonic clock
    backend_line: str = ""  # the backend's description in this run's results
    failure: BenchcastError | None = None
    stored: bool = False

    @property
    def jobs(self) -> list[Job]:
        """Jobs for the unfinished portions."""
        return portion_jobs(self.model, self.job.encoded.portions(self.job.model, self.shard_store.done))

    def take(self, answer: tuple[str, PortionResult] | BenchcastError, report: Report) -> None:
        """Add a batch's results; the model fails if workers differ in backend, version or dtype."""
        if isinstance(answer, BenchcastError):
            self.failure = self.failure or answer
            return
        backend_line, part = answer
        if self.backend_line and backend_line != self.backend_line:
            self.failure = InputError(
                f"model {self.job.model!r}: workers differ, {self.backend_line} and {backend_line}; "
                "give all nodes the same"
            )
        self.backend_line = backend_line
        self.shard_store.take(backend_line, part.rows)
        report(len(part.rows), part.tokens)

    def finish(self, on_done: OnDone) -> None:
        """Store the losses if all texts are finished."""
        finished = len(self.shard_store.done) + len(self.job.refused)
        if self.stored or self.failure or finished < len(self.job.study.texts):
            return
        remarks = self.job.store(self.shard_store, self.agreement)
        self.stored = True
        result = CollectResult(
            self.job.model,
            texts=len(self.shard_store.done) - self.shard_store.resumed,
            resumed=self.shard_store.resumed,
            tokens=self.shard_store.rows,
            seconds=time.monotonic() - self.began,
            refused=self.job.refused,
            agreement=self.agreement,
            remarks=remarks,
        )
        on_done(self.job.model, result)


def collect_on(
    executor: Executor,
    study: StudyLike,
    requests: Sequence[CollectRequest],
    *,
    report: Report = lambda texts, tokens: None,
    on_done: OnDone = lambda model, result: None,
) -> dict[str, BenchcastError]:
    """Collect several models concurrently and store each as soon as all its texts are finished.

    Parameters
    ----------
    executor : runs the jobs
    study : an opened study or its folder, whose texts are scored
    requests : the models; their names must differ
    report : called with the number of texts and tokens just finished
    on_done : called with each model's name and summary, None where its losses were stored already

    Returns
    -------
    the error of each model that failed, by name

    >>> import benchcast as bc
    >>> study = bc.create_study("new", "texts.jsonl").study
    >>> request = bc.CollectRequest(bc.ModelSpec("hf", "pretrained=checkpoint"), name="my-7b")
    >>> with bc.open_executor("local") as executor:
    ...     bc.collect_on(executor, study, [request])
    {}
    """
    with ExitStack() as stack:
        runs, failed = _begin_all(Study.of(study), requests, stack, on_done)
        for run in runs:
            report(run.shard_store.resumed + len(run.job.refused), 0)
        going = runs
        while going:
            for run in going:
                run.finish(on_done)
            jobs = [(run, job) for run in going if not run.stored for job in run.jobs]
            for number, answer in executor.run(score_portion, [job for _, job in jobs]):
                run = jobs[number][0]
                run.take(answer, report)
                run.finish(on_done)
                if run.failure and all(other.failure for other, _ in jobs):
                    break
            going = [run for run in going if not run.stored and not run.failure]
    return failed | {run.job.model: run.failure for run in runs if run.failure}


def _begin_all(
    study: Study, requests: Sequence[CollectRequest], stack: ExitStack, on_done: OnDone
) -> tuple[list[_CollectRun], dict[str, BenchcastError]]:
    """Start a run for each model without losses; return the runs, and the errors of models that cannot start."""
    jobs = [request.job(study) for request in requests]
    names, runs, failed = [job.model for job in jobs], [], {}
    for job, request in zip(jobs, requests, strict=True):
        if names.count(job.model) > 1:
            raise InputError(f"model {job.model!r} occurs twice in the list; give one of them another name")
        try:
            run = _begin(job, request.model, stack)
        except BenchcastError as error:
            failed[job.model] = error
            continue
        if run is None:
            on_done(job.model, None)
        else:
            runs.append(run)
    if len(runs) > 1:
        study.add_models([ModelInfo(run.job.model) for run in runs])  # keeps the order of the list
    return runs, failed


def _begin(job: CollectJob, model: ModelSpec | Backend, stack: ExitStack) -> _CollectRun | None:
    """Lock a model and open its shards; None if its losses are stored. The lock is held until `stack` closes."""
    stack.enter_context(exclusive(job.folder, repr(job.model)))
    shard_store = job.begin()
    if shard_store is None:
        return None
    stack.callback(shard_store.flush)
    if not isinstance(model, ModelSpec):
        shard_store.keep_only(BackendInfo.of(job.backend).line)  # loads the model, before the clock starts
    return _CollectRun(job, model, shard_store, job.agreement(), time.monotonic())
