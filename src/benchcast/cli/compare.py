"""`compare`: methods on held-out models, or with --runs training runs against each other."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import (
    ADDRESS,
    DEVICE,
    EXECUTOR,
    JSON,
    KEEP_ALL,
    NO_CHOICES,
    PATH,
    SPLIT,
    STUDY_FOLDER,
    TASKS,
    WithMethods,
)
from benchcast.cli.compare_items import ItemOptions, ItemOutput, show_items
from benchcast.cli.importing import read_metrics
from benchcast.cli.output import (
    ends,
    print_json,
    print_table,
    say,
    say_wrapped,
    tell_below_chance,
    tell_support,
    tell_what_is_lacking,
    warn,
    workers,
)
from benchcast.cli.progress import progress
from benchcast.messages import counted, number
from benchcast.methods import CAPABILITY_METHOD, METHODS

if TYPE_CHECKING:
    from benchcast.choices import ExecutorName, Split
    from benchcast.decisions.compare_runs import RunComparison, RunRanking
    from benchcast.decisions.compare_scores import ScoreComparison, ScoreDifference
    from benchcast.evaluation.comparison import Comparison
    from benchcast.methods import MethodName
    from benchcast.study.study import Study

MOST = 1e6  # more items, checkpoints or seeds are no advice
SURE_TEXT = "95%"  # see `decisions.compare_scores.SURE`

DETAILS = {  # measures of one method: heading and format
    "mae": ("mean abs error", ".4f"),
    "r2": ("R²", ".3f"),
    "spearman": ("Spearman", ".3f"),
    "pairs": ("pairs in order", ".3f"),
    "coverage": (f"{level_text()} interval covers", ".2f"),
    "width": ("its width", ".3f"),
}


@click.command(cls=WithMethods)
@click.argument("places", nargs=-1, type=STUDY_FOLDER, metavar="STUDY | --items LOGS LOGS…")
@TASKS
@SPLIT
@click.option("--method", "methods", multiple=True, help="Only this method; may be given again.")
@click.option("--all-methods", is_flag=True, help="Every method. Default: those marked with * below.")
@click.option(
    "--runs", metavar="A,B,…", help="Compare training runs instead: families, or models without their @tokens."
)
@click.option(
    "--items", is_flag=True, help="Compare models on the same items, from folders of lm-eval or lighteval; no study."
)
@click.option("--model", "models", multiple=True, help="With --items: a model of a folder with several, or a pattern.")
@click.option("--metric", "metrics", multiple=True, metavar="TASK=METRIC", help="With --items: metric of a task.")
@click.option("--allow-different-prompts", is_flag=True, help="With --items: also where the prompts differ.")
@click.option("--figure", type=PATH, help="With --items: write a figure, .png, .svg or .html.")
@click.option("--markdown", is_flag=True, help="With --items: print Markdown, for a comment in CI.")
@KEEP_ALL
@NO_CHOICES
@DEVICE
@EXECUTOR
@ADDRESS
@click.option("--jobs", type=click.IntRange(1), help="Processes on this machine. Default: one per core.")
@click.option("--wide", is_flag=True, help="All tasks in one table, however wide.")
@JSON
def compare(
    places: tuple[Path, ...],
    tasks: tuple[str, ...],
    split: Split,
    methods: tuple[MethodName, ...],
    all_methods: bool,
    runs: str | None,
    items: bool,
    models: tuple[str, ...],
    metrics: tuple[str, ...],
    allow_different_prompts: bool,
    figure: Path | None,
    markdown: bool,
    keep_all: bool,
    no_choices: bool,
    device: str,
    executor: ExecutorName,
    address: str,
    jobs: int | None,
    wide: bool,
    as_json: bool,
) -> None:
    """Forecast held-out models with the main methods and say how well each does; or compare training runs, or models.

    \b
    benchcast compare study
    benchcast compare study --split family --task mmlu --jobs 4
    benchcast compare study --all-methods
    benchcast compare study --runs oak-a,oak-b          by forecast at equal compute, and by their scores
    benchcast compare --items logs/base logs/new        on the same items, from evaluation logs
    benchcast compare study --split family --executor ray
    """
    from benchcast.study.study import Study

    of_study = (
        split != "auto"
        or methods
        or all_methods
        or runs is not None
        or keep_all
        or no_choices
        or device
        or executor != "local"
        or jobs
    )
    if items:
        if of_study:
            raise click.UsageError("--items goes with --task, --metric, --model, --figure, --json and --markdown")
        if as_json and markdown:
            raise click.UsageError("--json and --markdown: give one of them")
        shown = ItemOutput(as_json=as_json, markdown=markdown, figure=figure, wide=wide)
        options = ItemOptions(tasks=tasks, models=models, metrics=read_metrics(metrics))
        show_items(places, options, shown, allow_different_prompts=allow_different_prompts)
        return
    for_items = models or metrics or allow_different_prompts or figure is not None or markdown
    study = _only_study(places, for_items=bool(for_items))
    if jobs is not None and (runs is not None or device or executor != "local"):
        raise click.UsageError("--jobs does not go with --runs, --device or --executor ray")
    if all_methods and (methods or runs is not None):
        raise click.UsageError("--all-methods does not go with --method or --runs")
    if runs is not None:
        if split != "auto" or len(methods) > 1 or executor != "local":
            raise click.UsageError("--runs goes with one --method at most, no --split and no --executor ray")
        opened = Study.open(study, keep_all=keep_all, read_choices=not no_choices)
        show_runs(opened, runs, tasks, methods[0] if methods else CAPABILITY_METHOD, device=device, as_json=as_json)
        return
    from benchcast.evaluation.compare import Execution, chosen_methods
    from benchcast.evaluation.compare import compare as run
    from benchcast.executors.local import on_this_machine

    if device and executor != "local":
        raise click.UsageError("--device is for this process; leave it out, or --executor ray")
    opened = Study.open(study, keep_all=keep_all, read_choices=not no_choices)
    here = on_this_machine(1 if device else jobs)
    names = chosen_methods("all" if all_methods else methods)
    with workers(executor, address) as cluster, progress("comparing", len(names)) as advance:
        execution = Execution(device, cluster or here, lambda m: advance(f"comparing: {m} is done"), keep_fits=False)
        comparison = run(opened, tasks, split=split, methods=names, device=execution)
    say_split(split, comparison)
    if as_json:
        print_json(comparison.as_json())
    else:
        print_comparison(comparison, wide=wide)
        _tell_what_is_lacking(comparison)
    tell_support(comparison.dataset.support)
    tell_below_chance(opened, comparison.floors())
    warn(*comparison.dataset.doubts)


def _only_study(places: tuple[Path, ...], *, for_items: bool) -> Path:
    """The study to compare on; a UsageError for none, several, or options that are for --items."""
    if for_items:
        raise click.UsageError("--model, --metric, --allow-different-prompts, --figure and --markdown go with --items")
    if len(places) != 1:
        raise click.UsageError("one STUDY is needed" if places else "Missing argument 'STUDY'.")
    return places[0]


def say_split(asked: Split, comparison: Comparison) -> None:
    """Say why families are held out if "auto" chose them."""
    if asked == "auto" and comparison.split == "family":
        from benchcast.splits import WHY_FAMILY

        say(f"split by family: {WHY_FAMILY}", err=True)


def print_comparison(comparison: Comparison, *, wide: bool = False) -> None:
    """Error of every method on every task, whether to take another than `fit` does, and what its intervals are worth.

    Tasks with too few held-out models to measure a method get the forecasts of these models instead.
    """
    from benchcast.evaluation.ranking import headline

    measured = comparison.on_measurable_tasks()
    tasks = list(measured.tasks)
    if tasks:
        n_test = max(len(comparison.held_out[task, comparison.used].observed) for task in tasks)
        title = f"mean squared error, split by {comparison.split}, {n_test} held-out models"
        print_table(("method", *tasks), _error_rows(comparison, tasks), title=title, wide=wide)
        say("* least error; noise floor: what the number of scored items leaves at most")
        say_wrapped(headline(measured))
        _print_gains(measured)
        say()
        _print_details(comparison, tasks, wide=wide)
    for task in comparison.tasks:
        if task not in tasks:
            _print_few(comparison, task)
    if comparison.copies:
        say_wrapped(comparison.copies_line())
    if comparison.not_compared():
        say_wrapped(f"not compared: {comparison.not_compared()}")
    for name, why in comparison.left_out.items():
        if name not in METHODS:
            say(f"left out: {name} {why}")


def _tell_what_is_lacking(comparison: Comparison) -> None:
    """Say what the smallest set of training models lacks."""
    seen = [fold.seen for fold in comparison.folds]
    tell_what_is_lacking(
        min(len(set(map(str, comparison.dataset.groups[rows]))) for rows in seen), min(int(rows.sum()) for rows in seen)
    )


def _print_gains(comparison: Comparison) -> None:
    """Gain of every method over all tasks in three ways, where there is more than one task."""
    from benchcast.evaluation.comparison import GAIN_OVER
    from benchcast.evaluation.error_ratio import gain_rows

    gains = comparison.gains()
    if len(comparison.tasks) < 2 or len(gains) < 2:
        return
    say()
    header = ("method", "geometric mean", f"{level_text()} interval", "median", "sum of errors")
    title = f"squared error of {GAIN_OVER} ÷ that of the method over all tasks; families weigh equally"
    print_table(header, gain_rows(gains), title=title)


def _error_rows(comparison: Comparison, tasks: list[str]) -> list[tuple[str, ...]]:
    """Rows of the methods that forecast at least one task, and of the noise floor."""
    errors = {(t, m): comparison.measures(t, m)["mse"] for t in tasks for m in comparison.methods}
    known = {t: [errors[t, m] for m in comparison.methods if isfinite(errors[t, m])] for t in tasks}
    rows = [
        (m, *("*" * (isfinite(errors[t, m]) and errors[t, m] == min(known[t])) + number(errors[t, m]) for t in tasks))
        for m in comparison.methods
        if any(isfinite(errors[t, m]) for t in tasks)
    ]
    return [*rows, ("noise floor", *(number(comparison.noise[t]) for t in tasks))]


def _print_details(comparison: Comparison, tasks: list[str], *, wide: bool) -> None:
    """Measures of the method that `fit` uses."""
    measured = [(task, comparison.measures(task, comparison.used)) for task in tasks]
    rows = [(task, *(number(m[k], form) for k, (_, form) in DETAILS.items())) for task, m in measured]
    print_table((comparison.used, *(name for name, _ in DETAILS.values())), rows, wide=wide)


def _print_few(comparison: Comparison, task: str) -> None:
    """Forecasts of a few held-out models, which are too few for a measure."""
    held = comparison.held_out[task, comparison.used]
    if not held.models:
        say(f"{task}: no held-out model has a score")
        return
    rows = [
        (model, number(forecast, ".3f"), ends(low, high), number(observed, ".3f"))
        for model, forecast, low, high, observed in zip(
            held.models, held.forecast, held.low, held.high, held.observed, strict=True
        )
    ]
    title = (
        f"{task}: {counted(len(rows), 'held-out model')}, too few to measure methods; forecasts by {comparison.used}"
    )
    print_table(("model", "forecast", f"{level_text()} interval", "score"), rows, title=title)


def show_runs(
    study: Study, runs: str, tasks: tuple[str, ...], method: MethodName, *, device: str, as_json: bool
) -> None:
    """Compare the named runs and print the result: their forecasts, and their scores where they have some."""
    from benchcast.decisions.compare_runs import compare_runs
    from benchcast.decisions.compare_scores import compare_scores
    from benchcast.errors import NotEnoughDataError

    names = [name.strip() for name in runs.split(",") if name.strip()]
    try:
        scores = compare_scores(study, names, tasks=tasks)
    except NotEnoughDataError:
        scores = None  # forecasts need no scores of these runs
    try:
        with progress("reading the study") as advance:
            comparison = compare_runs(study, names, tasks=tasks, method=method, device=device, tell=advance)
    except NotEnoughDataError as error:
        if scores is None:
            raise
        comparison = None
        say(f"no forecasts: {error}", err=True)
    if as_json:
        print_json(
            (comparison.to_dict() if comparison else {"runs": names}) | {"scores": scores.to_dict() if scores else None}
        )
        return
    if comparison is not None:
        _print_runs(comparison)
    if scores is not None:
        print_scores(scores)


def print_scores(comparison: ScoreComparison) -> None:
    """Print the differences of observed scores, their noise, and what would settle them."""
    first = comparison.differences[0]
    compared = "; ".join(", ".join(models) for models in comparison.models.values())
    say(f"\nscores of {compared}; noise is the standard deviation of the difference")
    rows = [
        (
            d.task,
            *([f"{d.first}, {d.second}"] if len(comparison.models) > 2 else []),
            *(number(x, ".3f") for x in (d.first_score, d.second_score, d.items, d.checkpoints, d.seeds)),
            _percent(d.higher),
            _settling(d),
        )
        for d in comparison.differences
    ]
    pair = len(comparison.models) > 2
    names = ("runs", "first", "second") if pair else (first.first, first.second)
    above = "second higher" if pair else f"{first.second} higher"
    header = ("task", *names, "items", "checkpoints", "seeds", above, f"to be {SURE_TEXT} sure")
    print_table(header, rows, left=(0, 1, len(header) - 1) if pair else (0, len(header) - 1))
    for note in comparison.notes:
        say(note)


def _settling(d: ScoreDifference) -> str:
    """What would settle a difference, in words."""
    if d.settled:
        return "already settled"
    needed = {"items": d.items_needed, "checkpoints": d.checkpoints_needed, "seeds": d.seeds_needed}
    possible = [f"{count:,.0f} {what}" for what, count in needed.items() if count < MOST]
    return " or ".join(possible) or "–"


def _print_runs(comparison: RunComparison) -> None:
    first = comparison.rankings[0]
    rows = []
    for t, task in enumerate(comparison.tasks):
        order = [comparison.runs[i] for i in first.order[t]]
        cells = [number(x, ".3f") for x in first.forecast[t]]
        rows.append((task, *cells, " > ".join(order), _percent(first.likely[t]), _scores_agree(first, t)))
    say(f"forecasts at {first.params:.3g} params and {first.flops:.3g} FLOPs; scores of these runs are not used\n")
    header = ("task", *comparison.runs, "order", "likely", "by their scores")
    print_table(header, rows, left=(0, header.index("order")))
    if len(comparison.rankings) > 1:
        say()
        others = []
        for ranking in comparison.rankings:
            order = [comparison.runs[i] for i in ranking.order[-1]]
            size, flops = f"{ranking.params:.3g}", f"{ranking.flops:.3g}"
            others.append((size, flops, " > ".join(order), _percent(ranking.likely[-1]), _scores_agree(ranking, -1)))
        header = ("params", "FLOPs", "order by the mean of tasks", "likely", "by their scores")
        print_table(header, others, title="at every size that they share", left=(2,))
    if not (first.likely == first.likely).all():
        say("too few other families to estimate the probability of an order")


def _percent(value: float) -> str:
    return number(value, ".0%")


def _scores_agree(ranking: RunRanking, t: int) -> str:
    """Whether the observed scores have the same order."""
    observed = ranking.observed[t]
    if not (observed == observed).all():
        return "–"
    return "agrees" if [*(-observed).argsort(kind="stable")] == [*ranking.order[t]] else "disagrees"
