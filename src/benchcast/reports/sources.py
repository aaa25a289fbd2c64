"""Measure whether texts of several sources help, by refits of fast methods on some of the sources (figure 8).

`ridge` learns weights in closed form, in a fraction of a second; `all-token` gives every token the same weight. If more
sources improve the first but not the second, more texts help because their weights are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchcast.diversity import numbers_of_sources, source_errors, subsets
from benchcast.evaluate import Comparison
from benchcast.methods import NEED_FEATURES
from benchcast.records import TextSet
from benchcast.reports.data import rounded

FAST = ("ridge", "all-token")
DRAWS = 4  # sets of sources for each number of sources
LARGEST = 1_000_000_000  # size of the features (tokens × dimensions) above which weights are not refitted


def effect_of_sources(comparison: Comparison, texts: TextSet, seed: int) -> list[dict[str, Any]]:
    """Test error of every task from texts of some sources only, in the first fold; no rows for a single source."""
    names, features = comparison.dataset.reference_tokens.sources, comparison.dataset.features
    slow = features is not None and features.shape[0] * features.shape[1] > LARGEST
    methods = [m for m in FAST if m in comparison.methods and not (slow and m in NEED_FEATURES)]
    if len(names) < 2:
        return []
    sets = [chosen for n in numbers_of_sources(len(names)) for chosen in subsets(names, n, DRAWS, seed)]
    return [row for chosen in sets for method in methods for row in _rows(comparison, texts, method, chosen)]


def _rows(comparison: Comparison, texts: TextSet, method: str, chosen: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each task; none where the error is unknown or 0, which a log axis cannot show."""
    errors = source_errors(comparison.dataset, comparison.folds[0], texts, method, chosen)
    if errors is None:
        return []
    base = {"method": method, "sources": len(chosen), "texts_of": ", ".join(chosen)}
    pairs = zip(comparison.tasks, rounded(errors), strict=True)
    return [{"task": task, **base, "mse": mse} for task, mse in pairs if mse]
