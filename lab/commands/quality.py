"""`python -m lab quality`: every method on the studies at hand."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.cli.output import print_json, print_table, say
from benchcast.cli.progress import progress

if TYPE_CHECKING:
    from lab.need_calibration import NeedCalibration
    from lab.quality import Quality


@click.command()
@click.argument("studies", nargs=-1, type=click.Path(path_type=Path))
@click.option("--decisions", is_flag=True, help="Also measure decisions between recipes and runs; takes minutes.")
@click.option("--needs", "needs_only", is_flag=True, help="Only how needed scores come true, by stack; much faster.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def quality(studies: tuple[Path, ...], decisions: bool, needs_only: bool, as_json: bool) -> None:
    """Measure the methods on the zoo, on the public studies whose files are here, and on tables of $BENCHCAST_TABLES.

    With STUDIES: on those of them that are named, and on folders of your own.

    \b
    python -m lab quality
    python -m lab quality zoo my-study --json
    python -m lab quality zoo --needs
    """
    from benchcast.messages import nan_to_none
    from lab.quality import measure_needs, measure_study, studies_at_hand, tables, target_lines

    if needs_only:
        for found in filter(None, (measure_needs(*at_hand) for at_hand in studies_at_hand(studies))):
            say(found.line())
        return
    rows: list[Quality] = []
    needs: list[NeedCalibration] = []
    with progress("measuring") as advance:
        for name, split, study in studies_at_hand(studies):
            advance(f"measuring {name}, {split}")
            rows += measure_study(name, split, study, needs)
    if as_json:
        print_json([{k: nan_to_none(v) for k, v in asdict(row).items()} for row in rows])
        return
    every, over_all = tables(rows)
    print_table(every.header, every.rows, left=(0, 1, 2), wide=True)
    say()
    print_table(over_all.header, over_all.rows, title=over_all.title, left=(0,))
    say()
    for line in target_lines():
        say(line)
    say("\nneeded scores, as `gate` states them by stack; ! is a bin off by more than its noise")
    for found in needs:
        say(found.line())
    if decisions:
        _decisions()


def _decisions() -> None:
    """Print how often small models order recipes as large ones do, and whether probabilities of runs come true."""
    from benchcast import datasets
    from lab import decision_accuracy, run_calibration

    with progress("deciding"):
        accuracies = {"zoo": decision_accuracy.zoo_decisions(datasets.load_zoo())}
        if datasets.find("dclm").cached:
            accuracies["dclm"] = decision_accuracy.dclm_decisions(datasets.fetch("dclm"))
    for name, rows in accuracies.items():
        say(f"\ndecision accuracy, {name}")
        say("\n".join(decision_accuracy.lines(rows)))
    if datasets.find("olmo-ladder").cached:
        say("\nprobabilities of run comparisons, olmo-ladder")
        say("\n".join(run_calibration.lines(run_calibration.rerun_calibration(datasets.fetch("olmo-ladder")))))
