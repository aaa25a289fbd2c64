"""`extrapolate`: forecasts of models that do not exist yet."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.choices import level_text
from benchcast.cli.arguments import STUDY
from benchcast.cli.forecast import JSON, TASKS
from benchcast.cli.output import format_interval, number, print_json, print_table, progress, say

if TYPE_CHECKING:
    from benchcast.extrapolation.backtest import HiddenModel
    from benchcast.extrapolation.extrapolate import Extrapolation, Target

FIGURES = (".html", ".png", ".svg")


@click.command()
@STUDY
@click.option("--family", required=True, help="Whose next model: a family of models.csv.")
@click.option("--to", "target", required=True, metavar="params=…,tokens=…", help="Its size and data, as 7B and 2T.")
@TASKS
@click.option("--method", default="salience", show_default=True, help="How capability is measured.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw it: .html, .png or .svg.")
@JSON
def extrapolate(
    study: Path, family: str, target: str, tasks: tuple[str, ...], method: str, plot: Path | None, as_json: bool
) -> None:
    """Forecast a larger or longer-trained model of a family, and check that on hidden models.

    \b
    benchcast extrapolate study --family oak-a --to params=150M,tokens=60M
    benchcast extrapolate study --family my-llm --to params=7B,tokens=2T --task mmlu --plot ahead.html
    """
    from benchcast.extrapolation.extrapolate import extrapolate as run
    from benchcast.store import Study

    if plot is not None and plot.suffix.lower() not in FIGURES:
        raise click.UsageError(f"--plot {plot}: ends in {', '.join(FIGURES)}")
    at = read_target(target)
    opened = Study.open(study)
    with progress("reading the study") as advance:
        found = run(opened, family, at, tasks=tasks, method=method, tell=lambda what: advance(what))
    if plot is not None:
        from benchcast.plots import ahead_figure, write_chart

        write_chart(ahead_figure(found), plot)
    if as_json:
        print_json(as_document(found))
    else:
        _print(found)
        if plot is not None:
            say(f"figure: {plot}")


def read_target(text: str) -> Target:
    """`params=7B,tokens=2T`, with flops= as well or instead."""
    from benchcast.errors import InputError
    from benchcast.extrapolation.extrapolate import Target
    from benchcast.formatting import did_you_mean
    from benchcast.storage.tables import quantity

    known = ("params", "tokens", "flops")
    values: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = (x.strip() for x in part.partition("="))
        if name not in known:
            raise InputError(f"--to: unknown quantity {name!r}; known: {', '.join(known)}{did_you_mean(name, known)}")
        if not value or name in values:
            raise InputError(f"--to: {name} needs one value, as in params=7B,tokens=2T")
        values[name] = quantity("--to", name, value)
    return Target(**values)


def _print(found: Extrapolation) -> None:
    target = found.target
    size, data = (number(float(x[0]), ".3g") for x in (target.params, target.tokens))
    ratio = float(target.flops[0] / max(x for x in found.known.flops if x == x))
    title = f"{found.family} at {size} params, {data} tokens: {target.flops[0]:.3g} FLOPs, {ratio:.3g} × its largest"
    rows = []
    for said in found.tasks:
        at = {k: float(v[0]) for k, v in asdict(said.forecast).items()}
        reach = format_interval(at["capability_low"], at["capability_high"], ".3f", around=at["capability"])
        sure = format_interval(at["low"], at["high"], ".3f")
        rows.append((said.task, number(at["accuracy"], ".3f"), sure, number(at["capability"], ".3f"), reach))
    print_table(("task", "forecast", f"{level_text()} interval", "capability", "its interval"), rows, title=title)
    for form in dict.fromkeys(said.form for said in found.tasks):
        own = [said.task for said in found.tasks if said.form == form]
        say(f"capability by a law of {form}" + f": {', '.join(own)}" * (len(own) < len(found.tasks)))
    for remark in found.remarks:
        say(remark)
    say()
    _print_check(found)


def _print_check(found: Extrapolation) -> None:
    """How hidden models of the family, and of all families, were forecast."""
    kinds = list(dict.fromkeys(h.kind for h in found.hidden))
    if not kinds:
        say("check: no family has models enough to hide some")
        return
    for kind in kinds:
        rows = []
        for task in dict.fromkeys(h.task for h in found.hidden if h.kind == kind):
            every = [h for h in found.hidden if (h.kind, h.task) == (kind, task)]
            own = [h for h in every if h.family == found.family]
            rows.append((task, *_said(own), *_said(every)))
        what = "the largest models" if kind == "largest" else "the latest checkpoints"
        n = len({h.family for h in found.hidden})
        head = ("error", "if unchanged", f"inside {level_text()}")
        header = ("task", *(f"{found.family}: {head[0]}", *head[1:]), *(f"{n} families: {head[0]}", *head[1:]))
        print_table(header, rows, title=f"check: {what} hidden and forecast; mean absolute error")
        say()


def _said(rows: list[HiddenModel]) -> tuple[str, str, str]:
    if not rows:
        return "–", "–", "–"
    error = sum(abs(h.forecast - h.observed) for h in rows) / len(rows)
    unchanged = sum(abs(h.unchanged - h.observed) for h in rows) / len(rows)
    return number(error, ".3f"), number(unchanged, ".3f"), f"{sum(h.inside for h in rows)} of {len(rows)}"


def as_document(found: Extrapolation) -> dict[str, Any]:
    """What `--json` prints."""
    from benchcast.formatting import nan_to_none

    target = {k: nan_to_none(float(getattr(found.target, k)[0])) for k in ("params", "tokens", "flops")}
    tasks = {}
    for said in found.tasks:
        values = {k: nan_to_none(float(v[0])) for k, v in asdict(said.forecast).items()}
        drift = {k: nan_to_none(v) for k, v in asdict(said.drift).items()}
        law = {"form": said.form, "floor": said.floor, "exponents": list(said.exponents), "drift": drift}
        tasks[said.task] = {**values, "law": law}
    hidden = [{k: nan_to_none(v) for k, v in asdict(h).items()} | {"inside": h.inside} for h in found.hidden]
    return {"family": found.family, "target": target, "tasks": tasks, "remarks": list(found.remarks), "hidden": hidden}
