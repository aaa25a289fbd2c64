"""`status`: what a study holds, in the width of the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import STUDY
from benchcast.cli.output import print_json, print_table, say, say_wrapped

if TYPE_CHECKING:
    from benchcast.status import TaskStatus

SOURCES = ("source", "texts", "with answer", "mean bytes", "sample")
TASKS = ("task", "chance", "scores", "with losses", "lowest", "highest", "fitted")


@click.command()
@STUDY
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(study: Path, as_json: bool) -> None:
    """Tell what a study holds, what is missing, and the next command to run.

    \b
    benchcast status study
    """
    from benchcast.status import inspect
    from benchcast.store import Study

    found = inspect(Study.open(study))
    if as_json:
        print_json(found.as_json())
        return
    say_wrapped(
        f"{study}: {found.texts} texts, {found.models_with_losses} models with losses, scorer: {found.scorer or 'none'}"
    )
    sources = [(s.name, str(s.texts), str(s.answers), f"{s.mean_bytes:.0f}", s.sample) for s in found.sources]
    print_table(SOURCES, sources, left=(0, 4))
    if found.tasks:
        print_table(TASKS, [_task(t) for t in found.tasks])
    for problem in found.problems:
        say_wrapped(f"- {problem}")
    # Commands stay whole, to be copied: each on a line of its own.
    say("next: " + re.sub(r"   (or|then)   ", r"\n\1: ", found.next_step).replace("   (", "\n      ("))


def _task(task: TaskStatus) -> tuple[str, ...]:
    numbers = (f"{task.chance:.4g}", str(task.scores), str(task.usable), task.lowest, task.highest)
    return (task.name, *numbers, "yes" if task.fitted else "no")
