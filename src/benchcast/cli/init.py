"""`init`: a study from texts, benchmarks, a table of losses, evaluation logs or a public study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from benchcast.cli.arguments import JSON, PATH, RENAME, STUDY
from benchcast.cli.importing import read_metrics
from benchcast.cli.output import print_json, print_table, say, warn
from benchcast.cli.progress import progress
from benchcast.errors import InputError
from benchcast.messages import counted, few, span

if TYPE_CHECKING:
    from benchcast.importers.scores import ImportOptions
    from benchcast.importers.texts import NewStudy
    from benchcast.study.study import Study

LOGS = ("--from-lm-eval", "--from-lighteval")
MEANT_FOR = {  # option → the sources of a study that it says something about
    "--items": LOGS,
    "--metric": LOGS,
    "--allow-limit": LOGS,
    "--rename": ("--table", *LOGS),
    "--tokens-per-step": ("--table", *LOGS),
    "--losses": ("--table",),
    "--scores": ("--table",),
    "--chance": ("--table",),
    "--unit": ("--table",),
    "--preset": ("--texts", "--table", *LOGS),
}


@click.command()
@STUDY
@click.option(
    "--texts",
    "texts_file",
    type=PATH,
    help="JSONL with text, and optionally id, source, answer_start (in bytes), options; a folder of files; Parquet.",
)
@click.option("--column", default="text", show_default=True, help="Which column of a Parquet file holds the texts.")
@click.option("--mix", help="Benchmarks and how many examples of each, such as mmlu=100,bbh=50.")
@click.option(
    "--data",
    type=PATH,
    help="Folder with the benchmarks' files, one folder each. Default: the hub, through `datasets`.",
)
@click.option("--from", "public_study", metavar="NAME", help="A public study to copy; `benchcast datasets` lists them.")
@click.option(
    "--table",
    "tables",
    multiple=True,
    type=PATH,
    help="CSV: `model`, then a column per loss; or exports of W&B, MLflow, TensorBoard (again, or a folder).",
)
@click.option("--losses", multiple=True, metavar="PATTERN", help="Columns of the table that are losses: 'eval/*loss*'.")
@click.option("--scores", multiple=True, metavar="PATTERN", help="Columns that are scores, * the task: 'eval/*/acc'.")
@click.option("--chance", multiple=True, metavar="TASK=X", help="Accuracy of guessing, for tasks that no preset has.")
@click.option(
    "--from-lm-eval",
    "logs",
    type=PATH,
    help="Output folder of lm-evaluation-harness runs with --log_samples.",
)
@click.option(
    "--from-lighteval",
    "details",
    type=PATH,
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
@RENAME
@click.option(
    "--tokens-per-step", default="", metavar="N", help="Training tokens of one step, such as 2M: tokens from steps."
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
    texts_file: Path | None,
    column: str,
    mix: str | None,
    data: Path | None,
    public_study: str | None,
    tables: tuple[Path, ...],
    losses: tuple[str, ...],
    scores: tuple[str, ...],
    chance: tuple[str, ...],
    logs: Path | None,
    details: Path | None,
    items: float | None,
    metrics: tuple[str, ...],
    renames: tuple[str, ...],
    tokens_per_step: str,
    allow_limit: bool,
    preset: str,
    units: tuple[str, ...],
    seed: int,
    normalize: str | None,
) -> None:
    """Start a study from texts (your own, or a mixture of benchmarks), a table of losses, logs or a public study.

    In a table a column is one text, one item, or the mean over an evaluation set. Values are used as they are. Of logs,
    the same command adds the files that are new since.

    \b
    benchcast init study --texts texts.jsonl
    benchcast init study --mix mmlu=100,bbh=100,gsm8k=100,hellaswag=100,cmmlu=100,bbh-cot=50 --data benchmarks
    benchcast init study --table losses.csv --unit nats --unit 'bpb.*=bits-per-byte'
    benchcast init study --table wandb.csv --losses 'eval/*loss*' --scores 'eval/*/acc'
    benchcast init study --from-lm-eval results --tokens-per-step 2M
    benchcast init study --from-lm-eval results --items 0.5
    benchcast init study --texts texts.jsonl --preset core
    benchcast init study --from olmo-ladder
    """
    from benchcast.importers.scores import ImportOptions
    from benchcast.importers.scores.names import read_renames
    from benchcast.study.tables import quantity

    sources = {
        "--texts": texts_file, "--mix": mix, "--table": tables or None,
        "--from-lm-eval": logs, "--from-lighteval": details, "--from": public_study,
    }  # fmt: skip
    given = [option for option, value in sources.items() if value is not None]
    if len(given) != 1:
        raise InputError(
            "init: give one of --texts FILE, --mix BENCHMARK=COUNT,…, --table FILE.csv, --from-lm-eval DIR, "
            "--from-lighteval DIR and --from NAME"
        )
    others = {
        "--items": items is not None, "--metric": metrics, "--allow-limit": allow_limit, "--rename": renames,
        "--tokens-per-step": tokens_per_step, "--losses": losses, "--scores": scores, "--chance": chance,
        "--unit": units, "--preset": preset,
    }  # fmt: skip
    _refuse_misplaced(given[0], [option for option, value in others.items() if value])
    new_names, per_step = read_renames(renames), quantity("init", "--tokens-per-step", tokens_per_step)
    if logs or details:  # which of the two wrote a file is seen from its content
        options = ImportOptions(metrics=read_metrics(metrics), renames=new_names, allow_limit=allow_limit)
        _init_logs(study, Path(logs or details or ""), items, options=options, seed=seed, preset=preset, step=per_step)
    elif public_study is not None:
        copy_study(public_study, study)
    elif tables:
        columns = TableColumns(losses, scores, read_chances(chance), units)
        _init_table(study, tables, columns, seed=seed, preset=preset, renames=new_names, step=per_step)
    elif texts_file is not None:
        _init_texts(study, texts_file, column, seed=seed, normal=normalize is not None, preset=preset)
    elif mix is not None:
        _init_mix(study, mix, data, seed=seed, normal=normalize is not None)


def _refuse_misplaced(source: str, options: Sequence[str]) -> None:
    """Raise an error for the first option that says nothing about a study from this source."""
    for option in options:
        if source not in MEANT_FOR[option]:
            *first, last = MEANT_FOR[option]
            allowed = f"{', '.join(first)} and {last}" if first else last
            raise InputError(f"init: {option} is for {allowed}, not for {source}")


def _say_new(created: NewStudy, line: str) -> None:
    for note in (line, *created.notes):
        say(note)
    warn(*created.warnings)


def _init_texts(study: Path, texts_file: Path, column: str, *, seed: int, normal: bool, preset: str) -> None:
    from benchcast.importers.texts import create_study

    created = create_study(study, texts_file, column=column, seed=seed, normalize=normal, preset=preset)
    texts = created.study.texts
    sources = f"{counted(len(texts.sources), 'source')} ({', '.join(texts.sources)})"
    _say_new(created, f"{study}: {counted(len(texts), 'text')} from {sources}")
    if preset:
        say(f"tasks: {len(created.study.tasks) - 1} of {preset}, and their mean {created.study.tasks[-1].name}")
        say(f"next: benchcast import losses {study} FILE…, or `benchcast collect {study} …`")
    else:
        say(f"next: add your tasks to {created.study.root / 'study.toml'}, then `benchcast status {study}`")


class TableColumns(NamedTuple):
    """What the user says on the columns of a table."""

    losses: tuple[str, ...]  # patterns
    scores: tuple[str, ...]  # patterns
    chance: Mapping[str, float]  # task → chance
    units: tuple[str, ...]  # [PATTERN=]UNIT


def read_chances(given: Sequence[str]) -> dict[str, float]:
    """Task → chance from options TASK=X."""
    chances = {}
    for option in given:
        task, _, value = option.rpartition("=")
        try:
            chances[task] = float(value)
        except ValueError:
            chances[task] = math.nan
        if not task or not 0 <= chances[task] < 1:
            raise InputError(f"--chance {option!r}: needs a task and a number from 0 to below 1, such as piqa=0.5")
    return chances


def _init_table(
    study: Path,
    tables: Sequence[Path],
    columns: TableColumns,
    *,
    seed: int,
    preset: str,
    renames: Mapping[str, str],
    step: float,
) -> None:
    from benchcast.importers.loss_table import create_table_study
    from benchcast.study.check_losses import suspicious_losses

    notes: list[str] = []
    created = create_table_study(
        study,
        tables,
        units=columns.units,
        seed=seed,
        preset=preset,
        renames=renames,
        losses=columns.losses,
        scores=columns.scores,
        chance=columns.chance,
        tokens_per_step=step,
        on_note=notes.append,
    )
    names = created.models_with_losses()
    texts, scored = created.texts, len(created.stored_scores())
    listed = ", ".join(texts.sources) if len(texts.sources) > 1 else few([t.id for t in texts])
    each = f"{len(texts)} {'loss' if len(texts) == 1 else 'losses'} each"
    say(f"{study}: {counted(len(names), 'model')}, {each} ({listed})")
    warn(*suspicious_losses(created, names))
    if preset:
        say(f"tasks: {len(created.tasks) - 1} of {preset}, and their mean {created.tasks[-1].name}")
    elif created.tasks:
        say("tasks: " + ", ".join(f"{t.name} (chance {t.chance:g})" for t in created.tasks))
    for note in notes:
        say(note)
    if created.listed_models():
        print_guesses(created)
    if scored:
        say(f"{counted(scored, 'score')}; next: benchcast compare {study}, or `benchcast fit {study}`")
        return
    add = "" if created.tasks else f"add your tasks to {created.root / 'study.toml'}, then "
    say(f"next: {add}`benchcast import scores {study} FILE…`")


def _init_mix(study: Path, mix: str, data: Path | None, *, seed: int, normal: bool) -> None:
    from benchcast.importers.texts import create_mixture

    created = create_mixture(study, mix, data=data, seed=seed, normalize=normal)
    texts, tasks = created.study.texts, created.study.tasks
    counts = {source: sum(t.source == source for t in texts) for source in texts.sources}
    parts = ", ".join(f"{source} {count}" for source, count in counts.items())
    _say_new(created, f"{study}: {counted(len(texts), 'text')} ({parts})")
    say("tasks: " + ", ".join(f"{t.name} (chance {t.chance:g})" for t in tasks))
    say(f"next: benchcast collect {study} --model hf --model_args pretrained=PATH_OR_HUB_ID")


def _init_logs(
    study: Path, folder: Path, items: float | None, *, options: ImportOptions, seed: int, preset: str, step: float
) -> None:
    from benchcast.importers.logs.from_logs import create_from_logs
    from benchcast.importers.logs.log_record import NAME

    if (study / NAME).is_file():
        if items is not None or preset:
            raise InputError(f"{study}: is there already; --items and --preset stay as they were")
        _add_logs(study, folder, options, step)
        return
    share = 1.0 if items is None else items
    with progress("reading logs") as advance:
        created = create_from_logs(
            study,
            folder,
            items=share,
            seed=seed,
            options=options,
            preset=preset,
            tokens_per_step=step,
            on_file=lambda file: advance(f"reading {file.parent.name}"),
        )
    texts = created.study.texts
    models = counted(len(created.study.models_with_losses()), "model")
    say(f"{study}: {models}, {counted(len(texts), 'item')} ({', '.join(texts.sources)})")
    say("tasks: " + ", ".join(f"{t.name} (chance {t.chance:g})" for t in created.study.tasks))
    say("metrics: " + ", ".join(f"{task} {metric}" for task, metric in created.scores.metrics.items()))
    for note in created.notes:
        say(note)
    warn(*created.warnings)
    print_guesses(created.study)
    say(f"next: benchcast compare {study}, or `benchcast fit {study}` and `benchcast predict {study} --all`")


def _add_logs(study: Path, folder: Path, options: ImportOptions, step: float) -> None:
    from benchcast.importers.logs.add_new import add_new_logs

    with progress("reading logs"):
        added = add_new_logs(study, folder, options=options, tokens_per_step=step)
    if not added.files:
        say(f"{study}: was made from {folder}, which has no new results")
        warn(*added.warnings)
        return
    say(
        f"{study}: {counted(added.files, 'new file')} of {counted(len(added.models), 'model')} "
        f"({few(added.models)}), {counted(added.scores, 'score')} added"
    )
    for note in added.notes:
        say(note)
    warn(*added.warnings)
    print_guesses(added.study)
    say(f"next: benchcast fit {study}, then `benchcast predict {study} --all`")


def print_guesses(study: Study) -> None:
    """What was found of families, sizes and steps, and how to change it."""
    from benchcast.study.model_names import found_families

    families = found_families(study.listed_models())
    named = [row for row in families if row.family]
    if named:
        header = ("family", "models", "runs", "params", "steps", "tokens")
        rows = [
            (row.family or "–", str(row.models), str(row.runs), *map(span, (row.params, row.steps, row.tokens)))
            for row in families
        ]
        print_table(header, rows, title="found by the names (change it in models.csv)")
    if any(row.steps and not row.tokens for row in named):
        say("tokens are unknown; --tokens-per-step N gives them (extrapolate needs them)")
    unknown = sum(row.models for row in families if not row.family)
    if unknown:
        say(f"no family in {counted(unknown, 'name')}: each counts as its own; `benchcast import models` adds families")


@click.command()
@JSON
def datasets(as_json: bool) -> None:
    """List studies of real models that can be fetched, and the embedded one.

    \b
    benchcast datasets
    benchcast init study --from olmo-ladder          a copy to work on
    """
    from benchcast.datasets import DATASETS

    keys = ("name", "about", "models", "losses", "tasks", "source", "licence", "cached")
    rows = [{key: getattr(d, key) for key in keys} for d in DATASETS.values()]
    if as_json:
        print_json(rows)
        return
    shown = ("name", "models", "losses", "tasks", "licence", "cached", "source")
    table = [[("yes" if r[k] else "no") if k == "cached" else str(r[k]) for k in shown] for r in rows]
    print_table(shown, table, left=(0, 4, 5, 6))
    say("next: benchcast init STUDY --from NAME   (files come from the source at a pinned commit)")


def copy_study(name: str, study: Path) -> None:
    from benchcast.datasets import copy_dataset, find

    dataset = find(name)
    with progress(f"fetching {name}") as advance:
        copy_dataset(name, study, on_file=lambda path: advance(f"reading {path.rpartition('/')[2]}", by=0))
    say(f"{study}: {dataset.summary}")
    say(f"source: {dataset.source} ({dataset.licence})")
    say(f"next: benchcast compare {study}")
