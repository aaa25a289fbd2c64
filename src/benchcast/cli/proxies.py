"""`proxies`: which metric to watch for each task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import JSON, STUDY, TASKS
from benchcast.cli.output import print_json, print_table, say, say_wrapped
from benchcast.cli.progress import progress
from benchcast.messages import number

if TYPE_CHECKING:
    from benchcast.decisions.proxies import Proxies


@click.command()
@STUDY
@TASKS
@click.option("--no-forecast", is_flag=True, help="Leave out the forecast of stack, which takes longest.")
@click.option("--wide", is_flag=True, help="Tables of any width.")
@JSON
def proxies(study: Path, tasks: tuple[str, ...], no_forecast: bool, wide: bool, as_json: bool) -> None:
    """Say which metric to watch for each task while models are small: score, losses or forecast.

    Runs are the families of models.csv; stages are sizes that several runs share, else lengths of training.

    \b
    benchcast proxies study
    benchcast proxies study --task mmlu --no-forecast --json
    """
    from benchcast.decisions.proxies import proxies as run

    with progress("reading the study") as advance:
        found = run(study, tasks=tasks, forecast=not no_forecast, tell=advance)
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found, wide=wide)


def _print(found: Proxies, *, wide: bool) -> None:
    from benchcast.decisions.proxies import PER_PARAMETER

    by_length = all(row.stage.endswith(PER_PARAMETER) for row in found.rows)
    header = (
        PER_PARAMETER if by_length else found.by,
        "metric",
        "runs",
        "noise",
        "signal",
        "ratio",
        "right decisions",
        "error, points",
    )
    for task in found.advice:
        rows = []
        for row in (r for r in found.rows if r.task == task):
            numbers = (number(row.noise, ".4f"), number(row.signal, ".4f"), number(row.ratio, ".1f"))
            right = f"{row.decisions:.0%} of {row.pairs}" if row.pairs else "–"
            right += f" at {row.later}" if row.pairs and row.later != row.stage else ""
            stage = row.stage.removesuffix(PER_PARAMETER).strip()
            rows.append((stage, row.metric, str(row.runs), *numbers, right, number(100 * row.error, ".1f")))
        print_table(header, rows, title=task, left=(0, 1), wide=wide)
        say()
    for task, advice in found.advice.items():
        say_wrapped(f"{task}: {advice}")
    for note in found.notes:
        say_wrapped(f"note: {note}")
