"""`init` and `import`: what goes into a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import LOSS_UNITS
from benchcast.cli.arguments import FILE, FILES
from benchcast.cli.arguments import FORCE as FORCE
from benchcast.cli.arguments import STUDY as STUDY
from benchcast.cli.datasets import copy_study
from benchcast.cli.groups import Sections
from benchcast.cli.logs import init_from_logs, log_options
from benchcast.cli.output import progress, say
from benchcast.cli.scores import scores

if TYPE_CHECKING:
    from benchcast.choices import LossUnit
    from benchcast.creation import NewStudy


@click.command()
@STUDY
@click.option(
    "--texts",
    "own",
    type=click.Path(path_type=Path),
    help="JSONL with text, and optionally id, source, answer_start (in bytes); a folder of files; a Parquet file.",
)
@click.option("--column", default="text", show_default=True, help="Which column of a Parquet file holds the texts.")
@click.option("--mix", help="Benchmarks and how many examples of each, such as mmlu=100,bbh=50.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder with the benchmarks' files, one folder each. Default: the hub, through `datasets`.",
)
@click.option("--from", "public_study", metavar="NAME", help="A public study to copy; `benchcast datasets` lists them.")
@click.option("--table", type=click.Path(path_type=Path), help="CSV of losses: a column `model`, then one a loss.")
@click.option(
    "--from-lm-eval",
    "logs",
    type=click.Path(path_type=Path),
    help="Output folder of lm-evaluation-harness runs with --log_samples.",
)
@click.option(
    "--from-lighteval",
    "details",
    type=click.Path(path_type=Path),
    help="Output folder of lighteval runs with --save-details.",
)
@click.option(
    "--items",
    type=click.FloatRange(min=0, min_open=True, max=1),
    help="Share of the logged items to learn from, such as 0.5; scores are then of the others. Default: all.",
)
@click.option(
    "--metric", "metrics", multiple=True, metavar="TASK=METRIC", help="Which metric of the logs is the score."
)
@click.option("--allow-limit", is_flag=True, help="Accept logs of runs with --limit.")
@click.option("--preset", default="", help="Tasks with chance and metric: core, olmes or open-llm-leaderboard.")
@click.option(
    "--unit",
    "units",
    multiple=True,
    metavar="[PATTERN=]UNIT",
    help="What the table holds, nats or bits-per-byte; may be given again for columns that match a pattern.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random in the study."
)
@click.option("--normalize", type=click.Choice(["nfc"]), help="Write the texts in this Unicode normal form.")
def init(
    study: Path,
    own: Path | None,
    column: str,
    mix: str | None,
    data: Path | None,
    public_study: str | None,
    table: Path | None,
    logs: Path | None,
    details: Path | None,
    items: float | None,
    metrics: tuple[str, ...],
    allow_limit: bool,
    preset: str,
    units: tuple[str, ...],
    seed: int,
    normalize: str | None,
) -> None:
    """Start a study from texts (your own, or a mixture of benchmarks), a table of losses, logs or a public study.

    In a table a column is one text, one item, or the mean over an evaluation set. Values are used as they are.

    \b
    benchcast init study --texts texts.jsonl
    benchcast init study --mix mmlu=100,bbh=100,gsm8k=100,hellaswag=100,cmmlu=100,bbh-cot=50 --data benchmarks
    benchcast init study --table losses.csv --unit nats --unit 'bpb.*=bits-per-byte'
    benchcast init study --from-lm-eval results --items 0.5
    benchcast init study --from olmo-ladder
    """
    from benchcast.errors import InputError

    if sum(x is not None for x in (own, mix, table, logs, details, public_study)) != 1:
        raise InputError(
            "init: give one of --texts FILE, --mix BENCHMARK=COUNT,…, --table FILE.csv, --from-lm-eval DIR, "
            "--from-lighteval DIR and --from NAME"
        )
    if units and table is None:
        raise InputError("init: --unit is for --table FILE.csv")
    logs = logs or details  # which of the two wrote a file is seen from its content
    if logs is None and (items is not None or metrics or allow_limit):
        raise InputError("init: --items, --metric and --allow-limit are for --from-lm-eval and --from-lighteval")
    if preset and own is None and logs is None and table is None:
        raise InputError("init: --preset is for --texts, --table, --from-lm-eval and --from-lighteval")
    if logs is not None:
        options = log_options(metrics, allow_limit=allow_limit)
        init_from_logs(study, logs, 1.0 if items is None else items, options, seed=seed, preset=preset)
    elif public_study is not None:
        copy_study(public_study, study)
    elif table is not None:
        _init_table(study, table, units, seed, preset=preset)
    elif own is not None:
        _init_own(study, own, column, seed, normal=normalize is not None, preset=preset)
    elif mix is not None:
        _init_mix(study, mix, data, seed, normal=normalize is not None)


def _say_new(created: NewStudy, line: str) -> None:
    """Print what a new study holds, with notes and warnings."""
    for note in (line, *created.notes):
        say(note)
    for warning in created.warnings:
        say(f"warning: {warning}", err=True)


def _init_own(study: Path, own: Path, column: str, seed: int, *, normal: bool, preset: str) -> None:
    from benchcast.creation import create_study

    created = create_study(study, own, column=column, seed=seed, normalize=normal, preset=preset)
    texts = created.study.texts
    _say_new(created, f"{study}: {len(texts)} texts from {len(texts.sources)} sources ({', '.join(texts.sources)})")
    if preset:
        say(f"tasks: {len(created.study.tasks) - 1} of {preset}, and their mean {created.study.tasks[-1].name}")
        say(f"next: benchcast import losses {study} FILE…, or `benchcast collect {study} …`")
    else:
        say(f"next: add your tasks to {created.study.root / 'study.toml'}, then `benchcast status {study}`")


def _init_table(study: Path, table: Path, units: tuple[str, ...], seed: int, *, preset: str) -> None:
    from benchcast.datasets.table import create_table_study, read_columns
    from benchcast.loss_check import suspicious_losses
    from benchcast.presets import preset_tasks

    tasks = preset_tasks(preset, read_columns(table)) if preset else []
    made = create_table_study(study, table, units=units, seed=seed).add_tasks(tasks)
    names = made.models_with_losses()
    say(f"{study}: {len(names)} models, {len(made.texts)} losses each ({', '.join(made.texts.sources)})")
    for line in suspicious_losses(made, names):
        say(f"warning: {line}", err=True)
    if preset:
        say(f"tasks: {len(tasks) - 1} of {preset}, and their mean {tasks[-1].name}")
    add = "" if preset else f"add your tasks to {made.root / 'study.toml'}, then "
    say(f"next: {add}`benchcast import scores {study} FILE…`")


def _init_mix(study: Path, mix: str, data: Path | None, seed: int, *, normal: bool) -> None:
    from benchcast.creation import create_mixture

    created = create_mixture(study, mix, data=data, seed=seed, normalize=normal)
    texts, tasks = created.study.texts, created.study.tasks
    counts = {source: sum(t.source == source for t in texts) for source in texts.sources}
    parts = ", ".join(f"{source} {count}" for source, count in counts.items())
    _say_new(created, f"{study}: {len(texts)} texts ({parts})")
    say("tasks: " + ", ".join(f"{t.name} (chance {t.chance:g})" for t in tasks))
    say(f"next: benchcast collect {study} --model hf --model_args pretrained=PATH_OR_HUB_ID")


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
@click.option("--allow-implausible", is_flag=True, help="Store losses that no softmax can give.")
@FORCE
def losses(
    study: Path, files: tuple[Path, ...], family: str, unit: LossUnit | None, allow_implausible: bool, force: bool
) -> None:
    """Token losses in nats: JSONL or Parquet, one file a model, or a wide CSV of models × texts.

    In a study from logs of lm-evaluation-harness, also folders with such logs.

    \b
    One row of JSONL: the text's id, token bounds in UTF-8 bytes, the loss of each token (null: none):
    {"text_id": "mmlu-1", "bounds": [0, 3, 7, 12], "nats": [null, 4.21, 0.35]}

    \b
    benchcast import losses study runs/*.jsonl --family ash
    benchcast import losses study bits.csv --unit bits-per-byte
    benchcast import losses study results/my-model
    """
    from benchcast.importing import import_losses

    with progress("reading", len(files)) as advance:
        result = import_losses(
            study,
            files,
            family=family,
            unit=unit,
            allow_implausible=allow_implausible,
            force=force,
            on_file=lambda file: advance(f"reading {file.name}"),
        )
    say(f"{study}: {result.added} models added, {len(result.models) - result.added} were there already")
    for line in result.warnings:
        say(f"warning: {line}", err=True)


import_group.add_command(scores)


@import_group.command("models")
@STUDY
@FILE
def models(study: Path, file: Path) -> None:
    """What is known of the models: CSV with model and optionally family, params, tokens, flops, split, base, seed.

    \b
    benchcast import models study models.csv
    """
    from benchcast.importing import import_models

    say(f"{study}: {import_models(study, file)} models described")


@import_group.command("features")
@STUDY
@FILE
@click.option("--name", default="", help="The scorer's name; by default the file's stem.")
def features(study: Path, file: Path, name: str) -> None:
    """Hidden states of a scorer: npz with features, bounds and counts, texts in the study's order.

    \b
    benchcast import features study smollm2.npz
    """
    from benchcast.importing import import_features
    from benchcast.store import Study

    tokens, dimensions = import_features(study, file, name=name)
    say(f"{study}: features of {name or file.stem}, {tokens} tokens × {dimensions}")
    opened = Study.open(study)
    if len(opened.scorers()) > 1 and not opened.scorer:
        say(f"next: say in study.toml which features to use: scorer = {opened.scorers()[0]!r}")
