"""`demo`: everything once, on the embedded study or on a public one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import STUDY_FOLDER
from benchcast.cli.output import ends, print_table, say, say_wrapped
from benchcast.cli.progress import progress
from benchcast.messages import number

if TYPE_CHECKING:
    from benchcast.evaluation.comparison import Comparison
    from benchcast.forecasts.forecast import ScoredForecast
    from benchcast.study.study import Study

MOST_TARGETS = 3  # models shown where a study names none
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
    """Run everything once: fit, forecast models not seen, report. Without NAME, offline on the embedded study.

    NAME is one of `benchcast datasets`. With olmo-ladder, 7B and 13B are forecast from 3B and below.

    \b
    benchcast demo
    benchcast demo olmo-ladder --out ladder
    """
    from benchcast.datasets import find
    from benchcast.errors import require_report
    from benchcast.forecasts.fit import fit_tasks, store_fits

    require_report()
    about = find(name)
    study = _study(name, out)
    say(f"{about.summary}\n")
    comparison = _compare(study)
    with progress("fitting"):
        store_fits(study, fit_tasks(study, split=comparison.split))
    targets = target_forecasts(about.targets or last_models(study, comparison), comparison)
    _print_targets(targets, comparison)
    _write(out, study, comparison, targets)


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
    from benchcast.methods import MAIN_METHODS

    with progress("forecasting held-out models", len(MAIN_METHODS)) as advance:
        execution = Execution(executor=on_this_machine(), on_method=lambda m: advance())
        return compare(study, device=execution)


def last_models(study: Study, comparison: Comparison) -> list[str]:
    """Of a few families, the held-out model that was trained with the most compute."""
    held = {model for task in comparison.tasks for model in comparison.held_out[task, comparison.used].models}
    infos = sorted((m for m in study.models() if m.model in held), key=lambda m: m.training_order)
    return [*{m.family_name: m.model for m in infos}.values()][-MOST_TARGETS:]


def target_forecasts(models: Sequence[str], comparison: Comparison) -> dict[str, list[ScoredForecast]]:
    """Forecasts of some held-out models by the method that `fit` uses, on each task that they have a score on."""
    from benchcast.forecasts.forecast import ScoredForecast

    forecasts: dict[str, list[ScoredForecast]] = {model: [] for model in models}
    for model in models:
        for task in comparison.tasks:
            held = comparison.held_out[task, comparison.used]
            if model in held.models:
                i = held.models.index(model)
                numbers = (float(x[i]) for x in (held.observed, held.forecast, held.low, held.high))
                forecasts[model].append(ScoredForecast(task, *numbers))
    return forecasts


def _print_targets(targets: dict[str, list[ScoredForecast]], comparison: Comparison) -> None:
    """One table of forecasts beside scores, and one sentence on all held-out models."""
    from benchcast.evaluation.ranking import trust

    rows: list[tuple[str, ...]] = []
    for model, of_model in targets.items():
        rows.append((model, "", "", "", ""))
        for t in of_model:
            numbers = (number(t.forecast, ".3f"), ends(t.low, t.high), number(t.observed, ".3f"))
            rows.append((f"\u00a0\u00a0{t.task}", *numbers, f"{100 * t.error:+.1f}"))
    header = ("model and task", "forecast", f"{level_text()} interval", "score", "error, points")
    what = "models that the forecasts have not seen" if len(targets) > 1 else "a model that the forecasts have not seen"
    print_table(header, rows, title=f"{what}, by {comparison.used}")
    say()
    say_wrapped(trust(comparison))


def _write(out: Path, study: Study, comparison: Comparison, targets: dict[str, list[ScoredForecast]]) -> None:
    from dataclasses import asdict

    from benchcast.reports.drawing import targets_figure, write_chart
    from benchcast.reports.report import STEPS, write_report

    with progress("report", STEPS) as advance:
        write_report(out / "report.html", study, comparison, on_step=advance)
    say(f"\nreport: {out / 'report.html'}")
    if targets:
        rows = [{"model": model, **asdict(t)} for model, of_model in targets.items() for t in of_model]
        write_chart(targets_figure(rows), out / "forecasts.png")
        say(f"figure: {out / 'forecasts.png'}")
    say(f"study:  {study.root}")
    say(f"next:   benchcast status {study.root}")
