"""Jobs on a Ray cluster: workers that load once, and jobs that outlive their workers.

The driver hands every job to one worker and takes every result once. A worker that is lost, with its node or
for lack of memory, gives its job back, and another worker begins it again, a bounded number of times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchcast.errors import BenchcastError, ClusterError, InputError
from benchcast.executor.connection import connect, ray_library
from benchcast.executor.jobs import Call, Executor, Job, Note
from benchcast.executor.schedule import Schedule

ATTEMPTS = 4  # of a job; each on a new worker
PAUSE_SECONDS = 1.0  # before the second attempt, then doubled: a lost node is not noticed at once
POLL_SECONDS = 0.2
WAIT_SECONDS = 900.0  # for a first worker: nodes may have to be started
SIGNS = {  # what Ray says of a worker that is gone → what it comes to
    "low on memory": "its node ran out of memory",
    "memory monitor": "its node ran out of memory",
    "node has died": "its node is gone",
    "node died": "its node is gone",
    "process has died": "its process was killed (for lack of memory?) or crashed",
}
STARTING = 4  # workers that may be waiting for room at a time, or as many as are at work


@contextmanager
def connected(address: str, note: Note) -> Iterator[Executor]:
    """An executor on the cluster at `address`, else at RAY_ADDRESS, else on one of this machine for this run alone."""
    ray = ray_library()
    mine = not ray.is_initialized()
    if mine:
        connect(ray, address)
    try:
        yield RayExecutor(ray, note)
    finally:
        if mine:
            ray.shutdown()


class _Body:
    """What runs in a worker's process."""

    def ready(self) -> bool:
        """Answers as soon as the worker is up."""
        return True

    def run(self, call: Call, shared: Any, given: Any) -> tuple[BenchcastError | None, Any]:
        """The result, or the mistake of a user that stopped it."""
        try:
            return None, call(shared, given)
        except BenchcastError as error:
            return InputError(str(error)), None


@dataclass(eq=False, slots=True)
class _Worker:
    """A worker as the driver sees it."""

    group: str
    actor: Any
    asked: Any  # reference to its next answer; None while it has nothing to do
    job: int | None = None
    started: bool = False


class RayExecutor:
    """Hands jobs to workers of a cluster."""

    def __init__(self, ray: Any, note: Note) -> None:
        self._ray, self._note = ray, note
        self._body = ray.remote(_Body)

    @property
    def has_gpus(self) -> bool:
        """Whether any node has one now; nodes that are yet to be started are not known."""
        return bool(self._ray.cluster_resources().get("GPU", 0.0) > 0)

    def run(self, call: Call, jobs: Sequence[Job], shared: Any = None) -> Iterator[tuple[int, Any]]:
        """Results as they are finished; what a job's function refuses is raised, with no more than its line."""
        pool = _Pool(self._ray, self._body, self._note, Schedule.of(jobs))
        sent = self._ray.put(shared)
        left = len(jobs)
        try:
            while left:
                pool.hire()
                pool.employ(call, sent)
                for number, result in pool.answers():
                    left -= 1
                    yield number, result
        finally:
            pool.close()


class _Pool:
    """The workers of one run."""

    def __init__(self, ray: Any, body: Any, note: Note, schedule: Schedule) -> None:
        self._ray, self._actor, self._note, self._schedule = ray, body, note, schedule
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        self._alive = time.monotonic()  # when a worker was last up

    def hire(self) -> None:
        """Ask for workers while jobs wait; Ray starts them where and when there is room."""
        while True:
            starting = [w.group for w in self._workers if not w.started]
            working = [w.group for w in self._workers if w.started]
            group = self._schedule.next_group(working, starting)
            if group is None or len(starting) >= max(STARTING, len(working)):
                break
            gpus = self._schedule.gpus(group)
            actor = self._actor.options(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD").remote()
            self._workers.append(_Worker(group, actor, actor.ready.remote()))
        if working:
            self._alive = time.monotonic()
        elif time.monotonic() - self._alive > WAIT_SECONDS:
            raise ClusterError(f"no worker could be started in {WAIT_SECONDS / 60:.0f} minutes; {self._room()}")

    def _room(self) -> str:
        wanted = max(self._schedule.gpus(w.group) for w in self._workers)
        nodes = [n["Resources"].get("GPU", 0.0) for n in self._ray.nodes() if n["Alive"]]
        most = max(nodes, default=0.0)
        return f"a worker wants 1 CPU and {wanted:g} GPUs, {len(nodes)} nodes have at most {most:g} GPUs each"

    def employ(self, call: Call, shared: Any) -> None:
        """Give every free worker a job of its group; where none is left the worker goes, and what it holds with it."""
        for worker in [w for w in self._workers if w.asked is None]:
            number = self._schedule.take(worker.group, time.monotonic())
            if number is not None:
                worker.job = number
                worker.asked = worker.actor.run.remote(call, shared, self._schedule.jobs[number].given)
            elif not self._schedule.waiting[worker.group]:
                self._dismiss(worker)

    def answers(self) -> Iterator[tuple[int, Any]]:
        """What has been finished, after a short wait."""
        asked = {w.asked: w for w in self._workers if w.asked is not None}
        if not asked:
            time.sleep(POLL_SECONDS)
            return
        ready, _ = self._ray.wait(list(asked), timeout=POLL_SECONDS)
        for reference in ready:
            worker = asked[reference]
            try:
                found = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, MemoryError):
                    raise
                self._lost(worker, "it ran out of memory")
                continue
            except self._ray.exceptions.RayError as error:
                self._lost(worker, _reason(error))
                continue
            number, worker.asked, worker.job, worker.started = worker.job, None, None, True
            if number is None:
                continue
            mistake, result = found
            if mistake is not None:
                raise mistake
            yield number, result

    def _lost(self, worker: _Worker, why: str) -> None:
        """A worker is gone: its job waits for another one, if it was not tried too often."""
        number = worker.job
        self._dismiss(worker)
        if number is None:
            self._failed_starts += 1
            if self._failed_starts >= ATTEMPTS * STARTING:
                raise ClusterError(f"{self._failed_starts} workers could not be started; the last: {why}")
            return
        job, tries = self._schedule.jobs[number], self._schedule.attempts[number]
        if tries >= ATTEMPTS:
            raise ClusterError(
                f"{job.name}: tried {tries} times, and each time its worker was lost; the last: {why} "
                "(what is done is kept; run it again with more memory for a worker, or less work at a time)"
            )
        self._note(f"{job.name}: its worker was lost: {why}; attempt {tries + 1} of {ATTEMPTS}")
        self._schedule.give_back(number, time.monotonic() + PAUSE_SECONDS * 2 ** (tries - 1))

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._ray.kill(worker.actor, no_restart=True)

    def close(self) -> None:
        """Let all workers go."""
        for worker in list(self._workers):
            self._dismiss(worker)


def _reason(error: Exception) -> str:
    """What Ray says of a lost worker, in a few words."""
    text = " ".join(str(error).split())
    for sign, words in SIGNS.items():
        if sign in text.lower():
            return words
    return f"{type(error).__name__}: {text[:300]}"
