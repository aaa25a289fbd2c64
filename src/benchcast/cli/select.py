"""`select`: keep the texts that forecasts depend on most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import JSON, PATH, STUDY, TASKS
from benchcast.cli.output import check_figure, number, print_json, print_table, progress, say
from benchcast.errors import InputError


@click.command()
@STUDY
@click.option("--budget", type=click.IntRange(1), default=50, show_default=True, help="Number of texts to keep.")
@TASKS
@click.option(
    "--check/--no-check", default=True, help="Measure what fewer texts cost on held-out models. Default: yes."
)
@click.option("-o", "out", type=PATH, help="A .jsonl file for the texts, or a folder for a smaller study.")
@click.option("--figure", type=PATH, help="Error against number of texts: .png, .svg or .html.")
@JSON
def select(
    study: Path,
    budget: int,
    tasks: tuple[str, ...],
    check: bool,
    out: Path | None,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Select the texts that forecasts depend on most, and measure the cost of using fewer texts.

    A new model then needs losses on those texts only: -o FOLDER writes a study of them with fits that predict.

    \b
    benchcast select study --budget 50 -o small
    benchcast select study --budget 20 --task mmlu -o texts.jsonl --figure budget.png
    """
    from benchcast.selection.smaller import select

    check_figure("--figure", figure)
    if figure is not None and not check:
        raise InputError("--figure shows the cost that --check measures; leave out --no-check")
    with progress("fitting all texts") as advance:
        choice = select(study, budget, tasks=tasks, out=out, check=check, on_step=advance)
    if figure is not None and choice.cost is not None:
        from benchcast.plots import save_figure

        save_figure(choice, figure)
    result = {"budget": budget, **choice.to_dict()}
    if as_json:
        print_json(result)
    else:
        _print(result, "" if out is None else _written(out))


def _written(out: Path) -> str:
    """The lines to print after the texts were written."""
    if out.suffix == ".jsonl":
        return f"written: {out}\nnext: benchcast init STUDY --texts {out}"
    return (
        f"written: {out}, a study with fits\nnext: benchcast collect {out} …, then benchcast predict {out} --model NAME"
    )


def _print(result: dict[str, Any], written: str) -> None:
    from benchcast.selection.budgets import WAYS

    rows = []
    for texts in dict.fromkeys(r["texts"] for r in result.get("costs", [])):
        same_budget = [r for r in result["costs"] if r["texts"] == texts]
        ratios = [[r["ratio"] for r in same_budget if r["way"] == way] for way in WAYS]
        cells = [number(sum(v) / len(v) if None not in v else float("nan"), ".2f") for v in ratios]
        rows.append((f"{texts} texts", *cells, number(same_budget[0]["coverage"] or float("nan"), ".2f")))
    if rows:
        title = (
            f"error ÷ error with all {result['texts']} texts, split by {result['split']} (geometric mean over tasks)"
        )
        print_table(("", *WAYS, f"{level_text()} interval covers"), rows, title=title)
    if result.get("remark"):
        say(result["remark"])
    if result["no_say"]:
        say(f"not used: {', '.join(result['no_say'])}, whose forecasts do not depend on losses (all scores at chance?)")
    sources = ", ".join(f"{n} of {s}" for s, n in result["sources"].items())
    say(f"\nchosen: {len(result['chosen'])} of {result['texts']} texts ({sources})")
    say(" ".join(result["chosen"]))
    if written:
        say(written)
