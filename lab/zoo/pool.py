"""Run training jobs side by side on one device, longest first, as long as there is time.

A worker process trains one run after the other. A run that fails takes its worker with it and is tried again,
first without recorded steps, then without compilation.
"""

import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from lab.zoo.one import Settings, train_one

Job = tuple[str, str, Settings]


def simpler(settings: Settings) -> Settings | None:
    """The next thing to try after a failure."""
    if settings.graphed:
        return replace(settings, graphed=False)
    return replace(settings, compiled=False) if settings.compiled else None


def work_loop(connection: Connection) -> None:
    """Train the jobs that arrive; a failure is reported and ends the process, whose device state is suspect."""
    while True:
        job: Job | None = connection.recv()
        if job is None:
            return
        name, size, settings = job
        try:
            connection.send(train_one(name, size, settings))
        except Exception:
            connection.send({"run": f"{name}-{size}", "error": traceback.format_exc()})
            raise


@dataclass
class Worker:
    process: BaseProcess
    connection: Connection
    job: Job | None = None


def start_worker() -> Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work_loop, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


def receive(worker: Worker) -> dict:
    try:
        return worker.connection.recv()
    except EOFError:
        name, size, _ = worker.job
        return {"run": f"{name}-{size}", "error": "the worker died without a word; out of memory?"}


def run_jobs(jobs: list[Job], *, workers: int, fits: Callable[[Job], bool], on_result: Callable[[dict], None]) -> None:
    """Run the jobs, the first that `fits` into the time left first, until none fits any more."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    waiting = list(jobs)
    crew: list[Worker] = []
    while True:
        while len(crew) < workers and (job := take(waiting, fits)):
            crew.append(start_worker())
            assign(crew[-1], job)
        if not crew:
            return
        ready = wait([w.connection for w in crew])
        for worker in [w for w in crew if w.connection in ready]:
            result = receive(worker)
            on_result(result)
            again = simpler(worker.job[2]) if "error" in result else None
            if again is not None:
                waiting.insert(0, (*worker.job[:2], again))
            following = None if "error" in result else take(waiting, fits)
            if following is None:
                dismiss(worker)
                crew.remove(worker)
            else:
                assign(worker, following)


def take(waiting: list[Job], fits: Callable[[Job], bool]) -> Job | None:
    job = next(filter(fits, waiting), None)
    if job is not None:
        waiting.remove(job)
    return job


def assign(worker: Worker, job: Job) -> None:
    worker.job = job
    worker.connection.send(job)


def dismiss(worker: Worker) -> None:
    """End a worker; one that failed is already gone."""
    with suppress(OSError):
        worker.connection.send(None)
    worker.process.join()
