"""`verify`: what became of a registered forecast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.choices import SCORE_UNITS, level_text
from benchcast.cli.arguments import FILE, JSON, RENAME, STUDY_FOLDER
from benchcast.cli.output import ends, print_json, print_table, say
from benchcast.messages import number

if TYPE_CHECKING:
    from benchcast.choices import ScoreUnit
    from benchcast.forecasts.registration import VerifiedForecast


@click.command()
@FILE
@click.option(
    "--scores",
    "source",
    required=True,
    type=STUDY_FOLDER,
    help="A study, or score files of any kind that `import scores` reads.",
)
@click.option("--unit", type=click.Choice(SCORE_UNITS), help="What a wide table holds.")
@RENAME
@JSON
def verify(file: Path, source: Path, unit: ScoreUnit | None, renames: tuple[str, ...], as_json: bool) -> None:
    """Check that a registered forecast is unaltered, and score it.

    \b
    benchcast predict study --model my-7b --register my-7b.json
    benchcast verify my-7b.json --scores results/
    benchcast verify my-7b.json --scores results/ --rename my-7b@final=my-7b
    """
    from benchcast.forecasts.registration import read, verify
    from benchcast.importers.scores.names import read_renames

    registration = read(file)
    verdicts = verify(registration, source, unit=unit, renames=read_renames(renames))
    scored = [v.task for v in verdicts]
    waiting = [row["task"] for row in registration["forecasts"] if row["task"] not in scored]
    if as_json:
        head = {k: registration[k] for k in ("model", "registered", "level", "sha256")}
        rows = {"unaltered": True, "forecasts": [v.to_dict() for v in verdicts], "waiting": waiting}
        print_json({**head, **rows, **_summary(verdicts)})
    else:
        _print(registration, verdicts, waiting)


def _summary(verdicts: list[VerifiedForecast]) -> dict[str, Any]:
    from benchcast.messages import nan_to_none

    n = len(verdicts)
    constant = [abs(v.constant - v.observed) for v in verdicts]
    return {
        "mean_abs_error": sum(abs(v.error) for v in verdicts) / n,
        "coverage": sum(v.inside for v in verdicts) / n,
        "mean_abs_error_of_constant": nan_to_none(sum(constant) / n),
        "mean_abs_error_of_chance": sum(abs(v.chance - v.observed) for v in verdicts) / n,
    }


def _print(registration: dict[str, Any], verdicts: list[VerifiedForecast], waiting: list[str]) -> None:
    say(f"unaltered: sha256 {registration['sha256']}, registered {registration['registered']}\n")
    rows = [
        (
            v.task,
            number(v.forecast, ".3f"),
            ends(v.low, v.high),
            number(v.observed, ".3f"),
            number(v.error, "+.3f"),
            "yes" if v.inside else "no",
            number(v.constant - v.observed, "+.3f"),
            number(v.chance - v.observed, "+.3f"),
            v.remark,
        )
        for v in verdicts
    ]
    interval = f"{level_text(registration['level'])} interval"
    header = ("task", "forecast", interval, "scored", "error", "inside", "error of the mean", "of chance", "")
    print_table(header, rows, title=registration["model"])
    said = _summary(verdicts)
    held = sum(v.inside for v in verdicts)
    say(
        f"\nmean absolute error {said['mean_abs_error']:.3f}; the mean score of the training models "
        f"{number(said['mean_abs_error_of_constant'] or float('nan'), '.3f')}, chance "
        f"{said['mean_abs_error_of_chance']:.3f}; {held} of {len(verdicts)} inside their interval"
    )
    if waiting:
        say(f"no score yet: {', '.join(waiting)}")
