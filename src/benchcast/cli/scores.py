"""`import scores`: score files of any harness into a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import SCORE_UNITS
from benchcast.cli.arguments import FILES, FORCE, PATH, STUDY
from benchcast.cli.output import say
from benchcast.formatting import counted, few

if TYPE_CHECKING:
    from benchcast.scores.gather import ImportedScores


@click.command("scores")
@STUDY
@FILES
@click.option("--metric", "metrics", multiple=True, metavar="TASK=METRIC", help="Take this metric for a task.")
@click.option(
    "--unit",
    type=click.Choice(SCORE_UNITS),
    help="What a table holds, where its kind does not say or says otherwise.",
)
@click.option("--rename", type=PATH, help="CSV from,to: names in the files, names in the study.")
@click.option(
    "--add-tasks", multiple=True, metavar="PATTERN", help="Add tasks of these names to the study, such as 'mmlu_*'."
)
@click.option("--allow-mixed", is_flag=True, help="Take scores of different harnesses, versions or shots for one task.")
@click.option("--allow-limit", is_flag=True, help="Take results of a run with --limit.")
@FORCE
def scores(
    study: Path,
    files: tuple[Path, ...],
    metrics: tuple[str, ...],
    unit: str | None,
    rename: Path | None,
    add_tasks: tuple[str, ...],
    allow_mixed: bool,
    allow_limit: bool,
    force: bool,
) -> None:
    """Observed scores: results of lm-evaluation-harness, OpenCompass, leaderboards, or CSV.

    \b
    benchcast import scores study results/                            folders of lm-evaluation-harness
    benchcast import scores study summary_20240101_120000.csv         OpenCompass
    benchcast import scores study scores.csv                          model,task,accuracy
    benchcast import scores study table.csv --unit percent            models × tasks
    benchcast import scores study results/ --metric gsm8k=exact_match,flexible-extract
    """
    from benchcast.importing import import_scores
    from benchcast.scores.gather import ImportOptions
    from benchcast.scores.names import read_renames

    options = ImportOptions(
        metrics=read_metrics(metrics),
        renames=read_renames(rename) if rename else {},
        unit=unit,
        add_tasks=add_tasks,
        allow_mixed=allow_mixed,
        allow_limit=allow_limit,
        force=force,
    )
    _tell(study, import_scores(study, files, options))


def read_metrics(given: tuple[str, ...]) -> dict[str, str]:
    """Task → metric from options TASK=METRIC."""
    from benchcast.errors import InputError

    parts = [text.partition("=") for text in given]
    for task, _, metric in parts:
        if not task or not metric:
            raise InputError(f"--metric {task!r}: needs a task and its metric, such as gsm8k=exact_match,strict-match")
    return {task: metric for task, _, metric in parts}


def _tell(study: Path, imported: ImportedScores) -> None:
    say(
        f"{study}: {counted(imported.added, 'score')} added, {len(imported.scores) - imported.added} were there already"
    )
    say("read: " + ", ".join(f"{kind} × {n}" for kind, n in imported.kinds.items()))
    if imported.metrics:
        say("metrics: " + ", ".join(f"{task} {metric}" for task, metric in imported.metrics.items()))
    if imported.new_tasks:
        say("new tasks: " + ", ".join(f"{t.name} (chance {t.chance:g})" for t in imported.new_tasks))
    if imported.left_out:
        say(f"not in study.toml, left out: {few(imported.left_out, 5)}")
    for name, called in imported.renamed.items():
        say(f"{name} is {called}")
    for name, similar in imported.unmatched.items():
        like = f"; near: {', '.join(similar)}" if similar else ""
        say(f"the study has no model {name!r} yet{like} (map names with --rename)")
    if imported.without_losses:
        say(
            f"note: no losses yet for {len(imported.without_losses)} of these models: {few(imported.without_losses, 5)}"
        )
