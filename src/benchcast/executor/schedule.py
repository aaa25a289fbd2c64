"""Decide which job runs next and which group of jobs gets the next worker, without side effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchcast.executor.jobs import Job


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
