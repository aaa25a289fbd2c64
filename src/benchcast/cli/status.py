"""`status`: what a study holds, in the width of the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import JSON, STUDY
from benchcast.cli.output import print_json, print_table, say, say_wrapped

if TYPE_CHECKING:
    from benchcast.inspection import SourceStatus, TaskStatus

TASKS = ("task", "chance", "scores", "with losses", "lowest", "highest", "fitted")


@click.command()
@STUDY
@JSON
def status(study: Path, as_json: bool) -> None:
    """Tell what a study holds, what is missing, and the next command to run.

    \b
    benchcast status study
    """
    from benchcast.inspection import status

    found = status(study)
    if as_json:
        print_json(found.to_dict())
        return
    say_wrapped(
        f"{study}: {found.texts} texts, {found.models_with_losses} models with losses, scorer: {found.scorer or 'none'}"
    )
    print_table(_header(found.sources), [_source(s) for s in found.sources], left=(0, 4))
    if found.tasks:
        print_table(TASKS, [_task(t) for t in found.tasks])
    for line in (*found.problems, *found.relatives):
        say_wrapped(f"- {line}")
    # Commands stay whole, to be copied: each on a line of its own.
    say("next: " + re.sub(r"   (or|then)   ", r"\n\1: ", found.next_step).replace("   (", "\n      ("))


def _header(sources: Sequence[SourceStatus]) -> tuple[str, ...]:
    named = any(s.mean_bytes is None for s in sources)
    return ("source", "texts", "with answer", "unit" if named else "mean bytes", "sample")


def _source(source: SourceStatus) -> tuple[str, ...]:
    size = source.unit if source.mean_bytes is None else f"{source.mean_bytes:.0f}"
    return (source.name, str(source.texts), str(source.answers), size, source.sample)


def _task(task: TaskStatus) -> tuple[str, ...]:
    numbers = (f"{task.chance:.4g}", str(task.scores), str(task.usable), task.lowest, task.highest)
    return (task.name, *numbers, "yes" if task.fitted else "no")
