"""Steps of long work, counted where they are done, and shown by whoever listens.

A loop counts its steps with `steps(items, "tasks")`, which costs nothing where nobody listens. Loops may lie in each
other: the outer ones count, and the inner ones say how much of an outer step is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(slots=True, eq=False)
class Loop:
    """A loop that is running: steps done of all, and what a step is, in the plural."""

    total: int
    what: str
    done: int = 0


@dataclass(frozen=True, slots=True)
class Counter:
    """The running loops, the outermost first, and what is called after each of their steps."""

    on_step: Callable[[Sequence[Loop]], None]
    loops: list[Loop] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)  # a forked process has a copy, which nobody reads


LISTENING: ContextVar[Counter | None] = ContextVar("LISTENING", default=None)


@contextmanager
def listening(on_step: Callable[[Sequence[Loop]], None]) -> Iterator[None]:
    """Call `on_step` with the running loops when one begins, and after each step."""
    token = LISTENING.set(Counter(on_step))
    try:
        yield
    finally:
        LISTENING.reset(token)


def steps(items: Iterable[Item], what: str, *, total: int | None = None) -> Iterator[Item]:
    """The items, each counted as done when the next one is asked for.

    Parameters
    ----------
    items : of the loop
    what : what is counted, in the plural, such as "tasks" or "files read"
    total : how many there are; None: `items` has a length

    >>> seen = []
    >>> with listening(lambda loops: seen.append([f"{x.done} of {x.total} {x.what}" for x in loops])):
    ...     for task in steps(["mmlu", "bbh"], "tasks"):
    ...         pass
    >>> seen
    [['0 of 2 tasks'], ['1 of 2 tasks'], ['2 of 2 tasks']]
    """
    counter = LISTENING.get()
    if counter is None or counter.process != os.getpid():
        yield from items
        return
    if total is None:
        total = len(items) if isinstance(items, Sized) else 0
    loop = Loop(total, what)
    counter.loops.append(loop)
    counter.on_step(counter.loops)
    try:
        for item in items:
            yield item
            loop.done += 1
            counter.on_step(counter.loops)
    finally:
        counter.loops.remove(loop)


def outermost(loops: Sequence[Loop]) -> tuple[Loop, float]:
    """The first loop of more than one step (else the innermost), and the share of its present step that is done.

    >>> outermost([Loop(1, "folds"), Loop(4, "tasks", 2), Loop(8, "candidates", 4)])
    (Loop(total=4, what='tasks', done=2), 0.5)
    """
    at = next((i for i, loop in enumerate(loops) if loop.total > 1), len(loops) - 1)
    return loops[at], share_done(loops[at + 1 :])


def share_done(loops: Sequence[Loop]) -> float:
    """The share of loops in each other that is done.

    >>> share_done([Loop(4, "tasks", 2), Loop(10, "candidates", 2)])
    0.55
    """
    share, done = 1.0, 0.0
    for loop in loops:
        share /= max(1, loop.total)
        done += share * loop.done
    return min(done, 1.0)
