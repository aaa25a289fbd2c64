"""How often runs are in the order that forecasts say: every pair of families of a study, hidden in turn."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np

from benchcast.decisions.compare_runs import MEAN, RunComparison, find_run, rank_runs
from benchcast.errors import NotEnoughDataError
from benchcast.scaling.extrapolate import read_study_models
from lab.reproduce.context import StudyContext
from lab.reproduce.outcome import Outcome, Table, cell, grouped

SURE = 0.9  # a probability from which an order counts as sure
BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


def order(context: StudyContext) -> Outcome:
    """Of the pairs said to be so likely in order, how many were."""
    known = read_study_models(context.study)
    families = [str(f) for f in np.unique(known.dataset.families)]
    rows: list[dict[str, Any]] = []
    for pair in combinations(families, 2):
        context.on_step(f"{pair[0]} and {pair[1]}")
        runs = [find_run(name, known.models, known.families) for name in pair]
        try:
            rows += pair_rows(rank_runs(known, runs))
        except NotEnoughDataError:  # no size that both have
            continue
    if not rows:
        raise NotEnoughDataError("no two families share a size at which their compute overlaps")
    tasks, mean = ([r for r in rows if (r["task"] == MEAN) is on] for on in (False, True))
    tables = (
        _reliability(tasks, "single tasks: said and true"),
        _reliability(mean, "mean of tasks: said and true"),
        _by_task(rows),
    )
    brier = float(np.mean([(r["said"] - r["right"]) ** 2 for r in tasks]))
    right, said = (float(np.mean([r[k] for r in tasks])) for k in ("right", "said"))
    remark = (
        f"{len(tasks)} comparisons of two families at equal size and compute, neither seen by the fit: "
        f"{right:.1%} in the right order where {said:.1%} were expected; Brier score {brier:.3f} "
        "(0.25 is a coin)"
    )
    return Outcome("order", {**context.about(), "points": rows, "brier": brier}, tables, {}, (remark,))


def pair_rows(runs: RunComparison) -> list[dict[str, Any]]:
    """One row a task and size: how likely the order was said to be, and whether scores have it (a tie is half)."""
    rows = []
    for ranking in runs.rankings:
        for t, task in enumerate(runs.tasks):
            scores = ranking.observed[t]
            if np.isfinite(scores).all():
                ahead = scores[ranking.order[t][0]] - scores[ranking.order[t][1]]
                rows.append(
                    {
                        "runs": runs.runs,
                        "params": ranking.params,
                        "task": task,
                        "said": float(ranking.likely[t]),
                        "right": float((np.sign(ahead) + 1) / 2),
                    }
                )
    return rows


def _reliability(rows: list[dict[str, Any]], title: str) -> Table:
    said, right = (np.array([r[k] for r in rows]) for k in ("said", "right"))
    body = []
    for low, high in pairwise(BINS):
        in_bin = (said >= low) & ((said < high) | (high == 1.0))
        if in_bin.any():
            cells = (
                cell(float(said[in_bin].mean()), ".1%"),
                cell(float(right[in_bin].mean()), ".1%"),
                str(int(in_bin.sum())),
            )
            body.append((f"{low:.0%} – {high:.0%}", *cells))
    return Table(("said", "mean said", "in the right order", "comparisons"), tuple(body), title)


def _by_task(rows: list[dict[str, Any]]) -> Table:
    body = []
    for (task,), of_task in grouped(rows, "task").items():
        sure = [r for r in of_task if r["said"] >= SURE]
        right = float(np.mean([r["right"] for r in sure])) if sure else float("nan")
        every = float(np.mean([r["right"] for r in of_task]))
        body.append((task, cell(every, ".1%"), str(len(of_task)), cell(right, ".1%"), str(len(sure))))
    header = ("task", "in the right order", "of", f"where said {SURE:.0%} or more", "of")
    return Table(header, tuple(body), "by task")
