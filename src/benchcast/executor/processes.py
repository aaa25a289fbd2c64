"""The executor of several processes on this machine: forks of this process, which share its memory.

Only for calls that compute with numpy: a fork must not touch files, threads or devices that this process has open.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from threadpoolctl import threadpool_limits

from benchcast.errors import BenchcastError
from benchcast.executor.jobs import Call, Executor, Job, Local, results

_inherited: dict[str, Any] = {}  # what forks need; set just before they are made


def usual_jobs() -> int:
    """Processes to use by default: one for each core that this process may use, one where forks are not safe."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def on_this_machine(jobs: int | None = None) -> Executor:
    """An executor with this number of processes; None: `usual_jobs`. With 1, jobs run in this process."""
    count = usual_jobs() if jobs is None else jobs
    return Local() if count == 1 else Processes(count)


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
        with ProcessPoolExecutor(min(self.parts, len(jobs)), fork, initializer=_one_thread) as pool:
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


def _one_thread() -> None:
    """Let the linear algebra of a fork use one thread: more threads than cores wait for each other."""
    threadpool_limits(1)


def _run(number: int) -> list[Any]:
    """All results of one job, in a fork."""
    return list(results(_inherited["call"], _inherited["shared"], _inherited["jobs"][number].arguments))
