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

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Schedule:
        """Nothing has been begun."""
        waiting: dict[str, list[int]] = {}
        for number in sorted(range(len(jobs)), key=lambda i: jobs[i].cost):
            waiting.setdefault(jobs[number].group, []).append(number)
        return cls(jobs, waiting, [0] * len(jobs), [0.0] * len(jobs))

    def take(self, group: str, now: float) -> int | None:
        """Begin the dearest job of a group that may be begun now."""
        own = self.waiting[group]
        for place in reversed(range(len(own))):
            if self.not_before[own[place]] <= now:
                number = own.pop(place)
                self.attempts[number] += 1
                return number
        return None

    def give_back(self, number: int, not_before: float) -> None:
        """A job that was begun and came to nothing waits again."""
        self.waiting[self.jobs[number].group].append(number)
        self.not_before[number] = not_before

    def gpus(self, group: str) -> float:
        """What a worker of the group needs."""
        return max((self.jobs[i].gpus for i in self.waiting[group]), default=0.0)

    def next_group(self, working: Iterable[str], starting: Iterable[str]) -> str | None:
        """The group to get the next worker: one that has none before all others, then the one with most to do for each.

        `working` and `starting` name the group of every worker there is. A group gets no more workers than jobs.
        """
        coming, there = Counter(starting), Counter(working)
        there.update(coming)
        short = [group for group, own in self.waiting.items() if len(own) > coming[group]]
        if not short:
            return None
        return max(short, key=lambda group: (not there[group], self._cost(group) / (there[group] + 1)))

    def _cost(self, group: str) -> float:
        return sum(self.jobs[i].cost for i in self.waiting[group])
