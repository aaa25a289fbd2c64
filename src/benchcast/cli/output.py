"""Printing: tables on stdout, progress on stderr."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from benchcast.formatting import format_interval as format_interval
from benchcast.formatting import number as number
from benchcast.graphemes import printable, visible

if TYPE_CHECKING:
    from benchcast.executor import Executor

WIDEST = 100_000
ODD_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def say(text: str = "", *, err: bool = False) -> None:
    """A line for people. Names come from files of others: what would drive a terminal is shown instead."""
    click.echo(printable(text), err=err)


def say_wrapped(text: str) -> None:
    """A sentence, cut between words where the terminal ends."""
    from benchcast.cli.tables import wrap_text

    for line in wrap_text(printable(text), room()):
        say(line)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    say_json(value, indent=1)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """A value as JSON, with characters that act on a terminal as escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    click.echo(ODD_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def room() -> int:
    """Columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[int] = (0,),
    wide: bool = False,
) -> None:
    """A plain table that fits the terminal (see `table_lines`); a `wide` one is as wide as it is."""
    from rich.console import Console
    from rich.text import Text

    from benchcast.cli.tables import table_lines, wrap_text

    space = WIDEST if wide else room()
    console = Console(highlight=False)
    named = [Text(line, style="bold") for line in wrap_text(visible(title), space)] if title else []
    for line in (*named, *table_lines(header, list(rows), left=left, room=space)):
        console.print(line, soft_wrap=True)


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Any]:
    """A progress bar on stderr; yields a function that advances it and may rename what is being done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(visible(label), total=total)

        def advance(what: str | None = None, by: int = 1) -> None:
            bar.update(task, advance=by, description=visible(what or label))

        yield advance


@contextmanager
def workers(executor: str, address: str) -> Iterator[Executor | None]:
    """Who does the work: None for this process, else a cluster, whose mishaps are told on stderr."""
    from benchcast.executor import open_executor

    def note(line: str) -> None:
        say(line, err=True)

    with open_executor(executor, address=address, note=note) as opened:
        yield None if executor == "local" else opened
