"""`status`, `bpb` and `report`: what a study holds, and results to look at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import JSON, PATH, STUDY
from benchcast.cli.output import print_json, print_table, say, say_wrapped
from benchcast.messages import number

if TYPE_CHECKING:
    from benchcast.forecasts.status import SourceStatus, TaskStatus

TASK_COLUMNS = ("task", "chance", "scores", "with losses", "lowest", "highest", "fitted")


@click.command()
@STUDY
@JSON
def status(study: Path, as_json: bool) -> None:
    """Tell what a study holds, what is missing, and the next command to run.

    \b
    benchcast status study
    """
    from benchcast.forecasts.status import status

    state = status(study)
    if as_json:
        print_json(state.to_dict())
        return
    say_wrapped(
        f"{study}: {state.texts} texts, {state.models_with_losses} models with losses, scorer: {state.scorer or 'none'}"
    )
    print_table(_header(state.sources), [_source(s) for s in state.sources], left=(0, 4))
    if state.tasks:
        print_table(TASK_COLUMNS, [_task(t) for t in state.tasks])
    for line in (*state.problems, *state.relatives):
        say_wrapped(f"- {line}")
    # Commands stay whole, to be copied: each on a line of its own.
    say("next: " + re.sub(r"   (or|then)   ", r"\n\1: ", state.next_step).replace("   ", "\n      "))


def _header(sources: Sequence[SourceStatus]) -> tuple[str, ...]:
    named = any(s.mean_bytes is None for s in sources)
    return ("source", "texts", "with answer", "unit" if named else "mean bytes", "sample")


def _source(source: SourceStatus) -> tuple[str, ...]:
    size = source.unit if source.mean_bytes is None else f"{source.mean_bytes:.0f}"
    return (source.name, str(source.texts), str(source.answers), size, source.sample)


def _task(task: TaskStatus) -> tuple[str, ...]:
    numbers = (f"{task.chance:.4g}", str(task.scores), str(task.usable), task.lowest, task.highest)
    return (task.name, *numbers, "yes" if task.fitted else "no")


@click.command()
@STUDY
@click.option("--model", "models", multiple=True, help="A model that has losses; may be given again. Default: all.")
@click.option("--csv", "table", type=PATH, help="Write all values to this file.")
@click.option("--plot", type=PATH, help="Write a figure: .html, .png, .svg or .pdf.")
def bpb(study: Path, models: tuple[str, ...], table: Path | None, plot: Path | None) -> None:
    """Show bits per byte of each model on each source: of whole texts, and of answers only.

    \b
    benchcast bpb study
    benchcast bpb study --csv bpb.csv --plot bpb.png
    """
    from pyarrow.csv import write_csv

    from benchcast.reports.figures import finish, write_chart
    from benchcast.study.atomic import write_whole
    from benchcast.study.bits_per_byte import bits_per_byte

    bits = bits_per_byte(study, models)
    names = dict.fromkeys(r.model for r in bits.rows)
    columns = {
        f"{source} {kind}": [number(getattr(r, field), ".3f") for r in bits.rows if r.source == source]
        for source in dict.fromkeys(r.source for r in bits.rows)
        for kind, field in (("text", "whole_text"), ("answer", "answer"))
    }
    shown = {head: cells for head, cells in columns.items() if set(cells) != {number(float("nan"))}}
    print_table(["model", *shown], zip(names, *shown.values(), strict=True), title="bits per byte")
    if table is not None:
        write_whole(table, lambda path: write_csv(bits.to_arrow(), path))
        say(f"values: {table}")
    if plot is not None:
        write_chart(finish(bits.plot()), plot)
        say(f"figure: {plot}")
