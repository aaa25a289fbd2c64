"""Decision accuracy against compute: whether small checkpoints show which of two data mixtures is better.

As in DataDecide (Magnusson et al. 2025), two families are two data mixtures. The better one on a task is the one whose
last checkpoint of the largest size scores higher. Two small checkpoints of similar size and compute decide correctly
if a signal read from them puts them in that order. Forecasts come from fits that saw neither family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.errors import NotEnoughDataError
from benchcast.losses.dataset import Dataset
from benchcast.methods import METHODS
from benchcast.records import Floats
from benchcast.splits import Fold
from lab.reproduce.context import StudyContext
from lab.reproduce.curves import decision_figure
from lab.reproduce.outcome import Outcome, Table, cell

ALIKE = 1.5  # sizes and FLOPs that differ by a smaller factor are compared
BINS_PER_DECADE = 2
RESAMPLES = 500
GOOD = 0.8
METHODS_READ = ("salience", "label-token", "all-token")
SCORE = "its own score"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two families, their largest models, and pairs of small checkpoints alike in size and compute (model numbers)."""

    families: tuple[str, str]
    largest: tuple[int, int]
    small: tuple[tuple[int, int], ...]


def decisions(context: StudyContext) -> Outcome:
    """Decision accuracy of small checkpoints' scores, losses and forecasts, by compute."""
    dataset = context.dataset
    pairs = find_pairs(dataset)
    if not pairs:
        raise NotEnoughDataError(
            "decisions needs two families with largest models of similar size and compute, and smaller ones of each; "
            "fill params and tokens in models.csv"
        )
    rows = decide(dataset, pairs, context)
    summary = by_compute(rows, context.study.seed)
    signals = list(dict.fromkeys(r["signal"] for r in rows))
    numbers = {**context.about(), "pairs": [p.families for p in pairs], "by_compute": summary, "points": rows}
    figures = {"": decision_figure(summary, signals)}
    return Outcome("decisions", numbers, _tables(rows, summary, signals), figures, tuple(_remarks(summary, signals)))


def find_pairs(dataset: Dataset) -> list[Pair]:
    """All pairs of families whose largest models are alike, with what smaller checkpoints can be compared."""
    metadata = dataset.metadata
    size = np.log(
        np.stack([metadata.params, metadata.flops], axis=1),
        where=np.stack([metadata.params > 0, metadata.flops > 0], axis=1),
        out=np.full((len(metadata.flops), 2), np.nan),
    )
    sized = np.isfinite(size).all(axis=1)
    members = {str(f): np.flatnonzero(sized & (dataset.families == f)).tolist() for f in np.unique(dataset.families)}
    largest = {
        f: max(rows_of_family, key=lambda i: tuple(size[i])) for f, rows_of_family in members.items() if rows_of_family
    }
    pairs = []
    for a, b in combinations(largest, 2):
        if _distance(size, largest[a], largest[b]) >= math.log(ALIKE):
            continue
        small = []
        for i in members[a]:
            closest = min((j for j in members[b] if j != largest[b]), key=lambda j: _distance(size, i, j), default=None)
            if i != largest[a] and closest is not None and _distance(size, i, closest) < math.log(ALIKE):
                small.append((i, closest))
        if small:
            pairs.append(Pair((a, b), (largest[a], largest[b]), tuple(small)))
    return pairs


def _distance(size: Floats, i: int, j: int) -> float:
    """How far apart two models are, in the log of parameters or of FLOPs, whichever is more."""
    return float(np.abs(size[i] - size[j]).max())


def decide(
    dataset: Dataset, pairs: Sequence[Pair], context: StudyContext, methods: Sequence[str] = METHODS_READ
) -> list[dict[str, Any]]:
    """Whether a signal puts two mixtures in the order of their largest models: a row for each task, pair, checkpoint
    and signal. Pairs whose largest models differ by less than the noise of their scores are left out."""
    none = np.zeros(len(dataset.models), bool)
    folds = [Fold(~np.isin(dataset.families, p.families), none, np.isin(dataset.families, p.families)) for p in pairs]
    fits = {}
    for method in methods:
        context.on_step(f"{method}, without either family of {len(pairs)} pairs")
        fits[method] = METHODS[method].learn(dataset, folds)
    rows = []
    for p, pair in enumerate(pairs):
        for t in range(len(dataset.tasks)):
            signals = {SCORE: dataset.accuracy[t]}
            signals |= {m: fits[m][p][t].forecast(dataset.nats, dataset.metadata) for m in methods}
            rows += judge(dataset, pair, t, signals)
    return rows


def judge(dataset: Dataset, pair: Pair, t: int, signals: Mapping[str, Floats]) -> list[dict[str, Any]]:
    """Whether each signal (values of all models, higher is better) orders a pair's small checkpoints on task number
    `t` as the largest are ordered: a row for each checkpoint and signal; none where the largest do not differ."""
    better = _order(dataset.accuracy[t], *pair.largest, noise=_noise(dataset, t, pair.largest))
    if not better:
        return []
    rows = []
    for i, j in pair.small:
        orders = {name: _order(x, i, j) for name, x in signals.items()}
        flops = math.sqrt(dataset.metadata.flops[i] * dataset.metadata.flops[j])
        rows += [
            {
                "task": dataset.tasks[t].name,
                "families": pair.families,
                "flops": flops,
                "signal": name,
                "right": (1 + better * sign) / 2,
            }
            for name, sign in orders.items()
            if math.isfinite(sign)
        ]
    return rows


def _order(x: Floats, i: int, j: int, *, noise: float = 0.0) -> float:
    """1 where the first is higher, −1 where the second is, 0 where they tie within the noise; NaN if unknown."""
    gap = float(x[i] - x[j])
    if not math.isfinite(gap):
        return 0.0 if noise else math.nan
    return float(np.sign(gap)) if abs(gap) > noise else 0.0


def _noise(dataset: Dataset, t: int, models: tuple[int, int]) -> float:
    """Two standard errors of the difference of two scores; tiny where the number of items is not known."""
    at = list(models)
    p, n = dataset.accuracy[t][at], dataset.n_items[t][at]
    variance = float(np.sum(p * (1 - p) / n))
    return 2 * math.sqrt(variance) if math.isfinite(variance) else 1e-12


def by_compute(rows: Sequence[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Decision accuracy by signal and half decade of compute, with an interval from resampled families."""
    names = sorted({f for r in rows for f in r["families"]})
    index = {f: i for i, f in enumerate(names)}
    draws = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES)
    out = []
    for key in sorted({(r["signal"], _bin(r["flops"])) for r in rows}):
        group = [r for r in rows if (r["signal"], _bin(r["flops"])) == key]
        right = np.array([r["right"] for r in group])
        a, b = (np.array([index[r["families"][k]] for r in group]) for k in (0, 1))
        weight = draws[:, a] * draws[:, b]
        total = weight.sum(axis=1)
        resampled = (weight @ right)[total > 0] / total[total > 0]
        low, high = (
            np.quantile(resampled, [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2])
            if len(resampled)
            else (math.nan, math.nan)
        )
        flops = 10 ** ((key[1] + 0.5) / BINS_PER_DECADE)
        out.append(
            {
                "signal": key[0],
                "flops": flops,
                "decisions": len(group),
                "right": float(right.mean()),
                "low": float(low),
                "high": float(high),
            }
        )
    return out


def _bin(flops: float) -> int:
    return math.floor(BINS_PER_DECADE * math.log10(flops))


def _tables(
    rows: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]], signals: Sequence[str]
) -> tuple[Table, ...]:
    by_key = {(s["signal"], s["flops"]): s for s in summary}
    lines = []
    for flops in sorted({s["flops"] for s in summary}):
        of_signals = [by_key.get((name, flops)) for name in signals]
        cells = ["–" if s is None else f"{s['right']:.2f} ({s['low']:.2f} – {s['high']:.2f})" for s in of_signals]
        lines.append((f"about {flops:.0e} FLOPs", str(max(s["decisions"] for s in of_signals if s)), *cells))
    title = f"decisions between two mixtures that are right ({level_text()} interval over families)"
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    per_task = []
    for task in tasks:
        right_by_signal = {n: [r["right"] for r in rows if r["task"] == task and r["signal"] == n] for n in signals}
        per_task.append(
            (
                task,
                str(len(right_by_signal[signals[0]])),
                *(cell(float(np.mean(v)) if v else math.nan, ".2f") for v in right_by_signal.values()),
            )
        )
    return (
        Table(("read of small checkpoints", "decisions", *signals), tuple(lines), title),
        Table(("all compute", "decisions", *signals), tuple(per_task), "by task"),
    )


def _remarks(summary: Sequence[dict[str, Any]], signals: Sequence[str]) -> list[str]:
    said = []
    for name in signals:
        by_compute = sorted((s for s in summary if s["signal"] == name), key=lambda s: s["flops"])
        enough = next(
            (s["flops"] for i, s in enumerate(by_compute) if all(x["right"] >= GOOD for x in by_compute[i:])), None
        )
        said.append(
            f"{name}: {GOOD:.0%} right "
            + (f"from about {enough:.0e} FLOPs on" if enough else "at no compute below the largest")
        )
    return said
