"""Parts of the page: columns of a table study, convergence of Algorithm 2 (figure 6), sources of texts (figure 8)."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchcast.diversity import numbers_of_sources, source_errors, subsets
from benchcast.evaluate import Comparison
from benchcast.explaining import weigh_columns
from benchcast.law import SigmoidLaw
from benchcast.methods import NEED_FEATURES
from benchcast.records import Floats, NamedTexts, TextSet
from benchcast.reports.data import ReportModels, rounded

MOST_COLUMNS = 6  # columns listed for each task
LEAST_SHARE = 0.005  # smallest share of a listed column
METHOD = "paper"
CURVE = 32
FAST = ("ridge", "all-token")
DRAWS = 4  # sets of sources for each number of sources
LARGEST = 1_000_000_000  # size of the features (tokens × dimensions) above which weights are not refitted


def column_data(comparison: Comparison, shown: ReportModels, texts: TextSet) -> dict[str, Any] | None:
    """The columns with the largest weights of every task; None if the study has texts."""
    if not isinstance(texts, NamedTexts):
        return None
    method = comparison.methods[0]
    fits = [shown.new_fits[task, method] for task in comparison.tasks]
    return {
        "method": method,
        "tasks": [
            {
                "task": fit.task,
                "columns": [
                    {"name": w.column, "answers": w.answers, "share": rounded([w.share])[0]}
                    for w in weigh_columns(fit)[:MOST_COLUMNS]
                    if w.share > LEAST_SHARE
                ],
            }
            for fit in fits
            if fit.core.reads_losses
        ],
    }


def convergence(comparison: Comparison, task: str) -> dict[str, Any] | None:
    """Values for each position of the slider; None if the method was not compared."""
    if (task, METHOD) not in comparison.fits:
        return None
    fit, fold, t = comparison.fits[task, METHOD][0], comparison.folds[0], comparison.tasks.index(task)
    history, observed = fit.history, comparison.dataset.accuracy[t]
    laws = [
        SigmoidLaw(float(a), float(b), fit.task.chance)
        for a, b in zip(history["slope"], history["offset"], strict=True)
    ]
    scored = np.isfinite(observed)
    return {
        "step": [int(s) for s in history["step"]],
        "chosen": int(fit.notes["best_step"]),
        "capability": [rounded(c) for c in history["capability"]],
        "curves": [_curve(law, c[scored]) for law, c in zip(laws, history["capability"], strict=True)],
        "train": rounded(history["train_mse"]),
        "validation": rounded(history["validation_mse"]),
        "test": rounded(
            [
                _error(law, c[scored & fold.test], observed[scored & fold.test])
                for law, c in zip(laws, history["capability"], strict=True)
            ]
        ),
    }


def _error(law: SigmoidLaw, capability: Floats, observed: Floats) -> float:
    return float(np.mean((law.accuracy(capability) - observed) ** 2)) if len(observed) else float("nan")


def _curve(law: SigmoidLaw, capability: Floats) -> dict[str, Any]:
    low, high = float(capability.min()), float(capability.max())
    x = np.geomspace(low, high, CURVE) if low > 0 else np.linspace(low, high, CURVE)
    return {"capability": rounded(x), "accuracy": rounded(law.accuracy(x))}


def effect_of_sources(comparison: Comparison, texts: TextSet, seed: int) -> dict[str, Any] | None:
    """Test error of every task from texts of some sources only, in the first fold; None for fewer than two sources.

    `ridge` learns weights in closed form, in a fraction of a second; `all-token` gives every token the same weight. If
    more sources improve the first but not the second, more texts help because their weights are learned.
    """
    names, features = comparison.dataset.reference_tokens.sources, comparison.dataset.features
    slow = features is not None and features.shape[0] * features.shape[1] > LARGEST
    methods = [m for m in FAST if m in comparison.methods and not (slow and m in NEED_FEATURES)]
    if len(names) < 2 or not methods:
        return None
    rows = []
    for size in numbers_of_sources(len(names)):
        for chosen in subsets(names, size, DRAWS, seed):
            for method in methods:
                errors = source_errors(comparison.dataset, comparison.folds[0], texts, method, chosen)
                if errors is not None:
                    base = {"method": method, "sources": len(chosen), "chosen": list(chosen)}
                    rows.append({**base, "mse": rounded(errors)})
    return {"sources": list(names), "methods": methods, "rows": rows}
