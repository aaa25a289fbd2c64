"""`import`: losses, scores, models and features made elsewhere; `remove` and `rename` a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import LOSS_UNITS, SCORE_UNITS
from benchcast.cli.arguments import FILE, FILES, FORCE, RENAME, STUDY, Sections
from benchcast.cli.output import say, warn
from benchcast.cli.progress import progress
from benchcast.messages import counted, few

if TYPE_CHECKING:
    from benchcast.choices import LossUnit
    from benchcast.importers.scores import ImportedScores
    from benchcast.study.editing import Edited


@click.group("import", cls=Sections)
def import_group() -> None:
    """Bring in losses, scores, models or features made elsewhere.

    \b
    benchcast import losses study losses/*.jsonl
    benchcast import scores study scores.csv
    """


@import_group.command("losses")
@STUDY
@FILES
@click.option("--family", default="", help="Family of these models.")
@click.option("--unit", type=click.Choice(LOSS_UNITS), help="What a wide CSV holds.")
@RENAME
@click.option("--allow-implausible", is_flag=True, help="Store losses that no softmax can give.")
@FORCE
def losses(
    study: Path,
    files: tuple[Path, ...],
    family: str,
    unit: LossUnit | None,
    renames: tuple[str, ...],
    allow_implausible: bool,
    force: bool,
) -> None:
    """Token losses in nats: JSONL or Parquet, one file per model, or a wide CSV of models × texts.

    In a study from logs of lm-evaluation-harness, also folders with such logs.

    \b
    One row of JSONL: the text's id, token bounds in UTF-8 bytes, the loss of each token (null: none):
    {"text_id": "mmlu-1", "bounds": [0, 3, 7, 12], "nats": [null, 4.21, 0.35]}

    \b
    benchcast import losses study runs/*.jsonl --family ash
    benchcast import losses study bits.csv --unit bits-per-byte
    benchcast import losses study results/my-model
    benchcast import losses study results --rename 'run-a@*=warmup@*'
    """
    from benchcast.importers import import_losses
    from benchcast.importers.scores.names import read_renames

    with progress("reading") as advance:
        result = import_losses(
            study,
            files,
            family=family,
            unit=unit,
            allow_implausible=allow_implausible,
            force=force,
            renames=read_renames(renames),
            on_file=lambda file: advance(f"reading {file.name}"),
        )
    say(f"{study}: {counted(result.added, 'model')} added, {len(result.models) - result.added} were there already")
    if result.completed:
        say(f"{counted(result.completed, 'model')} of these got choice losses, which the study lacked")
    warn(*result.warnings)


@import_group.command("scores")
@STUDY
@FILES
@click.option("--metric", "metrics", multiple=True, metavar="TASK=METRIC", help="Take this metric for a task.")
@click.option(
    "--unit",
    type=click.Choice(SCORE_UNITS),
    help="What a table holds, where its kind does not say or says otherwise.",
)
@click.option(
    "--scores", "columns", multiple=True, metavar="PATTERN", help="Columns of a W&B export, such as 'eval/*/acc'."
)
@RENAME
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
    columns: tuple[str, ...],
    renames: tuple[str, ...],
    add_tasks: tuple[str, ...],
    allow_mixed: bool,
    allow_limit: bool,
    force: bool,
) -> None:
    """Observed scores: results of lm-evaluation-harness, OpenCompass, leaderboards, exports of W&B, or CSV.

    \b
    benchcast import scores study results/                            folders of lm-evaluation-harness
    benchcast import scores study summary_20240101_120000.csv         OpenCompass
    benchcast import scores study scores.csv                          model,task,accuracy
    benchcast import scores study table.csv --unit percent            models × tasks
    benchcast import scores study wandb.csv --scores 'eval/*/acc'     W&B, MLflow, TensorBoard
    benchcast import scores study results/ --metric gsm8k=exact_match,flexible-extract
    """
    from benchcast.importers import import_scores
    from benchcast.importers.scores import ImportOptions
    from benchcast.importers.scores.names import read_renames

    options = ImportOptions(
        metrics=read_metrics(metrics),
        renames=read_renames(renames),
        unit=unit,
        columns=columns,
        add_tasks=add_tasks,
        allow_mixed=allow_mixed,
        allow_limit=allow_limit,
        force=force,
    )
    with progress("reading"):
        imported = import_scores(study, files, options)
    _print_scores(study, imported)


def _print_scores(study: Path, imported: ImportedScores) -> None:
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
    warn(*imported.warnings)


def read_metrics(given: tuple[str, ...]) -> dict[str, str]:
    """Task → metric from options TASK=METRIC."""
    from benchcast.errors import InputError

    parts = [text.partition("=") for text in given]
    for task, _, metric in parts:
        if not task or not metric:
            raise InputError(f"--metric {task!r}: needs a task and its metric, such as gsm8k=exact_match,strict-match")
    return {task: metric for task, _, metric in parts}


@import_group.command("models")
@STUDY
@FILE
@RENAME
def models(study: Path, file: Path, renames: tuple[str, ...]) -> None:
    """What is known of the models: CSV with model and optionally family, params, tokens, flops, split and others.

    \b
    benchcast import models study models.csv
    """
    from benchcast.importers import import_models
    from benchcast.importers.scores.names import read_renames
    from benchcast.study.model_names import unused_renames
    from benchcast.study.tables import read_models

    new_names = read_renames(renames)
    described = import_models(study, file, renames=new_names)
    say(f"{study}: {counted(described, 'model')} described")
    if new_names:
        warn(*unused_renames(new_names, (m.model for m in read_models(file))))


@import_group.command("features")
@STUDY
@FILE
@click.option("--name", default="", help="The scorer's name; by default the file's stem.")
def features(study: Path, file: Path, name: str) -> None:
    """Hidden states of a scorer: npz with features, bounds and counts, texts in the study's order.

    \b
    benchcast import features study smollm2.npz
    """
    from benchcast.importers import import_features
    from benchcast.study.study import Study

    tokens, dimensions = import_features(study, file, name=name)
    say(f"{study}: features of {name or file.stem}, {tokens} tokens × {dimensions}")
    opened = Study.open(study)
    if len(opened.scorers()) > 1 and not opened.scorer:
        say(f"next: say in study.toml which features to use: scorer = {opened.scorers()[0]!r}")


@click.command()
@STUDY
@click.option(
    "--model", "patterns", multiple=True, required=True, help="A model, or a pattern such as 'ash-*'; may be repeated."
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def remove(study: Path, patterns: tuple[str, ...], dry_run: bool) -> None:
    """Remove models from a study: their losses, metadata, scores and outcomes.

    \b
    benchcast remove study --model my-7b
    benchcast remove study --model 'ash-*' --dry-run
    """
    from benchcast.study.editing import remove_models
    from benchcast.study.study import Study

    edited = remove_models(Study.open(study), patterns, dry_run=dry_run)
    removed = f"{counted(len(edited.models), 'model')} ({few(edited.models, 5)})"
    say(f"{study}: {'would remove' if dry_run else 'removed'} {removed}")
    say(_parts(edited))
    _name_fits(study, edited)


@click.command()
@STUDY
@click.argument("old")
@click.argument("new")
def rename(study: Path, old: str, new: str) -> None:
    """Give a model of a study another name, with its losses, metadata, scores and outcomes.

    \b
    benchcast rename study my-7b my-7b-v2
    """
    from benchcast.study.editing import rename_model
    from benchcast.study.study import Study

    edited = rename_model(Study.open(study), old, new)
    say(f"{study}: {old} is now {edited.models[0]}")
    say(_parts(edited))
    _name_fits(study, edited)


def _parts(edited: Edited) -> str:
    rows = f"{counted(edited.rows, 'row')} of models.csv"
    parts = [counted(edited.losses, "losses file"), rows, counted(edited.scores, "score")]
    return ", ".join([*parts, counted(edited.outcomes, "outcomes file")] if edited.outcomes else parts)


def _name_fits(study: Path, edited: Edited) -> None:
    if edited.fits:
        say(f"fits that learned from {'it' if len(edited.models) == 1 else 'them'}: {', '.join(edited.fits)}")
        say(f"next: benchcast fit {study}")
