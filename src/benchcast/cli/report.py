"""`report`: forecasts and a comparison of methods as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import PATH, SPLIT, STUDY
from benchcast.cli.compare import say_split
from benchcast.cli.output import say
from benchcast.cli.progress import progress

if TYPE_CHECKING:
    from benchcast.choices import Split


@click.command()
@STUDY
@click.option("-o", "--output", type=PATH, help="Where to write it. Default: report.html in the study.")
@SPLIT
@click.option("--all-methods", is_flag=True, help="Compare every method, and show how Algorithm 2 converges.")
def report(study: Path, output: Path | None, split: Split, all_methods: bool) -> None:
    """Write one self-contained HTML file: forecasts, how far to trust them, details, and methods last.

    \b
    benchcast report study -o report.html
    """
    from benchcast.cli.predict import warn_if_stale
    from benchcast.executors.local import on_this_machine
    from benchcast.methods import MAIN_METHODS, METHODS
    from benchcast.reports.report import STEPS, compare_and_write
    from benchcast.study.atomic import require_writable
    from benchcast.study.study import Study

    opened = Study.open(study)
    if output is None:
        require_writable(study)
    target = page_path(output or study / "report.html")
    with progress("comparing", len(METHODS if all_methods else MAIN_METHODS) + STEPS) as advance:
        comparison, stored = compare_and_write(
            target, opened, split, all_methods=all_methods, on_step=advance, executor=on_this_machine()
        )
    say_split(split, comparison)
    warn_if_stale(opened, stored, f"the report fitted again; `benchcast fit {study}` updates them")
    say(f"report: {target}")


def page_path(path: Path) -> Path:
    """Where to write a page; a folder is refused before the work."""
    from benchcast.errors import InputError

    if path.is_dir():
        raise InputError(f"{path}: a folder; name a file to write, such as {path / 'report.html'}")
    return path
