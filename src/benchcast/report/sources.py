"""Does it help to take texts from several sources? Refits on some of the sources, by fast methods (figure 8).

`ridge` learns weights in closed form, a fraction of a second a fit; `all-token` weighs every token alike. Where the
first gains from more sources and the second does not, learning what to listen to is what makes more texts useful.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchcast.evaluate import Comparison
from benchcast.methods import METHODS, NEED_FEATURES
from benchcast.records import TextSet
from benchcast.report.data import rounded
from benchcast.reproduce.desk import held_out_errors, restrict
from benchcast.reproduce.diversity import subsets

FAST = ("ridge", "all-token")
DRAWS = 4  # sets of sources per number of them
COUNTS = 8  # different numbers of sources that are tried
LARGEST = 1_000_000_000  # features in all, tokens times dimensions, above which no weights are learned anew
MOST_SETS = 5_000  # sets of sources that are listed to draw from; beyond that they are drawn at random


def effect_of_sources(found: Comparison, texts: TextSet, seed: int) -> dict[str, Any] | None:
    """Test error of every task from texts of some sources alone; None where there are fewer than two sources.

    Only the first fold is fitted: this is about texts, not about models.
    """
    names, features = found.evidence.tokens.sources, found.evidence.features
    slow = features is not None and features.shape[0] * features.shape[1] > LARGEST
    methods = [m for m in FAST if m in found.methods and not (slow and m in NEED_FEATURES)]
    if len(names) < 2 or not methods:
        return None
    rows = []
    for size in counts(len(names)):
        for chosen in draw_sets(names, size, seed):
            rows += _errors(found, texts, methods, chosen)
    return {"sources": list(names), "methods": methods, "rows": rows}


def counts(sources: int) -> list[int]:
    """Numbers of sources to try: all, or a few from one to all."""
    return sorted({round(float(x)) for x in np.linspace(1, sources, min(sources, COUNTS))})


def draw_sets(names: Sequence[str], size: int, seed: int) -> list[tuple[str, ...]]:
    """A few different sets of so many sources."""
    if math.comb(len(names), size) <= MOST_SETS:
        return subsets(names, size, DRAWS, seed)
    rng = np.random.default_rng([seed, size])
    drawn = {tuple(sorted(rng.choice(len(names), size, replace=False).tolist())) for _ in range(DRAWS)}
    return [tuple(names[i] for i in one) for one in sorted(drawn)]


def _errors(found: Comparison, texts: TextSet, methods: Sequence[str], chosen: Sequence[str]) -> list[dict[str, Any]]:
    tokens = found.evidence.tokens
    keep = tokens.of_sources(chosen)
    if not (keep & tokens.supported).any():
        return []
    evidence, fold = restrict(found.evidence, keep, texts), found.folds[0]
    made = []
    for method in methods:
        errors = held_out_errors(evidence, fold, METHODS[method](evidence, [fold])[0])
        made.append({"method": method, "sources": len(chosen), "chosen": list(chosen), "mse": rounded(errors)})
    return made
