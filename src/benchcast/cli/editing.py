"""`remove` and `rename`: models out of a study, or under another name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import STUDY
from benchcast.cli.output import say
from benchcast.formatting import few

if TYPE_CHECKING:
    from benchcast.editing import Edited


@click.command()
@STUDY
@click.option(
    "--model", "patterns", multiple=True, required=True, help="A model, or a pattern such as 'ash-*'; may be repeated."
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def remove(study: Path, patterns: tuple[str, ...], dry_run: bool) -> None:
    """Remove models from a study: their losses, metadata and scores.

    \b
    benchcast remove study --model my-7b
    benchcast remove study --model 'ash-*' --dry-run
    """
    from benchcast.editing import remove_models
    from benchcast.store import Study

    found = remove_models(Study.open(study), patterns, dry_run=dry_run)
    removed = f"{_count(len(found.models), 'model')} ({few(found.models, 5)})"
    say(f"{study}: {'would remove' if dry_run else 'removed'} {removed}")
    say(_parts(found))
    _name_fits(study, found)


@click.command()
@STUDY
@click.argument("old")
@click.argument("new")
def rename(study: Path, old: str, new: str) -> None:
    """Give a model of a study another name, with its losses, metadata and scores.

    \b
    benchcast rename study my-7b my-7b-v2
    """
    from benchcast.editing import rename_model
    from benchcast.store import Study

    found = rename_model(Study.open(study), old, new)
    say(f"{study}: {old} is now {found.models[0]}")
    say(_parts(found))
    _name_fits(study, found)


def _parts(found: Edited) -> str:
    rows = f"{_count(found.rows, 'row')} of models.csv"
    return ", ".join((_count(found.losses, "losses file"), rows, _count(found.scores, "score")))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _name_fits(study: Path, found: Edited) -> None:
    if found.fits:
        say(f"fits that learned from {'it' if len(found.models) == 1 else 'them'}: {', '.join(found.fits)}")
        say(f"next: benchcast fit {study}")
