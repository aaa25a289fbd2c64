"""How sure the table of errors is: gains and coverage with bootstrap intervals over families.

Models of one family err alike, so whole families are drawn again, not models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.comparison import Comparison, HeldOutForecasts
from benchcast.evaluation.ranking import family_counts
from benchcast.records import Floats
from lab.reproduce.context import StudyContext
from lab.reproduce.outcome import Outcome, Table, cell

OVER = "all-token"


def uncertainty(context: StudyContext) -> Outcome:
    """Gain over all-token and coverage of the intervals, each with an interval over families."""
    comparisons = [context.comparison("family")]
    remarks = []
    try:
        comparisons.insert(0, context.comparison("size"))
    except NotEnoughDataError as why:
        remarks.append(f"no split by size: {why}")
    numbers = {
        c.split: {"gain": gains(c, context.study.seed), "coverage": coverages(c, context.study.seed)}
        for c in comparisons
    }
    tables = [table for c in comparisons for table in _tables(c, numbers[c.split])]
    return Outcome("uncertainty", {**context.about(), "splits": numbers}, tuple(tables), remarks=tuple(remarks))


def family_draws(families: npt.NDArray[np.str_], seed: int) -> Floats:
    """How often every model counts in each bootstrap draw of families (draws × models)."""
    names, index = np.unique(families, return_inverse=True)
    return family_counts(len(names), seed)[:, index]


def bounds_of(values: Floats) -> tuple[float, float]:
    """Ends of the interval of bootstrap values."""
    low, high = np.quantile(values, [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2])
    return float(low), float(high)


def gains(comparison: Comparison, seed: int) -> dict[str, list[float]]:
    """For every method the gain over all-token, geometric mean over tasks, and its interval."""
    if OVER not in comparison.methods:
        return {}
    logs = {m: [_log_errors(comparison.held_out[t, m], seed) for t in comparison.tasks] for m in comparison.methods}
    out = {}
    for method in comparison.methods:
        pairs = zip(logs[OVER], logs[method], strict=True)
        gain = np.exp(np.mean([base - of_method for base, of_method in pairs], axis=0))
        out[method] = [float(gain[0]), *bounds_of(gain[1:])]
    return out


def _log_errors(held: HeldOutForecasts, seed: int) -> Floats:
    """Logarithm of the mean squared error: of all models first, then of every draw of families."""
    squares = (held.forecast - held.observed) ** 2
    weights = np.vstack([np.ones(len(squares)), family_draws(held.families, seed)])
    return np.log(weights @ squares / weights.sum(axis=1))


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
    gain_rows = [(m, _with_bounds(g, ".1f")) for m, g in numbers["gain"].items()]
    first = comparison.methods[0]
    rows = []
    for task in comparison.tasks:
        covered = numbers["coverage"][task][first]
        rows.append((task, _with_bounds(covered[:3], ".2f"), cell(covered[3], ".3f")))
    return [
        Table(("method", f"gain over {OVER}"), tuple(gain_rows), title),
        Table((f"task ({first})", f"coverage of {level_text()} intervals", "mean width"), tuple(rows), title),
    ]


def _with_bounds(values: Sequence[float], form: str) -> str:
    value, low, high = values
    return f"{cell(value, form)} ({cell(low, form)} – {cell(high, form)})"
