"""`bpb`: bits per byte of the models of a study."""

from __future__ import annotations

from pathlib import Path

import click

from benchcast.cli.arguments import PATH, STUDY
from benchcast.cli.output import number, print_table, say


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

    from benchcast.bits import bits_per_byte
    from benchcast.plots import finish, write_chart
    from benchcast.storage.files import write_whole

    found = bits_per_byte(study, models)
    names = dict.fromkeys(r.model for r in found.rows)
    columns = {
        f"{source} {kind}": [number(getattr(r, field), ".3f") for r in found.rows if r.source == source]
        for source in dict.fromkeys(r.source for r in found.rows)
        for kind, field in (("text", "whole_text"), ("answer", "answer"))
    }
    shown = {head: cells for head, cells in columns.items() if set(cells) != {number(float("nan"))}}
    print_table(["model", *shown], zip(names, *shown.values(), strict=True), title="bits per byte")
    if table is not None:
        write_whole(table, lambda path: write_csv(found.to_arrow(), path))
        say(f"values: {table}")
    if plot is not None:
        write_chart(finish(found.plot()), plot)
        say(f"figure: {plot}")
