"""How the error falls with the number of training models and of families: what to collect, and when it is enough.

Every point forecasts a family never seen. The interval's coverage and width stand beside the error: with few
models an interval must be wide, and still tell the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchcast.choices import level_text
from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.compare import forecast_held_out
from benchcast.losses.dataset import Dataset
from benchcast.methods import METHODS
from benchcast.splits import Fold
from lab.reproduce.context import StudyContext
from lab.reproduce.curves import count_figure, interval_figure
from lab.reproduce.outcome import Outcome, Table, cell, geometric_mean, grouped

MODELS = (10, 20, 40, 80)  # training models tried, beside all of them
FAMILIES = (2, 3, 4, 6)
MOST_DRAWS = 6
METHODS_SHOWN = ("salience", "label-token", "all-token")


def learning(context: StudyContext, draws: int | None = None) -> Outcome:
    """Error, coverage and width by number of training models, drawn at random, and by number of families."""
    names = np.unique(context.dataset.families)
    if len(names) < 3:
        raise NotEnoughDataError(f"learning needs at least 3 families, the study has {', '.join(names)}")
    rows = []
    for draw in range(draws or min(MOST_DRAWS, len(names))):
        tested = str(names[draw % len(names)])
        rng = np.random.default_rng([context.study.seed, draw])
        known: dict[bytes, list[dict[str, Any]]] = {}  # all other models are all other families: fitted once
        for of, count, fold in [
            *model_folds(context.dataset, tested, rng),
            *family_folds(context.dataset, tested, rng),
        ]:
            key = fold.train.tobytes()
            if key not in known:
                context.on_step(f"{tested} from {count} {of}")
                known[key] = point(context.dataset, fold)
            rows += [{"of": of, "count": count, **row} for row in known[key]]
    summary = means(rows)
    groups = list(dict.fromkeys(r["of"] for r in summary))
    first = [r for r in summary if r["method"] == METHODS_SHOWN[0]]
    figures = {
        "": count_figure(
            [r for r in rows if math.isfinite(r["mse"])], groups, by="of", count="count", title="how many"
        ),
        "-intervals": interval_figure(first, groups),
    }
    numbers = {**context.about(), "means": summary, "fits": rows}
    return Outcome("learning", numbers, _tables(summary), figures, tuple(_remarks(first)))


def model_folds(dataset: Dataset, tested: str, rng: np.random.Generator) -> list[tuple[str, int, Fold]]:
    """Random models of all other families; a larger set holds the smaller ones."""
    others = rng.permutation(np.flatnonzero(dataset.families != tested))
    counts = [*(n for n in MODELS if n < len(others)), len(others)]
    return [
        ("training models", n, _fold(dataset, np.isin(np.arange(len(dataset.models)), others[:n]), tested))
        for n in counts
    ]


def family_folds(dataset: Dataset, tested: str, rng: np.random.Generator) -> list[tuple[str, int, Fold]]:
    """All models of some of the other families."""
    names = np.unique(dataset.families)
    others = rng.permutation(names[names != tested])
    counts = [*(n for n in FAMILIES if n < len(others)), len(others)]
    return [("training families", n, _fold(dataset, np.isin(dataset.families, others[:n]), tested)) for n in counts]


def _fold(dataset: Dataset, train: Any, tested: str) -> Fold:
    return Fold(train, np.zeros_like(train), dataset.families == tested)


def point(dataset: Dataset, fold: Fold) -> list[dict[str, Any]]:
    """One row a method: geometric mean over tasks of the error, mean coverage and width; nothing where a task
    has no two different scores to learn from."""
    keep = fold.train | fold.test
    small = dataset.of_models(keep)
    small_fold = Fold(fold.train[keep], fold.validation[keep], fold.test[keep])
    if not all(np.ptp(a[small_fold.train & np.isfinite(a)]) > 0 for a in small.accuracy):
        return []
    rows = []
    for method in METHODS_SHOWN:
        fits = METHODS[method].learn(small, [small_fold])[0]
        cells = [forecast_held_out(small, [small_fold], [fits], t=t).measures() for t in range(len(fits))]
        rows.append(
            {
                "method": method,
                "mse": geometric_mean([c["mse"] for c in cells]),
                "coverage": float(np.mean([c["coverage"] for c in cells])),
                "width": float(np.mean([c["width"] for c in cells])),
            }
        )
    return rows


def means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over the draws that could be fitted: geometric mean of the errors, means of coverage and width."""
    out = []
    ordered = sorted(rows, key=lambda r: (r["of"], r["count"]))
    for (of, count, method), group in grouped(ordered, "of", "count", "method").items():
        out.append(
            {
                "of": of,
                "count": count,
                "method": method,
                "draws": len(group),
                "mse": geometric_mean([r["mse"] for r in group if math.isfinite(r["mse"])]),
                "coverage": _mean([r["coverage"] for r in group]),
                "width": _mean([r["width"] for r in group]),
            }
        )
    return out


def _mean(values: Sequence[float]) -> float:
    """Over those that can be said."""
    known = [v for v in values if math.isfinite(v)]
    return float(np.mean(known)) if known else math.nan


def _tables(summary: Sequence[dict[str, Any]]) -> tuple[Table, ...]:
    by_key = {(r["of"], r["count"], r["method"]): r for r in summary}
    points = list(dict.fromkeys((r["of"], r["count"]) for r in summary))
    lines = []
    for of, count in points:
        shown = [by_key[of, count, m] for m in METHODS_SHOWN]
        first = shown[0]
        cells = [cell(r["mse"]) for r in shown] + [cell(first["coverage"], ".2f"), cell(first["width"], ".2f")]
        lines.append((f"{count} {of}", str(first["draws"]), *cells))
    header = ("test MSE on a new family", "draws", *METHODS_SHOWN, f"{level_text()} interval covers", "its width")
    return (Table(header, tuple(lines), f"how many it takes; intervals of {METHODS_SHOWN[0]}"),)


def _remarks(first: Sequence[dict[str, Any]]) -> list[str]:
    """The smallest number that comes within a quarter of the error of all of them."""
    said = []
    for of in dict.fromkeys(r["of"] for r in first):
        by_count = sorted((r for r in first if r["of"] == of), key=lambda r: r["count"])
        enough = next(r["count"] for r in by_count if r["mse"] <= 1.25 * by_count[-1]["mse"])
        said.append(f"{enough} {of} come within 25% of the error of all {by_count[-1]['count']}")
    return said
