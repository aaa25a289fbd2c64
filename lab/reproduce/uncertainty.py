"""How sure the table of errors is: gains and coverage with intervals over families.

Models of one family err alike, so a family is one observation: of the jackknife of gains, of the bootstrap of coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.comparison import GAIN_OVER, Comparison
from benchcast.records import Floats
from lab.reproduce.context import StudyContext
from lab.reproduce.outcome import Outcome, Table, cell

DRAWS = 2000


def uncertainty(context: StudyContext) -> Outcome:
    """Gain over all-token and coverage of the intervals, each with an interval over families."""
    comparisons = [context.comparison("family")]
    remarks = []
    try:
        comparisons.insert(0, context.comparison("size"))
    except NotEnoughDataError as why:
        remarks.append(f"no split by size: {why}")
    numbers = {
        c.split: {"gain": {m: asdict(g) for m, g in c.gains().items()}, "coverage": coverages(c, context.study.seed)}
        for c in comparisons
    }
    tables = [table for c in comparisons for table in _tables(c, numbers[c.split])]
    return Outcome("uncertainty", {**context.about(), "splits": numbers}, tuple(tables), remarks=tuple(remarks))


def family_draws(families: npt.NDArray[np.str_], seed: int) -> Floats:
    """How often every model counts in each bootstrap draw of families (draws × models)."""
    names, index = np.unique(families, return_inverse=True)
    picked = np.random.default_rng(seed).integers(len(names), size=(DRAWS, len(names)))
    counts = (picked[:, :, None] == np.arange(len(names))).sum(axis=1).astype(np.float64)
    return np.asarray(counts[:, index])


def bounds_of(values: Floats) -> tuple[float, float]:
    """Ends of the interval of bootstrap values."""
    low, high = np.quantile(values, [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2])
    return float(low), float(high)


def coverages(comparison: Comparison, seed: int) -> dict[str, dict[str, list[float]]]:
    """By task and method: share of scores inside the interval, its own interval, and the mean width."""
    out: dict[str, dict[str, list[float]]] = {}
    for (task, method), held in comparison.held_out.items():
        inside = ((held.observed >= held.low) & (held.observed <= held.high)).astype(np.float64)
        weights = family_draws(held.families, seed)
        shares = weights @ inside / weights.sum(axis=1)
        width = float(np.mean(held.high - held.low))
        out.setdefault(task, {})[method] = [float(inside.mean()), *bounds_of(shares), width]
    return out


def _tables(comparison: Comparison, numbers: dict[str, Any]) -> list[Table]:
    title = f"split by {comparison.split}; in brackets {level_text()} intervals over families"
    gain_rows = [
        (
            m,
            _with_bounds([g["value"], g["low"], g["high"]], ".1f"),
            cell(g["median"], ".1f"),
            cell(g["summed"], ".1f"),
        )
        for m, g in numbers["gain"].items()
    ]
    first = comparison.methods[0]
    rows = []
    for task in comparison.tasks:
        covered = numbers["coverage"][task][first]
        rows.append((task, _with_bounds(covered[:3], ".2f"), cell(covered[3], ".3f")))
    return [
        Table(("method", f"gain over {GAIN_OVER}", "median over tasks", "sum of errors"), tuple(gain_rows), title),
        Table((f"task ({first})", f"coverage of {level_text()} intervals", "mean width"), tuple(rows), title),
    ]


def _with_bounds(values: Sequence[float], form: str) -> str:
    value, low, high = values
    return f"{cell(value, form)} ({cell(low, form)} – {cell(high, form)})"
