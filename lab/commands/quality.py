"""`python -m lab quality`: every method on the studies at hand."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from benchcast.cli.output import print_json, print_table, progress, say


@click.command()
@click.argument("studies", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def quality(studies: tuple[Path, ...], as_json: bool) -> None:
    """Measure the methods on the zoo, on the public studies whose files are here, and on studies of your own.

    \b
    python -m lab quality
    python -m lab quality my-study --json
    """
    from benchcast.formatting import nan_to_none
    from lab.quality import HEADER, cells, measure_study, studies_at_hand, summary

    rows = []
    with progress("measuring") as advance:
        for name, split, study in studies_at_hand(studies):
            advance(f"measuring {name}, {split}")
            rows += measure_study(name, split, study)
    if as_json:
        print_json([{k: nan_to_none(v) for k, v in asdict(row).items()} for row in rows])
        return
    print_table(HEADER, [cells(row) for row in rows], left=(0, 1, 2))
    say("\nover all studies and splits (geometric mean of gains and of regrets, largest regret)")
    table = [(m, f"{gain:.2f}", f"{regret:.2f}", f"{worst:.2f}") for m, gain, regret, worst in summary(rows)]
    print_table(("method", "gain", "regret", "largest"), table)
