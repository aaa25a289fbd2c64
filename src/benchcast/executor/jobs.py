"""The executor protocol: run a function on many jobs, in this process or on a Ray cluster.

A job is plain data for a module-level function, which returns one result or is a generator of several. `Local` runs
the jobs one after the other and is the reference: every other executor gives the same results, possibly in another
order of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Call = Callable[[Any, Any], Any]  # (shared, arguments) → result, or an iterator of results
Note = Callable[[str], None]  # called with one line for the user


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a function."""

    name: str  # for messages
    arguments: Any  # plain data of this job
    group: str = ""  # jobs of a group run on the same workers, so that a model is loaded once
    cost: float = 1.0  # relative cost; the most expensive jobs start first
    gpus: float = 0.0  # GPUs that its worker needs

    def worker_options(self) -> dict[str, float]:
        """What its worker reserves, by Ray's names."""
        return {"num_cpus": 1.0, "num_gpus": self.gpus}


class Executor(Protocol):
    """Runs jobs."""

    @property
    def has_gpus(self) -> bool:
        """Whether workers can have GPUs."""
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

    def run(self, call: Call, jobs: Sequence[Job], shared: Any = None) -> Iterator[tuple[int, Any]]:
        """Results in the order of the jobs."""
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
