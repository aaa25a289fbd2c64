"""`remove` and `rename`: models out of a study, or under another name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.arguments import STUDY
from benchcast.cli.output import say

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

    edited = remove_models(Study.open(study), patterns, dry_run=dry_run)
    some = ", ".join(edited.models[:5]) + (f" and {len(edited.models) - 5} more" if len(edited.models) > 5 else "")
    say(f"{study}: {'would remove' if dry_run else 'removed'} {_count(len(edited.models), 'model')} ({some})")
    say(_parts(edited))
    _name_fits(study, edited)


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

    edited = rename_model(Study.open(study), old, new)
    say(f"{study}: {old} is now {edited.models[0]}")
    say(_parts(edited))
    _name_fits(study, edited)


def _parts(edited: Edited) -> str:
    return ", ".join(
        (
            _count(edited.losses, "losses file"),
            _count(edited.rows, "row") + " of models.csv",
            _count(edited.scores, "score"),
        )
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _name_fits(study: Path, edited: Edited) -> None:
    if edited.fits:
        say(f"fits that learned from {'it' if len(edited.models) == 1 else 'them'}: {', '.join(edited.fits)}")
        say(f"next: benchcast fit {study}")
