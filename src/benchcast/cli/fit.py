"""`benchcast fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import SPLITS
from benchcast.cli.arguments import DEVICE, KEEP_ALL, NO_CHOICES, STUDY, TASKS
from benchcast.cli.output import say, tell_below_chance, tell_support, tell_what_is_lacking, warn
from benchcast.cli.progress import progress
from benchcast.methods import DEFAULT_METHOD

if TYPE_CHECKING:
    from benchcast.choices import Split
    from benchcast.methods import MethodName


@click.command()
@STUDY
@TASKS
@click.option("--method", default=DEFAULT_METHOD, show_default=True, help="A row of `benchcast compare`.")
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    default="column",
    show_default=True,
    help="Keep this split's test models unseen. An empty split column, and family, hold out none.",
)
@KEEP_ALL
@NO_CHOICES
@DEVICE
def fit(
    study: Path,
    tasks: tuple[str, ...],
    method: MethodName,
    split: Split,
    keep_all: bool,
    no_choices: bool,
    device: str,
) -> None:
    """Learn salience and law, and store them in the study.

    \b
    benchcast fit study
    benchcast fit study --task mmlu --method paper --device cuda
    """
    from benchcast.forecasts.fit import describe, fit_tasks
    from benchcast.forecasts.mean_tasks import aggregate_fits
    from benchcast.losses.support import Support
    from benchcast.methods.spec import MethodSpec
    from benchcast.study.study import Study

    opened = Study.open(study, keep_all=keep_all, read_choices=not no_choices)
    if opened.note:
        say(f"note: {opened.note}", err=True)
    weak: list[str] = []
    doubts: list[str] = []
    spec = MethodSpec(method, device=device)
    with progress(f"fitting {method}"):
        fits = fit_tasks(
            opened, tasks, method=spec, split=split, store=True, on_left_out=weak.append, on_doubt=doubts.append
        )
    for fitted in fits:
        say(describe(fitted))
    for aggregate in aggregate_fits(opened, fits):
        say(aggregate.describe())
    for line in weak:
        say(f"left out: {line}")
    tell_support(Support.of(fits[0].about))
    trained = [fitted.task_fit.out_of_fold.families for fitted in fits]
    tell_what_is_lacking(
        min(len(set(map(str, f))) for f in trained), min(fitted.about["n_train"][fitted.task] for fitted in fits)
    )
    warn(*doubts)
    tell_below_chance(opened, {fitted.task: [fitted.task_fit.law.chance] for fitted in fits})
    say(f"next: benchcast predict {study} --model NAME")
