"""`extrapolate`: forecast models that do not exist yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import JSON, PATH, STUDY, TASKS
from benchcast.cli.output import check_figure, print_json, print_table, say
from benchcast.cli.progress import progress
from benchcast.messages import format_interval, number
from benchcast.methods import CAPABILITY_METHOD

if TYPE_CHECKING:
    from benchcast.methods import MethodName
    from benchcast.scaling.extrapolate import Extrapolation, HiddenModel


@click.command()
@STUDY
@click.option("--family", required=True, help="Family of the new model, as in models.csv.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="params=…,tokens=…",
    help="Its parameters and training tokens, such as 7B and 2T.",
)
@TASKS
@click.option("--method", default=CAPABILITY_METHOD, show_default=True, help="Method that measures capability.")
@click.option("--plot", type=PATH, help="Write a figure: .html, .png or .svg.")
@JSON
def extrapolate(
    study: Path, family: str, target: str, tasks: tuple[str, ...], method: MethodName, plot: Path | None, as_json: bool
) -> None:
    """Forecast a larger or longer-trained model of a family, and check the procedure on hidden models.

    \b
    benchcast extrapolate study --family oak-a --to params=150M,tokens=60M
    benchcast extrapolate study --family my-llm --to params=7B,tokens=2T --task mmlu --plot forecast.html
    """
    from benchcast.scaling.extrapolate import Target
    from benchcast.scaling.extrapolate import extrapolate as run
    from benchcast.study.study import Study

    check_figure("--plot", plot)
    at = Target.parse(target)
    opened = Study.open(study)
    with progress("reading the study") as advance:
        result = run(opened, family, at, tasks=tasks, method=method, tell=advance)
    if plot is not None:
        from benchcast.reports.drawing import save_figure

        save_figure(result, plot)
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result)
        if plot is not None:
            say(f"figure: {plot}")


def _print(result: Extrapolation) -> None:
    target = result.target
    size, data = (number(float(x[0]), ".3g") for x in (target.params, target.tokens))
    ratio = float(target.flops[0] / max(x for x in result.known.flops if x == x))
    title = f"{result.family} at {size} params, {data} tokens: {target.flops[0]:.3g} FLOPs, {ratio:.3g} × its largest"
    rows = []
    for task in result.tasks:
        at = task.forecast.at_target(0)
        reach = format_interval(at["capability_low"], at["capability_high"], ".3f", around=at["capability"])
        sure = format_interval(at["low"], at["high"], ".3f")
        rows.append((task.task, number(at["accuracy"], ".3f"), sure, number(at["capability"], ".3f"), reach))
    print_table(("task", "forecast", f"{level_text()} interval", "capability", "its interval"), rows, title=title)
    for form in dict.fromkeys(task.form for task in result.tasks):
        tasks = [task.task for task in result.tasks if task.form == form]
        say(f"capability by a law of {form}" + f": {', '.join(tasks)}" * (len(tasks) < len(result.tasks)))
    for remark in result.remarks:
        say(remark)
    say()
    _print_check(result)


def _print_check(result: Extrapolation) -> None:
    kinds = list(dict.fromkeys(h.kind for h in result.hidden))
    if not kinds:
        say("check: no family has enough models to hide some")
        return
    for kind in kinds:
        rows = []
        for task in dict.fromkeys(h.task for h in result.hidden if h.kind == kind):
            all_rows = [h for h in result.hidden if (h.kind, h.task) == (kind, task)]
            family_rows = [h for h in all_rows if h.family == result.family]
            rows.append((task, *_cells(family_rows), *_cells(all_rows)))
        what = "the largest models" if kind == "largest" else "the latest checkpoints"
        n = len({h.family for h in result.hidden})
        head = ("error", "if unchanged", f"inside {level_text()}")
        header = ("task", *(f"{result.family}: {head[0]}", *head[1:]), *(f"{n} families: {head[0]}", *head[1:]))
        print_table(header, rows, title=f"check: {what} hidden and forecast; mean absolute error")
        say()


def _cells(rows: list[HiddenModel]) -> tuple[str, str, str]:
    if not rows:
        return "–", "–", "–"
    error = sum(abs(h.error) for h in rows) / len(rows)
    unchanged = sum(abs(h.unchanged - h.observed) for h in rows) / len(rows)
    return number(error, ".3f"), number(unchanged, ".3f"), f"{sum(h.inside for h in rows)} of {len(rows)}"
