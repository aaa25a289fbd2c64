"""`report`: results to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import PATH, STUDY
from benchcast.cli.forecast import SPLIT, say_split
from benchcast.cli.output import progress, say

if TYPE_CHECKING:
    from benchcast.choices import Split


@click.command()
@STUDY
@click.option("-o", "--output", type=PATH, help="Where to write it. Default: report.html in the study.")
@SPLIT
def report(study: Path, output: Path | None, split: Split | None) -> None:
    """Write one self-contained HTML file with tables and figures.

    \b
    benchcast report study -o report.html
    """
    from benchcast.choices import METHOD_NAMES
    from benchcast.cli.predict import warn_if_stale
    from benchcast.fitting import fits_for_new_models
    from benchcast.reports import STEPS, compare_and_write
    from benchcast.storage.files import require_writable
    from benchcast.store import Study

    opened = Study.open(study)
    if output is None:
        require_writable(study)
    target = page_path(output or study / "report.html")
    with progress("comparing", len(METHOD_NAMES) + STEPS) as advance:
        found = compare_and_write(target, opened, split, on_step=lambda what: advance(what))
    say_split(split, found)
    stored = fits_for_new_models(opened) if opened.fitted_tasks() else []
    warn_if_stale(opened, stored, f"the report fitted again; `benchcast fit {study}` updates them")
    say(f"report: {target}")


def page_path(path: Path) -> Path:
    """Where to write a page; a folder is a mistake that is better told before the work than after it."""
    from benchcast.errors import InputError

    if path.is_dir():
        raise InputError(f"{path}: a folder; name a file to write, such as {path / 'report.html'}")
    return path
