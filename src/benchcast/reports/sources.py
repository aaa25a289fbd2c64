"""Does it help to take texts from several sources? Refits on some of the sources, by fast methods (figure 8).

`ridge` learns weights in closed form, a fraction of a second a fit; `all-token` weighs every token alike. Where the
first gains from more sources and the second does not, learning what to listen to is what makes more texts useful.
"""

from __future__ import annotations

from typing import Any

from benchcast.diversity import numbers_of_sources, source_errors, subsets
from benchcast.evaluate import Comparison
from benchcast.methods import NEED_FEATURES
from benchcast.records import TextSet
from benchcast.reports.data import rounded

FAST = ("ridge", "all-token")
DRAWS = 4  # sets of sources per number of them
LARGEST = 1_000_000_000  # features in all, tokens times dimensions, above which no weights are learned anew


def effect_of_sources(found: Comparison, texts: TextSet, seed: int) -> dict[str, Any] | None:
    """Test error of every task from texts of some sources alone; None where there are fewer than two sources.

    Only the first fold is fitted: this is about texts, not about models.
    """
    names, features = found.dataset.reference_tokens.sources, found.dataset.features
    slow = features is not None and features.shape[0] * features.shape[1] > LARGEST
    methods = [m for m in FAST if m in found.methods and not (slow and m in NEED_FEATURES)]
    if len(names) < 2 or not methods:
        return None
    rows = []
    for size in numbers_of_sources(len(names)):
        for chosen in subsets(names, size, DRAWS, seed):
            for method in methods:
                errors = source_errors(found.dataset, found.folds[0], texts, method, chosen)
                if errors is not None:
                    base = {"method": method, "sources": len(chosen), "chosen": list(chosen)}
                    rows.append({**base, "mse": rounded(errors)})
    return {"sources": list(names), "methods": methods, "rows": rows}
