"""`fit` and `compare`: from dataset to fits, and how well they forecast."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import DEFAULT_METHOD, SPLITS, level_text
from benchcast.cli.arguments import ADDRESS, EXECUTOR, JSON, STUDY, TASKS, WithMethods
from benchcast.cli.output import number, print_json, print_table, progress, say, say_wrapped, warn, workers
from benchcast.cli.runs import show_runs
from benchcast.formatting import few

if TYPE_CHECKING:
    from benchcast.choices import ExecutorName, MethodName, Split
    from benchcast.evaluate import Comparison
    from benchcast.store import Study
    from benchcast.support import Support

SPLIT = click.option(
    "--split",
    type=click.Choice(SPLITS),
    default="auto",
    show_default=True,
    help="How models are held out. auto: by the split column if filled, else size if enough train, else family.",
)
KEEP_ALL = click.option(
    "--keep-all",
    is_flag=True,
    help="Keep models that lack more than 10% of a task's own text; it is then lost for all.",
)
DEVICE = click.option(
    "--device",
    default="",
    help="Compute stack, salience, paper and ridge on this torch device, e.g. cuda. Default: numpy.",
)
DETAILS = {  # measures of one method: heading and format
    "mae": ("mean abs error", ".4f"),
    "r2": ("R²", ".3f"),
    "spearman": ("Spearman", ".3f"),
    "pairs": ("pairs in order", ".3f"),
    "coverage": (f"{level_text()} interval covers", ".2f"),
    "width": ("its width", ".3f"),
}


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
@DEVICE
def fit(study: Path, tasks: tuple[str, ...], method: MethodName, split: Split, keep_all: bool, device: str) -> None:
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
    if opened.note:
        say(f"note: {opened.note}", err=True)
    weak: list[str] = []
    spec = MethodSpec(method, device=device)
    with progress(f"fitting {method}"):
        fits = fit_tasks(opened, tasks, method=spec, split=split, store=True, on_left_out=weak.append)
    for fitted in fits:
        say(describe(fitted))
    for aggregate in aggregate_fits(opened, fits):
        say(aggregate.describe())
    for line in weak:
        say(f"left out: {line}")
    _tell_support(Support.of(fits[0].about))
    _warn_below_chance(opened, [fitted.task for fitted in fits])
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
@click.option("--jobs", type=click.IntRange(1), help="Processes on this machine. Default: one per core.")
@click.option("--wide", is_flag=True, help="All tasks in one table, however wide.")
@JSON
def compare(
    study: Path,
    tasks: tuple[str, ...],
    split: Split,
    methods: tuple[MethodName, ...],
    runs: str | None,
    keep_all: bool,
    device: str,
    executor: ExecutorName,
    address: str,
    jobs: int | None,
    wide: bool,
    as_json: bool,
) -> None:
    """Forecast held-out models with every method and say how well each does; or order training runs.

    \b
    benchcast compare study
    benchcast compare study --split family --task mmlu --jobs 4
    benchcast compare study --runs oak-a,oak-b          by forecast at equal compute, and by their scores
    benchcast compare study --split family --executor ray
    """
    from benchcast.store import Study

    if jobs is not None and (runs is not None or device or executor != "local"):
        raise click.UsageError("--jobs does not go with --runs, --device or --executor ray")
    if runs is not None:
        if split != "auto" or len(methods) > 1 or executor != "local":
            raise click.UsageError("--runs goes with one --method at most, no --split and no --executor ray")
        opened = Study.open(study, keep_all=keep_all)
        show_runs(opened, runs, tasks, methods[0] if methods else "salience", device=device, as_json=as_json)
        return
    from benchcast.evaluate import Execution
    from benchcast.evaluate import compare as run
    from benchcast.executor import on_this_machine
    from benchcast.methods import METHODS

    if device and executor != "local":
        raise click.UsageError("--device is for this process; leave it out, or --executor ray")
    opened = Study.open(study, keep_all=keep_all)
    here = on_this_machine(1 if device else jobs)
    with workers(executor, address) as cluster, progress("comparing", len(methods) or len(METHODS)) as advance:
        execution = Execution(device, cluster or here, lambda m: advance(f"comparing: {m} is done"), keep_fits=False)
        comparison = run(opened, tasks, split=split, methods=methods, device=execution)
    say_split(split, comparison)
    if as_json:
        print_json(comparison.as_json())
    else:
        print_comparison(comparison, wide=wide)
    _tell_support(comparison.dataset.support)
    _warn_below_chance(opened, comparison.tasks)


def say_split(asked: Split, comparison: Comparison) -> None:
    """Say why families are held out if "auto" chose them."""
    if asked == "auto" and comparison.split == "family":
        from benchcast.folds import WHY_FAMILY

        say(f"split by family: {WHY_FAMILY}", err=True)


def _tell_support(support: Support) -> None:
    """Say how much text the models share, where that is not all of it."""
    for line in support.lines():
        say(f"note: {line}", err=True)


def _warn_below_chance(study: Study, tasks: Sequence[str]) -> None:
    """Warn of tasks whose scores are no better than guessing."""
    from benchcast.inspection import below_chance

    warn(*below_chance(study.scores(), [study.task(name) for name in tasks]))


def print_comparison(comparison: Comparison, *, wide: bool = False) -> None:
    """Error of every method on every task, which method is best, and what the first one's intervals are worth."""
    from benchcast.ranking import headline

    n_test = max(len(h.observed) for h in comparison.held_out.values())
    title = f"mean squared error, split by {comparison.split}, {n_test} held-out models"
    print_table(("method", *comparison.tasks), _error_rows(comparison), title=title, wide=wide)
    say("* least error; noise floor: what the finite number of scored items alone leaves")
    say_wrapped(headline(comparison))
    say()
    first = comparison.methods[0]
    measured = [(task, comparison.measures(task, first)) for task in comparison.tasks]
    rows = [(task, *(number(m[k], form) for k, (_, form) in DETAILS.items())) for task, m in measured]
    print_table((first, *(name for name, _ in DETAILS.values())), rows, wide=wide)
    for method, why in comparison.left_out.items():
        say(f"left out: {method} {why}")
    for line in _impossible(comparison):
        say_wrapped(line)


def _impossible(comparison: Comparison) -> list[str]:
    """For each method that could not forecast all held-out models of a task, a line that says why."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for method in comparison.methods:
        for task in comparison.tasks:
            if not isfinite(comparison.measures(task, method)["mse"]):
                tasks.setdefault((method, comparison.remark(task, method)), []).append(task)
    return [f"{method} on {few(names)}: {remark}" for (method, remark), names in tasks.items()]


def _error_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    errors = {(t, m): comparison.measures(t, m)["mse"] for t in comparison.tasks for m in comparison.methods}
    known = {t: [errors[t, m] for m in comparison.methods if errors[t, m] == errors[t, m]] for t in comparison.tasks}
    rows = [
        (m, *("*" * (errors[t, m] in known[t] and errors[t, m] == min(known[t])) + number(errors[t, m]) for t in known))
        for m in comparison.methods
    ]
    return [*rows, ("noise floor", *(number(comparison.noise[t]) for t in comparison.tasks))]
