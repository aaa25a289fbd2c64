"""Live curves: a run on a new mixture, forecast from each of its checkpoints.

The two runs of figure 5 as a team would meet them: nothing of either run is seen before, every checkpoint is forecast
when it is there, and its score is measured later. Beside the error: from which share of the training on the
interval of the forecast holds the run's final score for good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from benchcast.choices import level_text
from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.compare import noise_floor
from benchcast.forecasts.intervals import predict
from benchcast.losses.dataset import Dataset
from benchcast.methods import METHODS
from benchcast.records import ModelInfo
from benchcast.reports.drawing import colour, finish
from benchcast.splits import Fold
from lab.reproduce.context import StudyContext, pick_runs
from lab.reproduce.figures import panels
from lab.reproduce.outcome import Figure, Outcome, Table, cell, geometric_mean
from lab.reproduce.series import PAPER_MSE

HALFWAY = 0.6  # of the training: the last checkpoint but one of the embedded runs
LEARNED = 0.1  # above chance at the end: a run that learned the task

Rows = list[dict[str, Any]]


def live(context: StudyContext, runs: str | None = None, method: str = "salience") -> Outcome:
    """Error of every checkpoint's forecast, and how early the final score is known."""
    dataset = context.dataset
    pair = pick_runs([str(f) for f in dataset.families], runs)
    unseen = np.isin(dataset.families, pair)
    fold = Fold(~unseen, np.zeros_like(unseen), unseen)
    context.on_step(method)
    points = live_points(dataset, context.infos, fold, METHODS[method].learn(dataset, [fold])[0])
    tasks = [t.name for t in dataset.tasks]
    floor = noise_floor(dataset, context.study.scores(), [fold])
    errors = {task: {run: _mse(points, task, run) for run in pair} for task in tasks}
    early = {task: known_early(points, task) for task in tasks}
    numbers = {
        **context.about(),
        "runs": pair,
        "method": method,
        "paper_mse": PAPER_MSE,
        "mse": errors,
        "geometric_mean": {run: geometric_mean([errors[t][run] for t in tasks]) for run in pair},
        "noise_floor": floor,
        "coverage": {task: _coverage(points, task) for task in tasks},
        "known_early": early,
        "points": points,
    }
    return Outcome(
        "live", numbers, (_error_table(numbers), _early_table(early)), {"": live_figure(points, tasks)}, _remarks(early)
    )


def live_points(dataset: Dataset, infos: Sequence[ModelInfo], fold: Fold, fits: Sequence[Any]) -> Rows:
    """One row a task and checkpoint of the unseen runs; a run is one family at one size."""
    rows: Rows = []
    for fit, observed in zip(fits, dataset.accuracy, strict=True):
        predicted = predict(fit, dataset.nats, dataset.metadata)
        forecast, low, high = predicted.accuracy, predicted.low, predicted.high
        for i in np.flatnonzero(fold.test & np.isfinite(observed)).tolist():
            m = infos[i]
            row = {"task": fit.task.name, "chance": fit.task.chance, "model": m.model, "family": m.family}
            row |= {"params": m.params, "tokens": m.tokens, "accuracy": float(observed[i])}
            rows.append(row | {"forecast": float(forecast[i]), "low": float(low[i]), "high": float(high[i])})
    return _with_ends(rows)


def _with_ends(rows: Rows) -> Rows:
    """Each row with its run's final score and the share of the training that lay behind it."""
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if not (math.isfinite(row["tokens"]) and math.isfinite(row["params"])):
            raise NotEnoughDataError(f"live needs params and tokens of {row['model']} in models.csv")
        key = (row["task"], row["family"], row["params"])
        if key not in last or row["tokens"] > last[key]["tokens"]:
            last[key] = row
    ends = [last[row["task"], row["family"], row["params"]] for row in rows]
    return [
        {**row, "share": row["tokens"] / end["tokens"], "final": end["accuracy"]}
        for row, end in zip(rows, ends, strict=True)
    ]


def known_from(run: Rows) -> float:
    """The share of a run's training from which on all intervals hold its final score; infinite where none does."""
    share = math.inf
    for row in sorted(run, key=lambda r: -r["share"]):
        if not row["low"] <= row["final"] <= row["high"]:
            break
        share = row["share"]
    return share


def known_early(points: Rows, task: str) -> dict[str, Any]:
    """How early the final score is known, over the runs that learned the task."""
    runs: dict[tuple[str, float], Rows] = {}
    for row in points:
        if row["task"] == task:
            runs.setdefault((row["family"], row["params"]), []).append(row)
    learned = [run for run in runs.values() if run[0]["final"] - run[0]["chance"] > LEARNED]
    shares = [known_from(run) for run in learned]
    widths = [row["high"] - row["low"] for run in learned for row in run]
    return {
        "runs": len(runs),
        "learned": len(learned),
        "shares": shares,
        "median": float(np.median(shares)) if shares else math.nan,
        "latest": max(shares, default=math.nan),
        "width": float(np.mean(widths)) if widths else math.nan,
    }


def _mse(points: Rows, task: str, run: str) -> float:
    chosen = [p for p in points if p["task"] == task and p["family"] == run]
    return float(np.mean([(p["forecast"] - p["accuracy"]) ** 2 for p in chosen])) if chosen else math.nan


def _coverage(points: Rows, task: str) -> float:
    chosen = [p for p in points if p["task"] == task]
    return float(np.mean([p["low"] <= p["accuracy"] <= p["high"] for p in chosen]))


def _error_table(numbers: dict[str, Any]) -> Table:
    pair = numbers["runs"]
    rows = [
        (task, *(cell(by_run[run]) for run in pair), cell(numbers["noise_floor"][task]), "1e-4", f"{covered:.2f}")
        for (task, by_run), covered in zip(numbers["mse"].items(), numbers["coverage"].values(), strict=True)
    ]
    means = [cell(numbers["geometric_mean"][run]) for run in pair]
    rows.append(("geometric mean", *means, cell(geometric_mean([*numbers["noise_floor"].values()])), "", ""))
    return Table(
        ("MSE of all checkpoints", *pair, "noise floor", "in the paper", f"{level_text()} interval covers"),
        tuple(rows),
        f"{pair[0]} and {pair[1]}, forecast by {numbers['method']} from other families only",
    )


def _early_table(early: dict[str, dict[str, Any]]) -> Table:
    rows = [
        (task, f"{e['learned']} of {e['runs']}", _percent(e["median"]), _percent(e["latest"]), cell(e["width"], ".2f"))
        for task, e in early.items()
    ]
    return Table(
        (
            "final score inside for good",
            "runs that learned it",
            "median run, from",
            "last run, from",
            "interval's width",
        ),
        tuple(rows),
        "share of the training after which the interval holds the final score",
    )


def _percent(share: float) -> str:
    return "never" if math.isinf(share) else "–" if math.isnan(share) else f"{share:.0%}"


def _remarks(early: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    shares = [s for e in early.values() for s in e["shares"]]
    if not shares:
        return ()
    half = sum(round(s, 2) <= HALFWAY for s in shares)
    missed = sum(math.isinf(s) for s in shares)
    return (
        f"over all tasks, {half} of {len(shares)} final scores lie inside the interval for good by {HALFWAY:.0%} of "
        f"the training, and {missed} are outside even at the last checkpoint; a forecast speaks of the checkpoint at "
        "hand, so a score that still rises is known late, and `benchcast extrapolate` is the tool that looks ahead",
    )


def live_figure(points: Rows, tasks: Sequence[str]) -> Figure:
    """Forecasts with intervals and later scores of the largest run of each family, along its training."""
    sizes = {f: max(p["params"] for p in points if p["family"] == f) for f in {p["family"] for p in points}}
    shown = [p for p in points if p["params"] == sizes[p["family"]]]
    families = sorted(sizes)

    def panel(task: str) -> Any:
        base = alt.Chart(alt.Data(values=[p for p in shown if p["task"] == task])).encode(
            x=alt.X("share:Q", title="share of the training", axis=alt.Axis(format="%", tickCount=4)),
            color=colour("family", families, "run"),
        )
        band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title="accuracy"), y2="high:Q")
        line = base.mark_line(strokeWidth=1.5).encode(y="forecast:Q")
        return alt.layer(band, line, base.mark_point(filled=True, size=34, opacity=1).encode(y="accuracy:Q"))

    return finish(panels(tasks, panel))
