"""Which job comes next, and which group of jobs gets the next worker; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchcast.executor.jobs import Job


@dataclass(frozen=True, slots=True)
class Schedule:
    """Jobs that wait, by group, and how often each was begun."""

    jobs: Sequence[Job]
    waiting: dict[str, list[int]]  # dearest last
    attempts: list[int]
    not_before: list[float]
    cost: dict[str, float]  # of what waits in each group
    needs: dict[str, float]  # GPUs that a worker of each group needs

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Schedule:
        """Nothing has been begun."""
        waiting: dict[str, list[int]] = {}
        for number in sorted(range(len(jobs)), key=lambda i: jobs[i].cost):
            waiting.setdefault(jobs[number].group, []).append(number)
        cost = {group: sum(jobs[i].cost for i in own) for group, own in waiting.items()}
        needs = {group: max(jobs[i].gpus for i in own) for group, own in waiting.items()}
        return cls(jobs, waiting, [0] * len(jobs), [0.0] * len(jobs), cost, needs)

    def take(self, group: str, now: float) -> int | None:
        """Begin the dearest job of a group that may be begun now."""
        own = self.waiting[group]
        for place in reversed(range(len(own))):
            if self.not_before[own[place]] <= now:
                number = own.pop(place)
                self.attempts[number] += 1
                self.cost[group] -= self.jobs[number].cost
                return number
        return None

    def give_back(self, number: int, not_before: float) -> None:
        """A job that was begun and came to nothing waits again."""
        job = self.jobs[number]
        self.waiting[job.group].append(number)
        self.cost[job.group] += job.cost
        self.not_before[number] = not_before

    def gpus(self, group: str) -> float:
        """What a worker of the group needs."""
        return self.needs[group]

    def next_group(self, working: Iterable[str], starting: Iterable[str]) -> str | None:
        """The group to get the next worker: one that has none before all others, then the one with most to do for each.

        `working` and `starting` name the group of every worker there is. A group gets no more workers than jobs.
        """
        coming, there = Counter(starting), Counter(working)
        there.update(coming)
        short = [group for group, own in self.waiting.items() if len(own) > coming[group]]
        if not short:
            return None
        return max(short, key=lambda group: (not there[group], self.cost[group] / (there[group] + 1)))
