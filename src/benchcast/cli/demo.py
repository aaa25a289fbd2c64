"""`demo`: everything once, on the embedded study or on a public one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import STUDY_FOLDER
from benchcast.cli.compare import print_comparison
from benchcast.cli.output import ends, print_table, say
from benchcast.cli.progress import progress
from benchcast.messages import number

if TYPE_CHECKING:
    from benchcast.evaluation.comparison import Comparison
    from benchcast.forecasts.forecast import ScoredForecast
    from benchcast.study.study import Study

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
    from benchcast.datasets import find
    from benchcast.errors import require_report

    require_report()
    about = find(name)
    study = _study(name, out)
    say(f"{about.summary}\n")
    comparison = _compare(study)
    _fit(study, comparison)
    targets = target_forecasts(about.targets, comparison)
    _print_targets(targets, comparison.methods[0])
    _write(out, study, comparison, targets)
    say(f"next: benchcast status {study.root}")


def _study(name: str, out: Path) -> Study:
    from benchcast.datasets import copy_dataset, fetch
    from benchcast.errors import InputError
    from benchcast.study.atomic import remove

    if out.exists() and not (out / MARK).exists():
        raise InputError(f"{out}: exists and was not made by the demo; take another --out")
    with progress(f"reading {name}") as advance:
        fetch(name, on_file=lambda path: advance(f"reading {path.rpartition('/')[2]}", by=0))
        remove(out / "study")
        out.mkdir(parents=True, exist_ok=True)
        (out / MARK).touch()
        return copy_dataset(name, out / "study")


def _compare(study: Study) -> Comparison:
    from benchcast.evaluation.compare import Execution, compare
    from benchcast.executors.local import on_this_machine
    from benchcast.methods import METHODS

    with progress("comparing", len(METHODS)) as advance:
        execution = Execution(executor=on_this_machine(), on_method=lambda m: advance(f"comparing: {m} is done"))
        comparison = compare(study, device=execution)
    print_comparison(comparison)
    say()
    return comparison


def _fit(study: Study, comparison: Comparison) -> None:
    from benchcast.forecasts.fit import describe, fit_tasks, store_fits

    fits = fit_tasks(study, split=comparison.split)
    store_fits(study, fits)
    for fit in fits:
        say(describe(fit))


def target_forecasts(models: Sequence[str], comparison: Comparison) -> dict[str, list[ScoredForecast]]:
    """Forecasts of some held-out models on each task, by the first method."""
    from benchcast.forecasts.forecast import ScoredForecast

    forecasts: dict[str, list[ScoredForecast]] = {model: [] for model in models}
    for model in models:
        for task in comparison.tasks:
            held = comparison.held_out[task, comparison.methods[0]]
            i = held.models.index(model)
            numbers = (float(x[i]) for x in (held.observed, held.forecast, held.low, held.high))
            forecasts[model].append(ScoredForecast(task, *numbers))
    return forecasts


def _print_targets(targets: dict[str, list[ScoredForecast]], method: str) -> None:
    for model, of_model in targets.items():
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


def _write(out: Path, study: Study, comparison: Comparison, targets: dict[str, list[ScoredForecast]]) -> None:
    from dataclasses import asdict

    from benchcast.reports.drawing import targets_figure, write_chart
    from benchcast.reports.report import STEPS, write_report

    with progress("report", STEPS) as advance:
        write_report(out / "report.html", study, comparison, on_step=advance)
    say(f"\nreport: {out / 'report.html'}   study: {study.root}")
    if targets:
        rows = [{"model": model, **asdict(t)} for model, of_model in targets.items() for t in of_model]
        write_chart(targets_figure(rows), out / "forecasts.png")
        say(f"figure: {out / 'forecasts.png'}")
