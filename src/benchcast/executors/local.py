"""The executor protocol: run a function on many jobs, in this process or on a Ray cluster.

A job is plain data for a module-level function, which returns one result or is a generator of several. `Local` runs
the jobs one after the other and is the reference: every other executor gives the same results, possibly in another
order of jobs.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from benchcast.errors import BenchcastError

Call = Callable[[Any, Any], Any]  # (shared, arguments) → result, or an iterator of results
Note = Callable[[str], None]  # called with one line for the user


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a function."""

    name: str  # for messages
    arguments: Any  # plain data of this job
    group: str = ""  # jobs of a group run on the same workers, so that a model is loaded once
    cost: float = 1.0  # relative cost; the most expensive jobs start first
    gpus: float = 0.0  # GPUs that its worker needs, besides one CPU


class Executor(Protocol):
    """Runs jobs."""

    @property
    def has_gpus(self) -> bool:
        """Whether workers can have GPUs."""
        ...

    @property
    def parts(self) -> int:
        """Parts into which work that can be cut is cut best."""
        ...

    def run(self, call: Call, jobs: Sequence[Job], shared: Any = None) -> Iterator[tuple[int, Any]]:
        """Yield the number of a job with each of its results, once each and in their order.

        `Local` yields a generator's results as they are made, Ray when the job is finished.

        Parameters
        ----------
        call : module-level function or generator of (shared, arguments of a job)
        jobs : the jobs; a number is an index into them
        shared : plain data that is sent once and passed to every call
        """
        ...


class Local:
    """Runs the jobs one after the other in this process."""

    has_gpus = False
    parts = 1

    def run(self, call: Call, jobs: Sequence[Job], shared: Any = None) -> Iterator[tuple[int, Any]]:
        for number, job in enumerate(jobs):
            for result in results(call, shared, job.arguments):
                yield number, result


def results(call: Call, shared: Any, arguments: Any) -> Iterator[Any]:
    """The results of one call: what a generator yields, or what a function returns."""
    returned = call(shared, arguments)
    if isinstance(returned, Iterator):
        yield from returned
    else:
        yield returned


_inherited: dict[str, Any] = {}  # what forks need; set just before they are made


class Processes:
    """Runs jobs side by side, the most expensive first."""

    has_gpus = False

    def __init__(self, count: int) -> None:
        self.parts = count

    def run(self, call: Call, jobs: Sequence[Job], shared: Any = None) -> Iterator[tuple[int, Any]]:
        """Results of each job when it is finished."""
        if not jobs:
            return
        _inherited.update(call=call, jobs=jobs, shared=shared)
        order = sorted(range(len(jobs)), key=lambda i: -jobs[i].cost)
        fork = multiprocessing.get_context("fork")
        # one thread for the linear algebra of each: more threads than cores wait for each other
        with ProcessPoolExecutor(min(self.parts, len(jobs)), fork, threadpool_limits, (1,)) as pool:
            try:
                waiting = {pool.submit(_run, number): number for number in order}
                for done in as_completed(waiting):
                    yield from ((waiting[done], result) for result in done.result())
            except BrokenProcessPool as error:
                why = "a process was ended from outside, perhaps for lack of memory; use --jobs 1"
                raise BenchcastError(why) from error
            finally:
                pool.shutdown(cancel_futures=True)
                _inherited.clear()


def _run(number: int) -> list[Any]:
    """All results of one job, in a fork."""
    return list(results(_inherited["call"], _inherited["shared"], _inherited["jobs"][number].arguments))


def on_this_machine(jobs: int | None = None) -> Executor:
    """An executor with this number of processes; None: one for each core that may be used, 1 where forks are not safe.

    With 1, jobs run in this process.
    """
    if jobs is None:
        jobs = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    return Local() if jobs == 1 else Processes(jobs)
