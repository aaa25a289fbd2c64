"""`select`: keep the texts that forecasts depend on most; `contamination`: check whether a model has seen the texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import JSON, PATH, STUDY, STUDY_FOLDER, TASKS
from benchcast.cli.output import check_figure, print_json, print_table, say
from benchcast.cli.progress import progress
from benchcast.errors import InputError
from benchcast.messages import number

if TYPE_CHECKING:
    from benchcast.importers.contamination import ContaminationCheck


@click.command()
@STUDY
@click.option("--budget", type=click.IntRange(1), default=50, show_default=True, help="Number of texts to keep.")
@TASKS
@click.option(
    "--check/--no-check", default=True, help="Measure what fewer texts cost on held-out models. Default: yes."
)
@click.option("-o", "out", type=STUDY_FOLDER, help="A .jsonl file for the texts, or a folder for a smaller study.")
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
    from benchcast.evaluation.select import select

    check_figure("--figure", figure)
    if figure is not None and not check:
        raise InputError("--figure shows the cost that --check measures; leave out --no-check")
    with progress("fitting all texts") as advance:
        choice = select(study, budget, tasks=tasks, out=out, check=check, on_step=advance)
    if figure is not None and choice.cost is not None:
        from benchcast.reports.drawing import save_figure

        save_figure(choice, figure)
    result = {"budget": budget, **choice.to_dict()}
    if as_json:
        print_json(result)
    else:
        _print(result, "" if out is None else _written(out))


def _written(out: Path) -> str:
    if out.suffix == ".jsonl":
        return f"written: {out}\nnext: benchcast init STUDY --texts {out}"
    return (
        f"written: {out}, a study with fits\nnext: benchcast collect {out} …, then benchcast predict {out} --model NAME"
    )


def _print(result: dict[str, Any], written: str) -> None:
    from benchcast.evaluation.selection_cost import WAYS

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


@click.command()
@STUDY
@click.argument("folder", type=STUDY_FOLDER)
@click.option(
    "--count", type=click.IntRange(min=1), default=50, show_default=True, help="Number of texts that get a variant."
)
@click.option("--paraphrases", type=PATH, help="JSONL of paraphrased texts, each with the id of its original.")
@JSON
def contamination(study: Path, folder: Path, count: int, paraphrases: Path | None, as_json: bool) -> None:
    """Compare the losses on texts with those on variants whose options are in another order.

    The first call writes a small study of texts and variants. Collect or import the models' losses on it, then run the
    command again.

    \b
    benchcast contamination study study-variants
    benchcast contamination study study-variants    once it has losses
    """
    from benchcast.importers.contamination import check_contamination, create_contamination_study

    if not (folder / "study.toml").exists():
        pairs = create_contamination_study(study, folder, count=count, paraphrases=paraphrases).texts
        say(f"{folder}: {len(pairs) // 2} texts with their variants")
        say(f"next: benchcast collect {folder} …, then this command again")
        return
    checks = check_contamination(folder)
    if checks:
        _show(checks, as_json)
    else:
        say(f"{folder}: no losses yet; next: benchcast collect {folder} …, then this command again")


def _show(checks: list[ContaminationCheck], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json([asdict(c) for c in checks])
        return
    print_table(
        ("model", "pairs", "variant − text, nats", "± stderr", "text easier in", "p"),
        [
            (c.model, str(c.pairs), f"{c.nats:+.3f}", f"{c.stderr:.3f}", f"{c.easier:.0%}", f"{c.p_value:.4f}")
            for c in checks
        ],
    )
    say("a small p means that the model has learned the original order: it has probably seen these texts")
