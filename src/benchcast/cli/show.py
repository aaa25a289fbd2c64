"""`report` and `demo`: results to look at."""

from __future__ import annotations

from pathlib import Path

import click

from benchcast.cli.comparison import print_comparison
from benchcast.cli.data import STUDY
from benchcast.cli.forecast import SPLIT, say_split
from benchcast.cli.output import progress, say


@click.command()
@STUDY
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where to write it. Default: report.html in the study.",
)
@SPLIT
def report(study: Path, output: Path | None, split: str | None) -> None:
    """Write one self-contained HTML file with tables and figures.

    \b
    benchcast report study -o report.html
    """
    from benchcast.cli.predict import warn_if_stale
    from benchcast.evaluate import compare
    from benchcast.fitting import fits_for_new_models
    from benchcast.methods import METHODS
    from benchcast.report import STEPS, write_report
    from benchcast.store import Study

    opened = Study.open(study)
    target = page_path(output or study / "report.html")
    with progress("comparing", len(METHODS) + STEPS) as advance:
        found = compare(opened, split=split, on_method=lambda m: advance(f"comparing: {m}"))
        write_report(target, opened, found, on_step=lambda what: advance(what))
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


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("benchcast-demo"),
    show_default=True,
    help="Folder to write; an older demo there is replaced.",
)
def demo(out: Path) -> None:
    """Run everything once on the embedded study: fit, compare, forecast, report.

    \b
    benchcast demo --out benchcast-demo
    """
    from benchcast.demo import MARK, copy_embedded
    from benchcast.errors import InputError
    from benchcast.evaluate import compare
    from benchcast.fitting import describe, fit_tasks
    from benchcast.methods import METHODS
    from benchcast.report import STEPS, write_report
    from benchcast.storage.files import remove

    if out.exists():
        if not (out / MARK).exists():
            raise InputError(f"{out}: exists and was not made by the demo; take another --out")
        remove(out / "study")
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()
    study = copy_embedded(out / "study")
    say("225 small language models of nine families, their losses on 650 texts, and six skills to forecast\n")
    with progress("comparing", len(METHODS)) as advance:
        found = compare(study, on_method=lambda m: advance(f"comparing: {m}"))
    print_comparison(found)
    say()
    for fit in fit_tasks(study, split="size"):
        fit.save(study.fit_folder(fit.task))
        say(describe(fit))
    with progress("report", STEPS) as advance:
        write_report(out / "report.html", study, found, on_step=lambda what: advance(what))
    say(f"\nreport: {out / 'report.html'}   study: {study.root}")
    say(f"next: benchcast status {study.root}")
