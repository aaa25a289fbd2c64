"""Printing: tables on stdout, progress on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from benchcast.cells import number as number

if TYPE_CHECKING:
    from benchcast.executor import Executor

WIDEST = 400


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", left: Sequence[int] = (0,)
) -> None:
    """A plain table: the columns of `left` to the left, the rest right; a cell that starts with * is its row's best."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for i, name in enumerate(header):
        table.add_column(Text(name, style="dim"), justify="left" if i in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style="bold green" if cell.startswith("*") else "") for cell in row))
    # Wide enough for any table: a terminal wraps a long line, but no number may be cut short.
    Console(highlight=False, width=WIDEST).print(table)


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
        task = bar.add_task(label, total=total)

        def advance(what: str | None = None, by: int = 1) -> None:
            bar.update(task, advance=by, description=what or label)

        yield advance


@contextmanager
def workers(executor: str, address: str) -> Iterator[Executor | None]:
    """Who does the work: None for this process, else a cluster, whose mishaps are told on stderr."""
    from benchcast.executor import open_executor

    def note(line: str) -> None:
        click.echo(line, err=True)

    with open_executor(executor, address=address, note=note) as opened:
        yield None if executor == "local" else opened
