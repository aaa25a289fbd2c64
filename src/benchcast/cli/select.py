"""`select`: keep the texts that forecasts depend on most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import STUDY
from benchcast.cli.forecast import JSON, TASKS
from benchcast.cli.output import number, print_json, print_table, progress, say

if TYPE_CHECKING:
    from benchcast.selection.smaller import TextSelection


@click.command()
@STUDY
@click.option("--budget", type=click.IntRange(1), default=50, show_default=True, help="Number of texts to keep.")
@TASKS
@click.option(
    "--check/--no-check", default=True, help="Measure what fewer texts cost on held-out models. Default: yes."
)
@click.option(
    "-o", "out", type=click.Path(path_type=Path), help="A .jsonl file for the texts, or a folder for a smaller study."
)
@click.option("--figure", type=click.Path(path_type=Path), help="Error against number of texts: .png, .svg or .html.")
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
    from benchcast.errors import InputError
    from benchcast.selection.smaller import choose, is_written
    from benchcast.store import Study

    _check_paths(out, figure, check=check)
    opened = Study.open(study)
    with progress("fitting all texts") as advance:
        choice = choose(opened, budget, tasks)
        if out is not None and not is_written(choice, out) and out.exists():
            raise InputError(f"{out}: exists with other content; give a new name")
        costs = _measure(choice, budget, advance) if check else {}
    result = {
        "budget": budget,
        "texts": len(opened.texts),
        "chosen": choice.ids,
        "sources": choice.by_source(),
        "no_say": choice.silent,
        **costs,
    }
    if figure is not None and costs:
        _draw(costs, figure)
    written = _write(choice, out) if out is not None else ""
    if as_json:
        print_json(result)
    else:
        _print(result, written)


def _check_paths(out: Path | None, figure: Path | None, *, check: bool) -> None:
    """Raise an error for unusable paths before any work is done."""
    from benchcast.errors import InputError
    from benchcast.extras import require_report

    if figure is not None and figure.suffix not in (".png", ".svg", ".html"):
        raise InputError(f"--figure {figure}: the name must end in .png, .svg or .html")
    if figure is not None:
        require_report()
    if figure is not None and not check:
        raise InputError("--figure shows the cost that --check measures; leave out --no-check")
    if out is not None and out.suffix in (".json", ".csv", ".txt", ".parquet"):
        raise InputError(f"-o {out}: texts are written as .jsonl; a name without an ending makes a smaller study")
    if out is not None and out.exists() and not (out.is_file() or (out / "study.toml").is_file()):
        raise InputError(f"{out}: exists; give a new name")


def _measure(choice: TextSelection, budget: int, advance: Any) -> dict[str, Any]:
    """Cost of half the budget, the budget and twice the budget, on families left out in turn, else by size."""
    from benchcast.errors import NotEnoughDataError
    from benchcast.folds import make_folds
    from benchcast.formatting import plain
    from benchcast.selection.budgets import CHOSEN, cost, costs, prepare

    dataset, infos = choice.full_fits.dataset, choice.study.infos(choice.full_fits.dataset.models)
    name, folds = make_folds(infos, "family" if len(set(dataset.families)) > 2 else None)
    if not all(fold.test.any() for fold in folds):
        return {"split": None, "remark": "cost not measured: no model can be held out", "costs": []}
    advance("fitting without each set of held-out models")
    try:
        full_fits = prepare(dataset, folds)
    except NotEnoughDataError as error:
        return {"split": None, "remark": f"cost not measured: {error}", "costs": []}
    full = cost(full_fits, CHOSEN, full_fits.texts)
    rows = []
    for texts in sorted({max(1, budget // 2), budget, 2 * budget}):
        if texts < full_fits.texts:
            advance(f"{texts} texts")
            rows += costs(full_fits, texts, full, name)
    return dict(plain({"split": name, "full": full.mse, "costs": rows}))


def _draw(costs: dict[str, Any], path: Path) -> None:
    from benchcast.evaluate import geometric_mean
    from benchcast.plots import budget_figure, write_chart
    from benchcast.selection.budgets import WAYS

    rows = [r for r in costs["costs"] if r["mse"]]
    full = [{"split": costs["split"], "mse": geometric_mean([*costs["full"].values()])}] if rows else []
    write_chart(budget_figure(rows, full, WAYS), path)


def _write(choice: TextSelection, out: Path) -> str:
    """Write the texts as JSONL or as a smaller study, if not written already; returns the lines to print."""
    from benchcast.selection.smaller import is_written, write_smaller, write_texts

    if out.suffix == ".jsonl":
        write_texts(choice, out)
        return f"written: {out}\nnext: benchcast init STUDY --texts {out}"
    if not is_written(choice, out):
        write_smaller(choice, out)
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
