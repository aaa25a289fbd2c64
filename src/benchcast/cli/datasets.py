"""`datasets`: the public studies, and copies of them to work on."""

from __future__ import annotations

from pathlib import Path

import click

from benchcast.cli.arguments import JSON
from benchcast.cli.output import print_json, print_table, progress, say


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
    """Copy a public study and say what is in it."""
    from benchcast.datasets import copy_dataset, find

    dataset = find(name)
    with progress(f"fetching {name}") as advance:
        copy_dataset(name, study, on_file=lambda path: advance(f"reading {path.rpartition('/')[2]}", by=0))
    say(f"{study}: {dataset.summary}")
    say(f"source: {dataset.source} ({dataset.licence})")
    say(f"next: benchcast compare {study}")
