"""Print messages, JSON and tables."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.errors import InputError, require_report
from benchcast.messages import number, printable, visible

if TYPE_CHECKING:
    from benchcast.choices import ExecutorName
    from benchcast.executors.local import Executor
    from benchcast.losses.support import Support
    from benchcast.study.study import Study

WIDEST = 100_000  # columns of a table that is not wrapped
FIGURES = (".png", ".svg", ".html")
# Characters that JSON allows in strings and that control a terminal or reorder its text.
ODD_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line; control characters, which names from files may contain, are made visible."""
    click.echo(printable(text), err=err)


def warn(*lines: str) -> None:
    """Print each line to stderr as a warning."""
    for line in lines:
        say(f"warning: {line}", err=True)


def say_wrapped(text: str) -> None:
    """Print a sentence, wrapped at the width of the terminal."""
    from benchcast.cli.tables import wrap_text

    for line in wrap_text(printable(text), room()):
        say(line)


def print_json(value: Any) -> None:
    """Print one JSON document to stdout."""
    say_json(value, indent=1)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON, with control characters escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    click.echo(ODD_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def ends(low: float, high: float) -> str:
    """The two ends of an interval of accuracies."""
    return f"{number(low, '.3f')} – {number(high, '.3f')}"


def room() -> int:
    """Width of the terminal in columns; 80 if there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[int] = (0,),
    wide: bool = False,
) -> None:
    """Print a table that fits the terminal (see `table_lines`); a `wide` one is not wrapped."""
    from rich.console import Console
    from rich.text import Text

    from benchcast.cli.tables import table_lines, wrap_text

    space = WIDEST if wide else room()
    console = Console(highlight=False)
    title_lines = [Text(line, style="bold") for line in wrap_text(visible(title), space)] if title else []
    for line in (*title_lines, *table_lines(header, list(rows), left=left, room=space)):
        console.print(line, soft_wrap=True)


def check_figure(option: str, path: Path | None) -> None:
    """Raise an error for a figure that cannot be written, before any work is done."""
    if path is None:
        return
    require_report()
    if path.suffix.lower() not in FIGURES:
        raise InputError(f"{option} {path}: the name must end in .png, .svg or .html")


@contextmanager
def workers(executor: ExecutorName, address: str) -> Iterator[Executor | None]:
    """None for this process, else the executor of a cluster, whose events are printed to stderr."""
    from benchcast.executors import open_executor

    def note(line: str) -> None:
        say(line, err=True)

    with open_executor(executor, address=address, note=note) as opened:
        yield None if executor == "local" else opened


def tell_support(support: Support) -> None:
    """Say how much text the models share, where that is not all of it."""
    for line in support.lines():
        say(f"note: {line}", err=True)


def tell_what_is_lacking(families: int, models: int) -> None:
    """Say what a small study lacks."""
    from benchcast.forecasts.study_size import what_is_lacking

    if line := what_is_lacking(families, models):
        say_wrapped(f"note: {line}")


def tell_below_chance(study: Study, floors: Mapping[str, Sequence[float]]) -> None:
    """Say which tasks have scores below chance; `floors` has those that were learned for each task, a fold each."""
    from benchcast.forecasts.below_chance import below_chance

    for line in below_chance(study.scores(), [study.task(name) for name in floors], floors):
        say(f"note: {line}", err=True)
