"""Score the texts of a study with models and store the losses; scores only the texts that are missing.

One loop serves this process and a cluster: the driver cuts the texts into portions, an executor scores them, and the
driver stores the results. It loads tokenizers, but a model only if that runs in this process.

Finished texts are written to shards in collecting/<model>/, each atomically. After a kill the same command reads the
shards and continues. Once all texts are finished, the losses are stored in one step and the shards are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchcast.collection.backends.base import Backend
from benchcast.collection.backends.loaded import NO_METADATA
from benchcast.collection.jobs import (
    DEFAULT,
    Collection,
    CollectOptions,
    CollectResult,
    ModelSpec,
    OnDone,
    Report,
    score_portion,
)
from benchcast.errors import BenchcastError, InputError
from benchcast.executors.local import Executor, Local
from benchcast.records import ModelInfo
from benchcast.study.study import Study, StudyLike


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """A model to collect.

    >>> import benchcast as bc
    >>> bc.CollectRequest(bc.ModelSpec("hf", "pretrained=checkpoint"), name="my-7b", metadata=bc.ModelInfo("", "mine"))
    CollectRequest(model=ModelSpec(backend='hf', ...), name='my-7b', ...)
    """

    model: ModelSpec | Backend  # a ModelSpec is opened by the workers, a backend runs in this process
    name: str = ""  # in the study; empty: the backend's name for it
    metadata: ModelInfo = NO_METADATA  # values for blank cells of models.csv; its name is not used
    options: CollectOptions = DEFAULT


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
    request = CollectRequest(backend, name, metadata=metadata, options=options)
    results: dict[str, CollectResult | None] = {}
    quiet = report or (lambda texts, tokens: None)
    failed = collect_on(Local(), study, [request], report=quiet, on_done=results.__setitem__)
    for error in failed.values():
        raise error
    return next(iter(results.values()))


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
        begun, failed = _begin_all(Study.of(study), requests, stack, on_done=on_done)
        for collection in begun:
            report(collection.shards.resumed + len(collection.refused), 0)
        going = begun
        while going:  # once, and again if the first results came from another version of a backend and were discarded
            for collection in going:
                collection.finish(on_done)
            jobs = [(collection, job) for collection in going if not collection.stored for job in collection.jobs]
            for number, answer in executor.run(score_portion, [job for _, job in jobs]):
                collection = jobs[number][0]
                collection.take(answer, report)
                collection.finish(on_done)
                if collection.failure and all(other.failure for other, _ in jobs):
                    break
            going = [collection for collection in going if not collection.stored and not collection.failure]
    return failed | {collection.name: collection.failure for collection in begun if collection.failure}


def _begin_all(
    study: Study, requests: Sequence[CollectRequest], stack: ExitStack, *, on_done: OnDone
) -> tuple[list[Collection], dict[str, BenchcastError]]:
    """Models without losses, locked and with their shards open; and the errors of models that cannot start."""
    collections = [Collection(study, r.model, r.name, metadata=r.metadata, options=r.options) for r in requests]
    names, begun, failed = [collection.name for collection in collections], [], {}
    for collection in collections:
        name = collection.name
        if names.count(name) > 1:
            raise InputError(f"model {name!r} occurs twice in the list; give one of them another name")
        try:
            is_new = collection.begin(stack)
        except BenchcastError as error:
            failed[name] = error
            continue
        if is_new:
            begun.append(collection)
        else:
            on_done(name, None)
    if len(begun) > 1:
        study.add_models([ModelInfo(collection.name) for collection in begun])  # keeps the order of the list
    return begun, failed
