"""`status`: what a study holds and lacks; `bpb`: bits per byte of its models."""

from __future__ import annotations

import re
from pathlib import Path

import click

from benchcast.cli.arguments import JSON, PATH, STUDY
from benchcast.cli.output import print_json, print_table, say, say_wrapped
from benchcast.cli.progress import progress
from benchcast.messages import counted, number


@click.command()
@STUDY
@JSON
def status(study: Path, as_json: bool) -> None:
    """Tell what a study holds, what is missing, and the next command to run.

    \b
    benchcast status study
    """
    from benchcast.forecasts.status import status

    with progress("reading the study"):
        state = status(study)
    if as_json:
        print_json(state.to_dict())
        return
    say_wrapped(
        f"{study}: {counted(state.texts, 'text')}, {counted(state.models_with_losses, 'model')} with losses, "
        f"scorer: {state.scorer or 'none'}"
    )
    size = "mean bytes" if all(s.mean_bytes is not None for s in state.sources) else "unit"
    sizes = [s.unit if s.mean_bytes is None else f"{s.mean_bytes:.0f}" for s in state.sources]
    print_table(
        ("source", "texts", "with answer", size, "sample"),
        [(s.name, str(s.texts), str(s.answers), x, s.sample) for s, x in zip(state.sources, sizes, strict=True)],
        left=(0, 4),
    )
    if state.tasks:
        numbers = [(f"{t.chance:.4g}", str(t.scores), str(t.usable), t.lowest, t.highest) for t in state.tasks]
        fitted = ["yes" if t.fitted else "no" for t in state.tasks]
        rows = [(t.name, *cells, fit) for t, cells, fit in zip(state.tasks, numbers, fitted, strict=True)]
        print_table(("task", "chance", "scores", "with losses", "lowest", "highest", "fitted"), rows)
    if state.models_with_outcomes:
        items = f"outcomes of single items: {counted(state.models_with_outcomes, 'model')}"
        say_wrapped(f"{items} (compare --runs takes the noise of items from pairs)")
    for line in (*state.problems, *state.relatives):
        say_wrapped(f"- {line}")
    # Commands stay whole, to be copied: each on a line of its own.
    say("next: " + re.sub(r"   (or|then)   ", r"\n\1: ", state.next_step).replace("   ", "\n      "))


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
    from benchcast.reports.drawing import finish, write_chart
    from benchcast.study.atomic import write_text
    from benchcast.study.bits_per_byte import bits_per_byte
    from benchcast.study.csv_cells import csv_text

    with progress("reading losses"):
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
        values = bits.to_arrow()
        write_text(table, csv_text(values.column_names, zip(*values.to_pydict().values(), strict=True)))
        say(f"values: {table}")
    if plot is not None:
        write_chart(finish(bits.plot()), plot)
        say(f"figure: {plot}")
