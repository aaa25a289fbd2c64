"""`gate`: will a model reach the scores that it needs?"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import JSON, STUDY
from benchcast.cli.output import ends, print_json, print_table, say, say_wrapped
from benchcast.cli.predict import warn_if_stale
from benchcast.cli.progress import progress
from benchcast.messages import number, printable

if TYPE_CHECKING:
    from benchcast.decisions.gate import Gate

EXIT = {"reached": 0, "missed": 3, "open": 4}  # 1 and 2 are a user's mistakes


@click.command()
@STUDY
@click.option("--model", required=True, help="A model of the study that has losses.")
@click.option(
    "--need", "needs", multiple=True, required=True, metavar="TASK=SCORE", help="A score to reach; may be given again."
)
@click.option(
    "--at", metavar="FLOPS", help="Ask for its run at this training compute, such as 3e22. Default: as it is."
)
@click.option(
    "--sure",
    type=click.FloatRange(min=0.5, max=1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Probability at which a need counts as reached, and 1 minus it as missed.",
)
@JSON
@click.option("--markdown", is_flag=True, help="Print Markdown, for a comment in CI.")
def gate(
    study: Path, model: str, needs: tuple[str, ...], at: str | None, sure: float, as_json: bool, markdown: bool
) -> None:
    """Say how probable it is that a model reaches the scores that it needs, and exit accordingly.

    The exit code is 0 if each need is reached with the probability of --sure, 3 if one is missed with it, else 4
    (open); 1 is a mistake in the command. An observed score is shown and not used.

    \b
    benchcast gate study --model my-7b@500 --need mmlu=0.62 --need arc_easy=0.7
    benchcast gate study --model my-7b@500 --need mmlu=0.62 --at 3e22 --sure 0.8 --markdown
    """
    if as_json and markdown:
        raise click.UsageError("--json and --markdown: give one of them")
    from benchcast.decisions.gate import gate as run
    from benchcast.forecasts.fit import stored_fits
    from benchcast.forecasts.needs import check_needs, parse_needs
    from benchcast.study.study import Study
    from benchcast.study.tables import quantity

    opened, wanted = Study.open(study), parse_needs(needs)
    check_needs(wanted, opened.fitted_tasks())
    warn_if_stale(opened, stored_fits(opened, list(wanted)), f"`benchcast fit {study}` fits again")
    flops = math.nan if at is None else quantity("--at", "FLOPs", at)
    with progress("forecasting") as advance:
        found = run(opened, model, wanted, at=flops, sure=sure, tell=advance)
    if as_json:
        print_json(found.to_dict())
    elif markdown:
        say(_markdown(found))
    else:
        _print(found)
    sys.stdout.flush()
    if EXIT[found.verdict]:
        sys.exit(EXIT[found.verdict])


HEADER = ("task", "needed", "probability", "verdict", "forecast", f"{level_text()} interval", "observed")


def _rows(found: Gate) -> list[tuple[str, ...]]:
    return [
        (
            need.task,
            f"{need.needed:.3f}",
            number(need.probability, ".1%"),
            need.verdict,
            number(need.forecast, ".3f"),
            ends(need.low, need.high),
            number(need.observed, ".3f"),
        )
        for need in found.needs
    ]


def _title(found: Gate) -> str:
    where = "" if math.isnan(found.flops) else f" at {found.flops:.3g} FLOPs"
    return f"{found.model}{where}: {found.verdict}"


def _remarks(found: Gate) -> list[str]:
    lines = []
    for remark in dict.fromkeys(need.remark for need in found.needs if need.remark):
        tasks = [need.task for need in found.needs if need.remark == remark]
        lines.append(remark if len(tasks) == len(found.needs) else f"{', '.join(tasks)}: {remark}")
    lines.append(f"forecast by {', '.join(found.methods)}; observed scores are not used")
    if found.verdict == "open":
        lines.append(f"open: no need is missed, and not each is reached with a probability of {found.sure:.0%}")
    return lines


def _print(found: Gate) -> None:
    print_table(HEADER, _rows(found), title=_title(found), left=(0, HEADER.index("verdict")))
    for line in _remarks(found):
        say_wrapped(line)


def _markdown(found: Gate) -> str:
    rows = [HEADER, ("---", *["---:"] * (len(HEADER) - 1)), *_rows(found)]
    table = ["| " + " | ".join(printable(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"### {printable(_title(found))}", "", *table, "", *(f"- {line}" for line in _remarks(found))])
