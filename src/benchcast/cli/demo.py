"""`demo`: everything once, on the embedded study or on a public one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import STUDY_FOLDER
from benchcast.cli.forecast import print_comparison
from benchcast.cli.output import ends, number, print_table, progress, say

if TYPE_CHECKING:
    from benchcast.datasets import TargetForecast
    from benchcast.evaluate import Comparison
    from benchcast.store import Study

MARK = ".benchcast-demo"  # name of a file that marks a folder written by the demo


@click.command()
@click.argument("name", default="zoo")
@click.option(
    "--out",
    type=STUDY_FOLDER,
    default=Path("benchcast-demo"),
    show_default=True,
    help="Folder to write; an older demo there is replaced.",
)
def demo(name: str, out: Path) -> None:
    """Run everything once: fit, compare, forecast, report. Without NAME, offline on the embedded study.

    NAME is one of `benchcast datasets`. With olmo-ladder, 7B and 13B are forecast from 3B and below.

    \b
    benchcast demo
    benchcast demo olmo-ladder --out ladder
    """
    from benchcast.datasets import find, target_forecasts
    from benchcast.extras import require_report

    require_report()
    about = find(name)
    study = _study(name, out)
    say(f"{about.summary}\n")
    comparison = _compare(study)
    _fit(study, comparison)
    targets = target_forecasts(name, comparison)
    _print_targets(targets, comparison.methods[0])
    _write(out, study, comparison, targets)
    say(f"next: benchcast status {study.root}")


def _study(name: str, out: Path) -> Study:
    """A copy of the study in the demo's folder."""
    from benchcast.datasets import copy_dataset, fetch
    from benchcast.errors import InputError
    from benchcast.storage.files import remove

    if out.exists() and not (out / MARK).exists():
        raise InputError(f"{out}: exists and was not made by the demo; take another --out")
    with progress(f"reading {name}") as advance:
        fetch(name, on_file=lambda path: advance(f"reading {path.rpartition('/')[2]}", by=0))
        remove(out / "study")
        out.mkdir(parents=True, exist_ok=True)
        (out / MARK).touch()
        return copy_dataset(name, out / "study")


def _compare(study: Study) -> Comparison:
    from benchcast.evaluate import Execution, compare
    from benchcast.executor import on_this_machine
    from benchcast.methods import METHODS

    with progress("comparing", len(METHODS)) as advance:
        execution = Execution(executor=on_this_machine(), on_method=lambda m: advance(f"comparing: {m} is done"))
        comparison = compare(study, device=execution)
    print_comparison(comparison)
    say()
    return comparison


def _fit(study: Study, comparison: Comparison) -> None:
    from benchcast.fitting import describe, fit_tasks, store_fits

    fits = fit_tasks(study, split=comparison.split)
    store_fits(study, fits)
    for fit in fits:
        say(describe(fit))


def _print_targets(targets: list[TargetForecast], method: str) -> None:
    """Forecasts of the models that a study is about, with one table for each model."""
    for model in dict.fromkeys(t.model for t in targets):
        of_model = [t for t in targets if t.model == model]
        rows = [
            (t.task, number(t.forecast, ".3f"), ends(t.low, t.high), number(t.observed, ".3f"), f"{100 * t.error:+.1f}")
            for t in of_model
        ]
        header = ("task", "forecast", f"{level_text()} interval", "observed", "error, points")
        say()
        print_table(header, rows, title=f"{model}, held out, by {method}")
        mean = 100 * sum(abs(t.error) for t in of_model) / len(of_model)
        inside = sum(t.inside for t in of_model)
        say(f"mean absolute error {mean:.1f} points; {inside} of {len(of_model)} scores inside the interval")


def _write(out: Path, study: Study, comparison: Comparison, targets: list[TargetForecast]) -> None:
    from dataclasses import asdict

    from benchcast.plots import targets_figure, write_chart
    from benchcast.reports import STEPS, write_report

    with progress("report", STEPS) as advance:
        write_report(out / "report.html", study, comparison, on_step=advance)
    say(f"\nreport: {out / 'report.html'}   study: {study.root}")
    if targets:
        write_chart(targets_figure([asdict(t) for t in targets]), out / "forecasts.png")
        say(f"figure: {out / 'forecasts.png'}")
