"""`init`, `import` and `status`: what goes into a study, and what is in it."""

from __future__ import annotations

from pathlib import Path

import click

from benchcast.cli.output import print_json, print_table, progress

STUDY = click.argument("study", type=click.Path(path_type=Path))
FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
FILE = click.argument("file", type=click.Path(path_type=Path))
FORCE = click.option("--force", is_flag=True, help="Replace what is in the study.")


@click.command()
@STUDY
@click.option(
    "--texts",
    "texts_file",
    type=click.Path(path_type=Path),
    required=True,
    help="JSONL with text, and optionally id, source, answer_start (in bytes).",
)
@click.option("--seed", default=0, show_default=True, help="Seed of everything random in the study.")
def init(study: Path, texts_file: Path, seed: int) -> None:
    """Start a study from validation texts.

    \b
    benchcast init study --texts texts.jsonl
    """
    from benchcast.store import Study
    from benchcast.tables import read_texts

    texts = read_texts(texts_file)
    empty = sum(1 for t in texts if not t.text)
    twins = len(texts) - len({t.text for t in texts})
    made = Study.create(study, texts, seed=seed)
    click.echo(f"{study}: {len(texts)} texts from {len(texts.sources)} sources ({', '.join(texts.sources)})")
    if empty or twins:
        click.echo(f"warning: {empty} empty texts, {twins} texts that repeat another; kept as they are", err=True)
    click.echo(f"next: add your tasks to {made.root / 'study.toml'}, then `benchcast import losses {study} FILE…`")


@click.group("import")
def import_group() -> None:
    """Bring in losses, scores, models or features made elsewhere."""


@import_group.command("losses")
@STUDY
@FILES
@click.option("--family", default="", help="Family of these models.")
@click.option("--unit", type=click.Choice(["bits-per-byte", "nats"]), help="What a wide CSV holds.")
@FORCE
def import_losses(study: Path, files: tuple[Path, ...], family: str, unit: str | None, force: bool) -> None:
    """Token losses: JSONL or Parquet, one file a model, or a wide CSV of models × texts.

    \b
    benchcast import losses study runs/*.jsonl --family ash
    benchcast import losses study bits.csv --unit bits-per-byte
    """
    import numpy as np

    from benchcast.loss_files import read_losses
    from benchcast.store import Study

    opened = Study.open(study)
    read = []
    with progress("reading", len(files)) as advance:
        for file in files:
            read += read_losses(file, opened.texts, unit=unit)
            advance(f"reading {file.name}")
    new = opened.add_losses(read, family=family, force=force)
    click.echo(f"{study}: {new} models added, {len(read) - new} were there already")
    for losses in read:
        share = float(np.mean(np.isnan(losses.nats)))
        if share > 0.2:
            click.echo(
                f"warning: {losses.model} has no loss on {share:.0%} of its tokens; they leave the common support",
                err=True,
            )


@import_group.command("scores")
@STUDY
@FILES
@FORCE
def import_scores(study: Path, files: tuple[Path, ...], force: bool) -> None:
    """Observed scores: CSV with model, task, accuracy and optionally n_items, harness, version, shots.

    \b
    benchcast import scores study scores.csv
    """
    from benchcast.store import Study
    from benchcast.tables import read_scores

    opened = Study.open(study)
    scores = [score for file in files for score in read_scores(file, opened.tasks)]
    new = opened.add_scores(scores, force=force)
    click.echo(f"{study}: {new} scores added, {len(scores) - new} were there already")
    without = sorted({s.model for s in scores} - set(opened.models_with_losses()))
    if without:
        some = ", ".join(without[:5]) + (" …" if len(without) > 5 else "")
        click.echo(f"note: no losses yet for {len(without)} of these models: {some}")


@import_group.command("models")
@STUDY
@FILE
def import_models(study: Path, file: Path) -> None:
    """What is known of the models: CSV with model and optionally family, params, tokens, flops, split.

    \b
    benchcast import models study models.csv
    """
    from benchcast.store import Study
    from benchcast.tables import read_models

    models = read_models(file)
    Study.open(study).add_models(models)
    click.echo(f"{study}: {len(models)} models described")


@import_group.command("features")
@STUDY
@FILE
@click.option("--name", default="", help="The scorer's name; by default the file's stem.")
def import_features(study: Path, file: Path, name: str) -> None:
    """Hidden states of a scorer: npz with features, bounds and counts, texts in the study's order.

    \b
    benchcast import features study smollm2.npz
    """
    from benchcast.store import Study
    from benchcast.tables import read_features

    opened = Study.open(study)
    values, edges = read_features(file, opened.texts)
    opened.add_features(name or file.stem, values, edges)
    click.echo(f"{study}: features of {name or file.stem}, {values.shape[0]} tokens × {values.shape[1]}")


@click.command()
@STUDY
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(study: Path, as_json: bool) -> None:
    """Tell what a study holds, what is missing, and the next command to run.

    \b
    benchcast status study
    """
    from benchcast.status import inspect
    from benchcast.store import Study

    found = inspect(Study.open(study))
    if as_json:
        print_json(found.as_json())
        return
    click.echo(
        f"{study}: {found.texts} texts, {found.models_with_losses} models with losses, scorer: {found.scorer or 'none'}"
    )
    print_table(
        ("source", "texts", "with answer", "mean bytes", "sample"),
        [(s.name, str(s.texts), str(s.answers), f"{s.mean_bytes:.0f}", s.sample) for s in found.sources],
    )
    if found.tasks:
        print_table(
            ("task", "chance", "scores", "with losses too", "lowest", "highest", "fitted"),
            [
                (
                    t.name,
                    f"{t.chance:g}",
                    str(t.scores),
                    str(t.usable),
                    t.lowest,
                    t.highest,
                    "yes" if t.fitted else "no",
                )
                for t in found.tasks
            ],
        )
    for problem in found.problems:
        click.echo(f"- {problem}")
    click.echo(f"next: {found.next_step}")
