"""Progress of long work on stderr: a bar on a terminal, elsewhere (Slurm, CI, a file) a line every 30 seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from benchcast.cli.output import say
from benchcast.messages import visible

SECONDS = 30.0  # between two lines


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Any]:
    """Show how far the work in the block is.

    Parameters
    ----------
    label : what is done
    total : number of steps; None: not known

    Returns
    -------
    a function `advance(label=None, by=1)` that counts steps and may change the label
    """
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(label, total, console) if console.is_terminal else _lines(label, total) as advance:
        yield advance


@contextmanager
def _bar(label: str, total: int | None, console: Any) -> Iterator[Any]:
    from rich import progress as parts

    words = parts.TextColumn("{task.description}", markup=False)
    times = (parts.TimeElapsedColumn(), parts.TimeRemainingColumn())
    columns = (words, parts.BarColumn(), parts.MofNCompleteColumn(), *times)
    with parts.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(visible(label), total=total)

        def advance(what: str | None = None, by: int = 1) -> None:
            bar.update(task, advance=by, description=visible(what or label))

        yield advance


@contextmanager
def _lines(label: str, total: int | None) -> Iterator[Any]:
    """Print a line every `SECONDS` from a thread, so that a step of an hour is not silent."""
    pace, over = Pace(label, total), Event()

    def tell() -> None:
        while not over.wait(SECONDS):
            say(pace.line(), err=True)

    thread = Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield pace.advance
    finally:
        over.set()
        thread.join()


def paced_lines(label: str, total: int) -> Callable[[int, int], None]:
    """A callback for finished texts that prints a line at most every `SECONDS`."""
    pace, said = Pace(label, total), time.monotonic()

    def report(texts: int, tokens: int) -> None:
        nonlocal said
        pace.advance(by=texts)
        if time.monotonic() - said >= SECONDS:
            said = time.monotonic()
            say(pace.line(), err=True)

    return report


@dataclass
class Pace:
    """Steps done since the start, and the time that the others will take at the speed since the first step.

    The first step is left out of the speed: before it a model is loaded, or work of an earlier run is counted.
    """

    label: str
    total: int | None = None
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    first: tuple[float, int] | None = None  # time and count of the first step

    def advance(self, what: str | None = None, by: int = 1) -> None:
        """Count steps; `what` is the new label."""
        self.label = what or self.label
        self.done += by
        if by and self.first is None:
            self.first = (time.monotonic(), self.done)

    def line(self) -> str:
        """The label, steps done of all, the time so far and the time left where it can be known."""
        now = time.monotonic()
        parts = [f"{self.label}: {self.done} of {self.total} done"] if self.total is not None else [f"{self.label}"]
        parts.append(f"{duration(now - self.began)} so far")
        left = self.seconds_left(now)
        return ", ".join([*parts, *([] if left is None else [f"about {duration(left)} left"])])

    def seconds_left(self, now: float) -> float | None:
        """Seconds that the other steps will take; None before the first step, and without a total."""
        if self.total is None or self.first is None:
            return None
        since, counted = self.first
        if self.done == counted:
            since, counted = self.began, 0
        return max(0, self.total - self.done) * (now - since) / (self.done - counted)


def duration(seconds: float) -> str:
    """Seconds in words, rounded to two units.

    >>> duration(45.2), duration(150), duration(7230)
    ('45 s', '2 min 30 s', '2 h 0 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
