"""`contamination`: check whether a model has seen the study's texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import JSON, PATH, STUDY
from benchcast.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from benchcast.texts.contamination import ContaminationCheck


@click.command()
@STUDY
@click.argument("folder", type=PATH)
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
    from benchcast.texts.contamination import check_contamination, create_contamination_study

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
