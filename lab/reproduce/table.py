"""Table 1: test error of every method on every task, and what learned salience gains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.comparison import Comparison
from benchcast.methods import METHODS
from lab.reproduce.context import StudyContext
from lab.reproduce.figures import error_figure
from lab.reproduce.outcome import Outcome, Table, cell, geometric_mean

ALL_TOKEN = ("all-token",)
BASELINES = tuple(name for name, method in METHODS.items() if method.baseline)
PEERS = ("pls", "perplexity-correlations", "logistic-4", "two-step", "observational", "rbridge")


@dataclass(frozen=True, slots=True)
class Errors:
    """Test error of methods × tasks on one split."""

    split: str
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    mse: dict[str, dict[str, float]]  # by task, then method
    r2: dict[str, dict[str, float]]
    noise: dict[str, float]  # by task: what score noise alone leaves
    models: int  # held out

    def best(self, task: str, among: Sequence[str]) -> str:
        """The method of these that errs least on a task; empty where none has a forecast."""
        known = {m: e for m, e in self.mse[task].items() if m in among and math.isfinite(e)}
        return min(known, key=lambda m: known[m]) if known else ""

    def gain(self, task: str, method: str, over: str) -> float:
        """How many times less squared error a method makes than another."""
        mine, theirs = self.mse[task].get(method, math.nan), self.mse[task].get(over, math.nan)
        return theirs / mine if mine > 0 else math.nan

    def mean_gain(self, method: str, among: Sequence[str]) -> float:
        """Geometric mean over tasks of the gain over the best of these on each task."""
        return geometric_mean([self.gain(t, method, self.best(t, among)) for t in self.tasks])


def errors_of(comparison: Comparison) -> Errors:
    """The errors of a comparison."""
    cells = {t: {m: comparison.measures(t, m) for m in comparison.methods} for t in comparison.tasks}
    return Errors(
        comparison.split,
        comparison.methods,
        comparison.tasks,
        {t: {m: c["mse"] for m, c in row.items()} for t, row in cells.items()},
        {t: {m: c["r2"] for m, c in row.items()} for t, row in cells.items()},
        comparison.noise,
        max(len(held.observed) for held in comparison.held_out.values()),
    )


def table1(context: StudyContext) -> Outcome:
    """Every method × task on the study's own split, and on families never seen."""
    results = [errors_of(context.comparison(None))]
    remarks: list[str] = []
    if results[0].split != "family":
        try:
            results.append(errors_of(context.comparison("family")))
        except NotEnoughDataError as why:
            remarks.append(f"no table by family: {why}")
    tables = tuple(table for errors in results for table in tables_of(errors))
    remarks += [sentence(errors) for errors in results]
    numbers = {**context.about(), "splits": {e.split: numbers_of(e) for e in results}}
    figures = {
        "" if i == 0 else f"-{e.split}": error_figure(error_rows(e), e.tasks, e.methods) for i, e in enumerate(results)
    }
    return Outcome("table1", numbers, tables, figures, tuple(remarks))


def numbers_of(errors: Errors) -> dict[str, Any]:
    """All of it for JSON."""
    return {
        "test_models": errors.models,
        "mse": errors.mse,
        "r2": errors.r2,
        "noise_floor": errors.noise,
        "best_baseline": {t: errors.best(t, BASELINES) for t in errors.tasks},
        "best_peer": {t: errors.best(t, PEERS) for t in errors.tasks},
        "gain_over_all_token": {m: errors.mean_gain(m, ALL_TOKEN) for m in errors.methods},
        "gain_over_best_baseline": {m: errors.mean_gain(m, BASELINES) for m in errors.methods},
        "gain_over_best_peer": {m: errors.mean_gain(m, PEERS) for m in errors.methods},
        "r2_gain_over_all_token": {
            t: {m: r - row.get("all-token", math.nan) for m, r in row.items()} for t, row in errors.r2.items()
        },
    }


def error_rows(errors: Errors) -> list[dict[str, Any]]:
    """One row a task and method, for the figure."""
    return [
        {"task": t, "method": m, "mse": errors.mse[t][m], "noise": errors.noise[t]}
        for t in errors.tasks
        for m in errors.methods
        if math.isfinite(errors.mse[t][m])
    ]


def tables_of(errors: Errors) -> tuple[Table, Table]:
    """Mean squared error with gains below, then R²."""
    title = f"split by {errors.split}, {errors.models} held-out models"
    rows = []
    for task in errors.tasks:
        least = min((e for e in errors.mse[task].values() if math.isfinite(e)), default=math.nan)
        cells = [("*" if e == least else "") + cell(e) for e in errors.mse[task].values()]
        rows.append((task, *cells, cell(errors.noise[task])))
    for name, among, form in (("all-token", ALL_TOKEN, ".1f"), ("best baseline", BASELINES, ".2f")):
        rows.append((f"gain over {name}", *(cell(errors.mean_gain(m, among), form) for m in errors.methods), ""))
    if set(PEERS) & set(errors.methods):
        rows.append(("gain over best peer", *(cell(errors.mean_gain(m, PEERS), ".2f") for m in errors.methods), ""))
    mse = Table(("test MSE", *errors.methods, "noise floor"), tuple(rows), title)
    r2 = []
    for task in errors.tasks:
        most = max((r for r in errors.r2[task].values() if math.isfinite(r)), default=math.nan)
        r2.append((task, *(("*" if r == most else "") + cell(r, ".3f") for r in errors.r2[task].values())))
    gain = [np.mean([row[m] - row.get("all-token", math.nan) for row in errors.r2.values()]) for m in errors.methods]
    r2.append(("mean gain over all-token", *(cell(float(g), "+.3f") for g in gain)))
    return mse, Table(("test R²", *errors.methods), tuple(r2), title)


def sentence(errors: Errors) -> str:
    """What the first method is worth on this split."""
    first = errors.methods[0]
    wins = sum(errors.mse[t][first] <= min(errors.mse[t].values()) for t in errors.tasks)
    return (
        f"split by {errors.split}: {first} errs {cell(errors.mean_gain(first, ALL_TOKEN), '.1f')} times less than "
        f"all-token and {cell(errors.mean_gain(first, BASELINES), '.2f')} times less than each task's best baseline "
        f"(geometric means); least error of all on {wins} of {len(errors.tasks)} tasks"
    )
