"""Jobs in, results out, here or on a Ray cluster; nothing is known here of the work.

A job is plain data for a function that stands at the top of a module. `Local` calls it for one job after the
other and is the reference: any other executor gives the same results, in another order perhaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Call = Callable[[Any, Any], Any]  # (shared, given) → result
Note = Callable[[str], None]  # something a person may want to know, in one line


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a function."""

    name: str  # for messages
    given: Any  # plain data, for this job alone
    group: str = ""  # jobs of a group follow each other on the same workers, so what they load is loaded once
    cost: float = 1.0  # dearest first; only the order of size matters
    gpus: float = 0.0  # of its worker


class Executor(Protocol):
    """Runs jobs."""

    @property
    def has_gpus(self) -> bool:
        """Whether workers can have GPUs."""
        ...

    def run(self, call: Call, jobs: Sequence[Job], shared: Any = None) -> Iterator[tuple[int, Any]]:
        """The number and the result of every job, once each, as they are finished."""
        ...


class Local:
    """One job after the other, in this process, which needs nothing to be set aside for it."""

    has_gpus = False

    def run(self, call: Call, jobs: Sequence[Job], shared: Any = None) -> Iterator[tuple[int, Any]]:
        """Results in the order of the jobs."""
        for number, job in enumerate(jobs):
            yield number, call(shared, job.given)
