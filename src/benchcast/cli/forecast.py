"""`fit` and `compare`: from dataset to fits, and how well they forecast."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.choices import SPLITS
from benchcast.cli.arguments import ADDRESS, EXECUTOR
from benchcast.cli.comparison import print_comparison
from benchcast.cli.data import STUDY
from benchcast.cli.groups import WithMethods
from benchcast.cli.output import print_json, progress, say, workers

if TYPE_CHECKING:
    from benchcast.choices import MethodName, Split
    from benchcast.evaluate import Comparison
    from benchcast.store import Study
    from benchcast.support import Support

TASKS = click.option("--task", "tasks", multiple=True, help="A task of study.toml; may be given again. Default: all.")
SPLIT = click.option(
    "--split",
    type=click.Choice(SPLITS),
    help="How models are held out. Default: the split column if filled, else size, else family.",
)
KEEP_ALL = click.option(
    "--keep-all",
    is_flag=True,
    help="Keep models that lack more than 10% of a task's own text; it is then lost for all.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
DEVICE = click.option(
    "--device", default="", help="Work out salience, paper and ridge there, e.g. cuda; needs torch. Default: numpy."
)


@click.command()
@STUDY
@TASKS
@click.option("--method", default="salience", show_default=True, help="A row of `benchcast compare`.")
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    help="Keep this split's test models unseen (family: none). Default: the split column if filled, else none.",
)
@KEEP_ALL
@DEVICE
def fit(
    study: Path, tasks: tuple[str, ...], method: MethodName, split: Split | None, keep_all: bool, device: str
) -> None:
    """Learn salience and law, and store them in the study.

    \b
    benchcast fit study
    benchcast fit study --task mmlu --method paper --device cuda
    """
    from benchcast.aggregation import aggregate_fits
    from benchcast.fitting import describe, fit_tasks
    from benchcast.methods import MethodSpec
    from benchcast.store import Study
    from benchcast.support import Support

    opened = Study.open(study, keep_all=keep_all)
    weak: list[str] = []
    spec = MethodSpec(method, device=device)
    with progress(f"fitting {method}"):
        fits = fit_tasks(opened, tasks, method=spec, split=split, store=True, on_left_out=weak.append)
    for made in fits:
        say(describe(made))
    for aggregate in aggregate_fits(opened, fits):
        say(aggregate.describe())
    for line in weak:
        say(f"left out: {line}")
    _tell_support(Support.of(fits[0].about))
    _warn_below_chance(opened, [made.task for made in fits])
    say(f"next: benchcast predict {study} --model NAME")


@click.command(cls=WithMethods)
@STUDY
@TASKS
@SPLIT
@click.option("--method", "methods", multiple=True, help="Only this method; may be given again.")
@click.option(
    "--runs", metavar="A,B,…", help="Compare training runs instead: families, or models without their @tokens."
)
@KEEP_ALL
@DEVICE
@EXECUTOR
@ADDRESS
@click.option("--wide", is_flag=True, help="All tasks in one table, however wide.")
@JSON
def compare(
    study: Path,
    tasks: tuple[str, ...],
    split: Split | None,
    methods: tuple[MethodName, ...],
    runs: str | None,
    keep_all: bool,
    device: str,
    executor: str,
    address: str,
    wide: bool,
    as_json: bool,
) -> None:
    """Forecast held-out models with every method and say how well each does; or order training runs.

    \b
    benchcast compare study
    benchcast compare study --split family --task mmlu
    benchcast compare study --runs oak-a,oak-b          by forecast at equal compute, and by their scores
    benchcast compare study --split family --executor ray
    """
    from benchcast.store import Study

    if runs is not None:
        from benchcast.cli.runs import show_runs

        if split is not None or len(methods) > 1 or executor != "local":
            raise click.UsageError("--runs goes with one --method at most, no --split and no --executor ray")
        opened = Study.open(study, keep_all=keep_all)
        show_runs(opened, runs, tasks, methods[0] if methods else "salience", device=device, as_json=as_json)
        return
    from benchcast.evaluate import Execution
    from benchcast.evaluate import compare as run
    from benchcast.methods import METHODS

    if device and executor != "local":
        raise click.UsageError("--device is for this process; leave it out, or --executor ray")
    opened = Study.open(study, keep_all=keep_all)
    with workers(executor, address) as pool, progress("comparing", len(methods) or len(METHODS)) as advance:
        execution = Execution(device, pool, partial(_tell, advance))
        found = run(opened, tasks, split=split, methods=methods, device=execution)
    say_split(split, found)
    if as_json:
        print_json(found.as_json())
    else:
        print_comparison(found, wide=wide)
    _tell_support(found.dataset.support)
    _warn_below_chance(opened, found.tasks)


def say_split(asked: str | None, found: Comparison) -> None:
    """Say that families are held out where nobody asked for it."""
    if asked is None and found.split == "family":
        say("split by family: no split column, and no family has models of three sizes", err=True)


def _tell_support(support: Support) -> None:
    """Say how much text the models share, where that is not all of it."""
    for line in support.lines():
        say(f"note: {line}", err=True)


def _warn_below_chance(study: Study, tasks: Sequence[str]) -> None:
    """Warn of tasks whose scores are no better than guessing."""
    from benchcast.inspection import below_chance

    for line in below_chance(study.scores(), [study.task(name) for name in tasks]):
        say(f"warning: {line}", err=True)


def _tell(advance: Any, method: str) -> None:
    advance(f"comparing: {method}")
