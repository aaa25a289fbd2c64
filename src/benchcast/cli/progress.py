"""Progress of long work on stderr: a bar on a terminal, elsewhere (Slurm, CI, a file) a line every 30 seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from benchcast.cli.output import say
from benchcast.messages import visible
from benchcast.steps import Loop, listening, outermost, share_done

SECONDS = 30.0  # between two lines
REDRAW = 0.2  # seconds between two pictures of a bar


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Any]:
    """Show how far the work in the block is.

    Parameters
    ----------
    label : what is done
    total : number of steps that `advance` counts; None: those of the outermost `benchcast.steps` loop are counted

    Returns
    -------
    a function `advance(label=None, by=1)` that counts steps, if `total` is given, and may change the label
    """
    from rich.console import Console

    console, pace = Console(stderr=True), Pace(label, total)
    with _bar(pace, console) if console.is_terminal else _lines(pace) as show, listening(pace.follow):

        def advance(what: str | None = None, by: int = 1) -> None:
            pace.advance(what, by)
            show()

        yield advance


@contextmanager
def _bar(pace: Pace, console: Any) -> Iterator[Callable[[], None]]:
    """A bar that shows the pace, redrawn by a thread; the function draws it at once."""
    from rich import progress as parts

    words = parts.TextColumn("{task.description}", markup=False)
    columns = (words, parts.BarColumn(), parts.TextColumn("{task.fields[counts]}", markup=False))
    with parts.Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task(visible(pace.label), total=pace.total, counts="")

        def show() -> None:
            done = pace.done + pace.part
            bar.update(task, completed=done, total=pace.total, description=visible(pace.label), counts=pace.counts())
            bar.refresh()

        with _every(REDRAW, show):
            yield show


@contextmanager
def _lines(pace: Pace) -> Iterator[Callable[[], None]]:
    """Print a line every `SECONDS`."""
    with _every(SECONDS, lambda: say(pace.line(), err=True)):
        yield lambda: None


@contextmanager
def _every(seconds: float, show: Callable[[], None]) -> Iterator[None]:
    """Call `show` from a thread, so that a step of an hour is not silent."""
    over = Event()

    def tell() -> None:
        while not over.wait(seconds):
            show()

    thread = Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
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
    first: tuple[float, float] | None = None  # time and count of the first step
    part: float = 0.0  # share of the present step that is done
    loop: Loop | None = None  # whose steps are counted, where no total was given
    loop_began: float = math.nan

    def advance(self, what: str | None = None, by: int = 1) -> None:
        """Count steps; `what` is the new label."""
        self.label = what or self.label
        if self.loop is None:
            self.done, self.part = self.done + by, 0.0
            self._note_first()

    def follow(self, loops: Sequence[Loop]) -> None:
        """Count the steps of running loops, or the share of the present step that they have done."""
        if self.total is None or self.loop is not None:
            loop, part = outermost(loops)
            if loop.total < 2:
                return
            self.part = part
            if loop is not self.loop:
                # `loop` comes last: another thread reads the others as soon as it is set
                self.total, self.loop_began, self.first, self.loop = loop.total, time.monotonic(), None, loop
            self.done = loop.done
        else:
            self.part = share_done(loops)
        self._note_first()

    def _note_first(self) -> None:
        if self.done and self.first is None:
            self.first = (time.monotonic(), self.done)

    def line(self) -> str:
        """The label, steps done of all, the time so far and the time left where it can be known."""
        return f"{self.label}: {self.counts()}" if self.total is not None else f"{self.label}, {self.counts()}"

    def counts(self) -> str:
        """The line without its label."""
        now = time.monotonic()
        what = self.loop.what if self.loop else "done"
        parts = [f"{self.done} of {self.total} {what}"] if self.total is not None else []
        parts.append(f"{duration(now - self.began)} so far")
        left = self.seconds_left(now)
        return ", ".join([*parts, *([] if left is None else [f"about {duration(left)} left"])])

    def seconds_left(self, now: float) -> float | None:
        """Seconds that the other steps will take; None before anything is done, and without a total."""
        done = self.done + self.part
        if self.total is None or not done:
            return None
        since, counted = self.first or (0.0, done)
        if done == counted:
            since, counted = self.loop_began if self.loop else self.began, 0.0
        return max(0.0, self.total - done) * (now - since) / (done - counted)


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
