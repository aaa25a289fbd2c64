"""`watch`: forecast the scores of a run while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import PATH, STUDY
from benchcast.cli.collect import BATCH, DEVICE
from benchcast.cli.output import ends, say, say_json
from benchcast.cli.predict import warn_if_stale
from benchcast.cli.progress import paced_lines
from benchcast.messages import number, visible

if TYPE_CHECKING:
    from benchcast.training.watch import Event

BARS = "▁▂▃▄▅▆▇█"
WIDEST_CURVE = 22  # bars, so that a row fits 80 columns
LEAST_SPAN = 0.1  # of accuracy
SHOWN_LINES = 6


@click.command()
@STUDY
@click.option("--checkpoints", type=PATH, help="Folder with checkpoint-500, checkpoint-1000, …")
@click.option("--losses", type=PATH, help="Folder of JSONL files of losses that the training job writes.")
@click.option("--name", default="", help="The run's name; checkpoints are NAME@STEP. Default: the folder's name.")
@click.option("--family", default="", help="The run's family. Default: its name.")
@click.option("--tokenizer", default="", help="Path of the tokenizer, if not in the checkpoints or beside them.")
@click.option("--model_args", default="", help="More settings of the models: dtype=…,add_bos_token=true")
@BATCH
@DEVICE
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds between checks."
)
@click.option(
    "--need",
    "needs",
    multiple=True,
    metavar="TASK=SCORE",
    help="Also forecast how probable this score is; may be given again. Nothing is stopped by it.",
)
@click.option("--once", is_flag=True, help="Forecast the existing checkpoints and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def watch(
    study: Path,
    checkpoints: Path | None,
    losses: Path | None,
    name: str,
    family: str,
    tokenizer: str,
    model_args: str,
    batch_size: int,
    device: str,
    interval: float,
    needs: tuple[str, ...],
    once: bool,
    as_json: bool,
) -> None:
    """Follow a folder of checkpoints: score each new one, add it to the study, forecast its scores.

    Waits for a checkpoint that is still being written. Stop with Ctrl-C; the same command continues.

    \b
    benchcast watch study --checkpoints runs/my-7b
    benchcast watch study --checkpoints runs/my-7b --once --json
    benchcast watch study --losses runs/my-7b/losses
    benchcast watch study --checkpoints runs/my-7b --need mmlu=0.62
    """
    from benchcast.collection.backends.base import ModelSettings
    from benchcast.forecasts.fit import stored_fits
    from benchcast.forecasts.needs import parse_needs
    from benchcast.study.study import Study
    from benchcast.training.watch import WatchedRun, watch

    settings = ModelSettings.parse(model_args)
    if tokenizer:
        settings = settings.having(tokenizer=tokenizer)
    run = WatchedRun(
        checkpoints=checkpoints,
        losses=losses,
        name=name,
        family=family,
        settings=settings,
        device=device,
        batch_size=batch_size,
        needs=parse_needs(needs),
    ).named()
    opened = Study.open(study)
    with _screen(run.name, len(opened.texts), as_json=as_json) as screen:
        events = watch(opened, run, interval=interval, once=once, on_model=screen.scoring, on_wait=screen.idle)
        warn_if_stale(opened, stored_fits(opened), f"`benchcast fit {study}` fits again")
        for event in events:
            screen.show(event)


@contextmanager
def _screen(name: str, texts: int, *, as_json: bool) -> Iterator[Any]:
    """The output: JSON lines, a live table on a terminal, or plain lines."""
    from rich.console import Console

    console = Console(highlight=False)
    if as_json:
        yield _JsonLines(texts)
    elif console.is_terminal:
        from rich.live import Live

        with Live(console=console, auto_refresh=False) as live:
            yield _Table(name, live)
    else:
        yield _PlainLines(texts)


class _PlainLines:
    """Prints one line for each event."""

    def __init__(self, texts: int) -> None:
        self.texts = texts

    def scoring(self, model: str) -> Any:
        """A progress callback that prints a line every 30 seconds."""
        say(f"{model}: scoring", err=True)
        return paced_lines(f"{model}: scoring", self.texts)

    def show(self, event: Event) -> None:
        """Print forecasts to stdout and other events to stderr."""
        if event.kind == "forecast":
            sure = reached(event)
            parts = [
                f"{f.task} {number(f.accuracy, '.3f')} ({number(f.low, '.3f')}–{number(f.high, '.3f')}{sure[f.task]})"
                for f in event.forecasts
            ]
            took = f" ({event.seconds:.1f} s)" if event.seconds else ""
            say(f"{event.model}: {', '.join(parts)}{took}")
        else:
            say(_line(event), err=True)

    def idle(self) -> None:
        """Print nothing."""


def reached(event: Event) -> dict[str, str]:
    """For each task the needed score and its probability, as text; empty where none is needed."""
    from benchcast.forecasts.needs import probabilities

    found = probabilities(event.forecasts, event.needs)
    texts = {task: f"; {event.needs[task]:g} or more: {number(p, '.0%')}" for task, p in found.items()}
    return {f.task: texts.get(f.task, "") for f in event.forecasts}


def _line(event: Event) -> str:
    """An event without a forecast in words."""
    waiting = event.kind == "waiting"
    return f"waiting for {event.model}: {event.why}" if waiting else f"{event.model}: {event.kind}: {event.why}"


class _JsonLines(_PlainLines):
    """Prints one JSON object for each event to stdout."""

    def scoring(self, model: str) -> None:
        """Print nothing."""

    def show(self, event: Event) -> None:
        say_json(event.to_dict())


class _Table:
    """Live table on the terminal: for each task the last forecast and the curve so far; below, the last messages."""

    def __init__(self, name: str, live: Any) -> None:
        self.name, self.live = name, live
        self.points: dict[str, tuple[tuple[int, str], Event]] = {}  # sort key and event, by model
        self.lines: list[str] = []
        self.doing = ""

    def scoring(self, model: str) -> Any:
        """A progress callback that shows the number of scored texts."""
        done = 0

        def report(texts: int, _: int) -> None:
            nonlocal done
            done += texts
            self._draw(f"{model}: scoring, {done} texts done")

        self._draw(f"{model}: loading")
        return report

    def show(self, event: Event) -> None:
        if event.kind == "forecast":
            self.points[event.model] = ((event.step or 0, event.model), event)
        else:
            self.lines = [*self.lines, _line(event)][-SHOWN_LINES:]
        self._draw("")

    def idle(self) -> None:
        """Show that it waits."""
        self._draw("waiting for the next checkpoint (Ctrl-C ends)")

    def _draw(self, doing: str) -> None:
        from rich.console import Group
        from rich.text import Text

        lines = [Text(visible(line), style="dim") for line in (*self.lines, doing) if line]
        table = draw_table(self.name, [e for _, e in sorted(self.points.values())], room=self.live.console.width)
        self.live.update(Group(table, *lines))
        self.live.refresh()


def draw_table(name: str, events: list[Event], *, room: int) -> Any:
    """Table of a run's forecasts so far, one row for each task."""
    from rich.console import Group
    from rich.text import Text

    from benchcast.cli.tables import table_lines, wrap_text

    title = f"{name}: {len(events)} checkpoints" + (f", last {events[-1].model}" if events else "")
    rows = []
    for i, last in enumerate(events[-1].forecasts if events else ()):
        values = [e.forecasts[i].accuracy for e in events]
        numbers = (number(last.accuracy, ".3f"), ends(last.low, last.high), number(last.capability, ".4f"))
        need = [reached(events[-1])[last.task].removeprefix("; ")] if events[-1].needs else []
        rows.append((last.task, *numbers, *need, curve(values)))
    needed = ["need"] if events and events[-1].needs else []
    header = ("task", "forecast", f"{level_text()} interval", "capability", *needed, "so far")
    lines = table_lines(header, rows, left=(0, len(header) - 1), room=room)
    return Group(*(Text(line, style="bold") for line in wrap_text(visible(title), room)), *lines)


def curve(values: list[float]) -> str:
    """The values as a line of bars between their minimum and maximum; a long run is thinned to `WIDEST_CURVE` bars.

    The height of the bars spans at least `LEAST_SPAN`, so that a flat series looks flat.
    """
    finite = [v for v in values if v == v]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    top = (len(BARS) - 1) / max(high - low, LEAST_SPAN)
    n, last = min(len(values), WIDEST_CURVE), len(values) - 1
    shown = [values[round(i * last / max(1, n - 1))] for i in range(n)]
    return f"{low:.2f} {''.join(' ' if v != v else BARS[round(top * (v - low))] for v in shown)} {high:.2f}"
