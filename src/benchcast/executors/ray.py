"""Run jobs on a Ray cluster, with workers that keep loaded models and jobs that survive the loss of a worker.

The driver gives every job to one worker and accepts every result once. If a worker is lost, with its node or for lack
of memory, another worker starts its job again, a bounded number of times.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchcast.errors import BenchcastError, ClusterError, InputError
from benchcast.executors.local import Call, Executor, Job, Note, results
from benchcast.executors.ray_connection import connect, loss_reported, ray_library, stdout_untouched

ATTEMPTS = 4  # for each job, each on a new worker
PAUSE_SECONDS = 1.0  # before the second attempt, then doubled: Ray notices a lost node with a delay
POLL_SECONDS = 0.2
WAIT_SECONDS = 900.0  # for the first worker, because nodes may have to be started
SIGNS = {  # text in Ray's error about a lost worker → reason for the user
    "low on memory": "its node ran out of memory",
    "memory monitor": "its node ran out of memory",
    "node has died": "its node is gone",
    "node died": "its node is gone",
    "process has died": "its process was killed (for lack of memory?) or crashed",
}
STARTING = 4  # limit of workers that wait for resources; the number of active workers if that is larger


@dataclass(frozen=True, slots=True)
class Schedule:
    """Waiting jobs by group and the number of attempts of each job."""

    jobs: Sequence[Job]
    waiting: dict[str, list[int]]  # job numbers by group, the most expensive last
    attempts: list[int]
    not_before: list[float]  # earliest start of each job, seconds of the monotonic clock
    cost: dict[str, float]  # total cost of the waiting jobs of each group
    gpus: dict[str, float]  # that a worker of each group reserves: the most that any job needs

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Schedule:
        """A schedule in which all jobs wait."""
        waiting: dict[str, list[int]] = {}
        for number in sorted(range(len(jobs)), key=lambda i: jobs[i].cost):
            waiting.setdefault(jobs[number].group, []).append(number)
        cost = {group: sum(jobs[i].cost for i in numbers) for group, numbers in waiting.items()}
        gpus = {group: max(jobs[i].gpus for i in numbers) for group, numbers in waiting.items()}
        return cls(jobs, waiting, attempts=[0] * len(jobs), not_before=[0.0] * len(jobs), cost=cost, gpus=gpus)

    def take(self, group: str, now: float) -> int | None:
        """Start the most expensive job of a group that may start now; None if there is none."""
        numbers = self.waiting[group]
        for position in reversed(range(len(numbers))):
            if self.not_before[numbers[position]] <= now:
                number = numbers.pop(position)
                self.attempts[number] += 1
                self.cost[group] -= self.jobs[number].cost
                return number
        return None

    def give_back(self, number: int, not_before: float) -> None:
        """Queue a failed job again, to start at `not_before` or later."""
        job = self.jobs[number]
        self.waiting[job.group].append(number)
        self.cost[job.group] += job.cost
        self.not_before[number] = not_before

    def next_group(self, working: Iterable[str], starting: Iterable[str]) -> str | None:
        """The group that gets the next worker: one without workers first, then the one with most cost per worker.

        `working` and `starting` contain the group of every worker. A group gets at most as many workers as jobs.
        """
        starting_count, worker_count = Counter(starting), Counter(working)
        worker_count.update(starting_count)
        unserved = [group for group, numbers in self.waiting.items() if len(numbers) > starting_count[group]]
        if not unserved:
            return None
        return max(unserved, key=lambda group: (not worker_count[group], self.cost[group] / (worker_count[group] + 1)))


@contextmanager
def connected(address: str, note: Note) -> Iterator[Executor]:
    """Executor on the cluster at `address`, else at RAY_ADDRESS, else on a temporary cluster on this machine."""
    ray = ray_library()
    connected_here = not ray.is_initialized()
    if not connected_here:
        yield RayExecutor(ray, note)
        return
    connect(ray, address)
    with stdout_untouched(ray):
        try:
            with loss_reported():
                yield RayExecutor(ray, note)
        finally:
            ray.shutdown()


class _Body:
    """The actor in a worker's process."""

    def ready(self) -> bool:
        return True

    def run(self, call: Call, shared: Any, arguments: Any) -> tuple[BenchcastError | None, list[Any]]:
        """The user error that stopped the job, or None, and its results."""
        try:
            return None, list(results(call, shared, arguments))
        except BenchcastError as error:
            return InputError(str(error)), []


@dataclass(eq=False, slots=True)
class _Worker:
    """The driver's record of a worker."""

    group: str
    actor: Any
    pending: Any  # reference to its next answer; None while it is idle
    job: int | None = None
    started: bool = False


class RayExecutor:
    """Runs jobs on workers of a cluster."""

    def __init__(self, ray: Any, note: Note) -> None:
        self._ray, self._note = ray, note
        self._body = ray.remote(_Body)

    @property
    def has_gpus(self) -> bool:
        """Whether any running node has a GPU; nodes that are not started yet are unknown."""
        return bool(self._ray.cluster_resources().get("GPU", 0.0) > 0)

    @property
    def parts(self) -> int:
        """As many as possible, since workers come and go."""
        return sys.maxsize

    def run(self, call: Call, jobs: Sequence[Job], shared: Any = None) -> Iterator[tuple[int, Any]]:
        """Yield the number and result of each job as it finishes; a user error is raised without traceback."""
        pool = _Pool(self._ray, self._body, Schedule.of(jobs), note=self._note)
        shared_ref = self._ray.put(shared)
        left = len(jobs)
        try:
            while left:
                pool.hire()
                pool.employ(call, shared_ref)
                for number, job_results in pool.answers():
                    left -= 1
                    for result in job_results:
                        yield number, result
        finally:
            pool.close()


class _Pool:
    """The workers of one run."""

    def __init__(self, ray: Any, body: Any, schedule: Schedule, *, note: Note) -> None:
        self._ray, self._actor, self._schedule, self._note = ray, body, schedule, note
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        self._alive = time.monotonic()  # time at which a worker was last running

    def hire(self) -> None:
        """Request workers while jobs wait; Ray starts each as soon as its resources are free."""
        while True:
            starting = [w.group for w in self._workers if not w.started]
            working = [w.group for w in self._workers if w.started]
            group = self._schedule.next_group(working, starting)
            if group is None or len(starting) >= max(STARTING, len(working)):
                break
            gpus = self._schedule.gpus[group]
            actor = self._actor.options(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD").remote()
            self._workers.append(_Worker(group, actor, actor.ready.remote()))
        if working:
            self._alive = time.monotonic()
        elif time.monotonic() - self._alive > WAIT_SECONDS:
            needed = max(self._schedule.gpus[w.group] for w in self._workers)
            nodes = [n["Resources"].get("GPU", 0.0) for n in self._ray.nodes() if n["Alive"]]
            raise ClusterError(
                f"no worker could be started in {WAIT_SECONDS / 60:.0f} minutes; a worker needs 1 CPU and {needed:g} "
                f"GPUs, {len(nodes)} nodes have at most {max(nodes, default=0.0):g} GPUs each"
            )

    def employ(self, call: Call, shared: Any) -> None:
        """Give every idle worker a job of its group; if none is left, stop the worker and free its memory."""
        for worker in [w for w in self._workers if w.pending is None]:
            number = self._schedule.take(worker.group, time.monotonic())
            if number is not None:
                worker.job = number
                worker.pending = worker.actor.run.remote(call, shared, self._schedule.jobs[number].arguments)
            elif not self._schedule.waiting[worker.group]:
                self._dismiss(worker)

    def answers(self) -> Iterator[tuple[int, list[Any]]]:
        """Wait up to `POLL_SECONDS` and yield the number and results of each finished job."""
        pending = {w.pending: w for w in self._workers if w.pending is not None}
        if not pending:
            time.sleep(POLL_SECONDS)
            return
        ready, _ = self._ray.wait(list(pending), timeout=POLL_SECONDS)
        for reference in ready:
            worker = pending[reference]
            try:
                answer = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, MemoryError):
                    raise
                self._lost(worker, "it ran out of memory")
                continue
            except self._ray.exceptions.RayError as error:
                self._lost(worker, _reason(error))
                continue
            number, worker.pending, worker.job, worker.started = worker.job, None, None, True
            if number is None:
                continue
            mistake, job_results = answer
            if mistake is not None:
                raise mistake
            yield number, job_results

    def _lost(self, worker: _Worker, why: str) -> None:
        """Remove a lost worker and queue its job again; ClusterError after too many attempts."""
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
                "(finished work is kept; run it again with more memory per worker, or with smaller batches)"
            )
        self._note(f"{job.name}: its worker was lost: {why}; attempt {tries + 1} of {ATTEMPTS}")
        self._schedule.give_back(number, time.monotonic() + PAUSE_SECONDS * 2 ** (tries - 1))

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._ray.kill(worker.actor, no_restart=True)

    def close(self) -> None:
        for worker in list(self._workers):
            self._dismiss(worker)


def _reason(error: Exception) -> str:
    """A short reason from Ray's error about a lost worker."""
    text = " ".join(str(error).split())
    for sign, reason in SIGNS.items():
        if sign in text.lower():
            return reason
    return f"{type(error).__name__}: {text[:300]}"
