"""The executor protocol: run a function on many jobs, in this process or on a Ray cluster.

A job is plain data for a module-level function, which returns one result or is a generator of several. `Local` runs
the jobs one after the other and is the reference: every other executor gives the same results, possibly in another
order of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Schedule:
    """Waiting jobs by group and the number of attempts of each job."""

    jobs: Sequence[Job]
    waiting: dict[str, list[int]]  # job numbers by group, the most expensive last
    attempts: list[int]
    not_before: list[float]  # earliest start of each job, seconds of the monotonic clock
    cost: dict[str, float]  # total cost of the waiting jobs of each group
    worker_options: dict[str, dict[str, float]]  # what a worker of each group reserves: the most that any job needs

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Schedule:
        """A schedule in which all jobs wait."""
        waiting: dict[str, list[int]] = {}
        for number in sorted(range(len(jobs)), key=lambda i: jobs[i].cost):
            waiting.setdefault(jobs[number].group, []).append(number)
        cost = {group: sum(jobs[i].cost for i in numbers) for group, numbers in waiting.items()}
        options = {group: _largest([jobs[i].worker_options() for i in numbers]) for group, numbers in waiting.items()}
        return cls(jobs, waiting, [0] * len(jobs), [0.0] * len(jobs), cost, options)

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


def _largest(options: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: max(each[name] for each in options) for name in options[0]}
