"""Figures 1 and 2: neither compute nor the mean loss of a task's texts tells what a model scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchcast.errors import NotEnoughDataError
from benchcast.losses.dataset import Dataset
from benchcast.losses.regroup import characters_per_token
from benchcast.methods.law import fit_law
from benchcast.records import Floats, ModelInfo, TextSet
from lab.reproduce.context import StudyContext, pick_runs
from lab.reproduce.figures import compute_figure, loss_figure
from lab.reproduce.outcome import Outcome, Table, cell

ALIKE = 0.01  # losses that differ by less than this share of their size are called the same


def fig1(context: StudyContext, runs: str | None = None) -> Outcome:
    """Compute against accuracy for two mixtures."""
    pair = pick_runs([str(f) for f in context.dataset.families], runs)
    rows = compute_rows(context.dataset, context.infos, pair)
    if not rows:
        raise NotEnoughDataError(
            f"fig1 needs training FLOPs of {pair[0]} and {pair[1]}; fill flops, or params and tokens, in models.csv"
        )
    tasks = [t.name for t in context.dataset.tasks]
    gaps = {task: compute_gap([r for r in rows if r["task"] == task], pair) for task in tasks}
    table = Table(
        ("task", "pairs", "mean gap", "largest gap", "at FLOPs", f"mean {pair[0]} − {pair[1]}"),
        tuple(
            (
                task,
                str(g["pairs"]),
                cell(g["mean"], ".3f"),
                cell(g["largest"], ".3f"),
                cell(g["at_flops"], ".1e"),
                cell(g["signed"], "+.3f"),
            )
            for task, g in gaps.items()
        ),
        f"accuracy of {pair[0]} and {pair[1]} at equal size and compute",
    )
    numbers = {**context.about(), "runs": pair, "gaps": gaps, "points": rows}
    return Outcome("fig1", numbers, (table,), {"": compute_figure(rows, tasks)})


def compute_rows(dataset: Dataset, infos: Sequence[ModelInfo], pair: tuple[str, str]) -> list[dict[str, Any]]:
    """One row a task and model of the two families; models without FLOPs or score are left out."""
    return [
        {
            "task": task.name,
            "model": info.model,
            "family": str(family),
            "params": info.params,
            "tokens": info.tokens,
            "flops": float(flops),
            "accuracy": float(accuracy),
        }
        for task, row in zip(dataset.tasks, dataset.accuracy, strict=True)
        for info, family, flops, accuracy in zip(infos, dataset.families, dataset.metadata.flops, row, strict=True)
        if family in pair and np.isfinite(flops) and np.isfinite(accuracy)
    ]


def compute_gap(rows: Sequence[dict[str, Any]], pair: tuple[str, str]) -> dict[str, float]:
    """How far apart the two families score where size and compute are the same to 1%."""
    first, second = (sorted((r for r in rows if r["family"] == f), key=lambda r: r["flops"]) for f in pair)
    gaps = [
        (a["accuracy"] - b["accuracy"], a["flops"])
        for a in first
        for b in second
        if _alike(a["flops"], b["flops"]) and _alike(a["params"], b["params"])
    ]
    if not gaps:
        return {"pairs": 0, "mean": math.nan, "largest": math.nan, "at_flops": math.nan, "signed": math.nan}
    gap, at = np.array(gaps).T
    most = int(np.argmax(np.abs(gap)))
    return {
        "pairs": len(gap),
        "mean": float(np.abs(gap).mean()),
        "largest": float(abs(gap[most])),
        "at_flops": float(at[most]),
        "signed": float(gap.mean()),
    }


def _alike(a: float, b: float) -> bool:
    """Whether two numbers are the same to 1%; what is unknown on both sides counts as the same."""
    return abs(a - b) <= ALIKE * min(a, b) or (math.isnan(a) and math.isnan(b))


def fig2(context: StudyContext) -> Outcome:
    """Loss on a task's own texts against accuracy, all families."""
    dataset = context.dataset
    losses = own_losses(dataset, context.study.texts)
    rows, summary = [], {}
    for task, loss, observed in zip(dataset.tasks, losses, dataset.accuracy, strict=True):
        known = np.isfinite(loss) & np.isfinite(observed)
        if not known.any():
            continue
        summary[task.name] = loss_summary(loss[known], observed[known], task.chance)
        rows += [
            {
                "task": task.name,
                "model": dataset.models[i],
                "family": str(dataset.families[i]),
                "loss": float(loss[i]),
                "accuracy": float(observed[i]),
            }
            for i in np.flatnonzero(known)
        ]
    if not rows:
        raise NotEnoughDataError("fig2 needs texts of the tasks' own sources; no task of study.toml has any")
    table = Table(
        ("task", "models", "Spearman", "R² of one law", "largest gap at the same loss"),
        tuple(
            (task, f"{s['models']}", cell(s["spearman"], ".3f"), cell(s["r2"], ".3f"), cell(s["largest_gap"], ".3f"))
            for task, s in summary.items()
        ),
        "loss on the task's own texts against accuracy",
    )
    numbers = {**context.about(), "tasks": summary, "points": rows}
    return Outcome("fig2", numbers, (table,), {"": loss_figure(rows, list(summary))})


def own_losses(dataset: Dataset, texts: TextSet) -> Floats:
    """Nats per character of every model on each task's own texts (T × M); NaN for a task without texts."""
    tokens = dataset.reference_tokens
    characters = characters_per_token(tokens.edges, texts.utf8)
    losses = []
    for task in dataset.tasks:
        of_task = tokens.of_sources(task.sources) & tokens.supported
        length = characters[of_task].sum()
        total = dataset.nats[:, of_task].sum(axis=1, dtype=np.float64)
        losses.append(total / length if length > 0 else np.full(len(dataset.models), np.nan))
    return np.array(losses)


def loss_summary(loss: Floats, observed: Floats, chance: float) -> dict[str, float]:
    """How well loss tells accuracy: rank correlation, one law for all, and the largest gap at the same loss."""
    law = fit_law(loss, observed, chance)
    spread = float(np.sum((observed - observed.mean()) ** 2))
    left = float(np.sum((law.accuracy(loss) - observed) ** 2))
    same = np.abs(np.subtract.outer(loss, loss)) < ALIKE * loss
    gaps = np.abs(np.subtract.outer(observed, observed))
    varied = len(loss) > 1 and np.ptp(loss) > 0 and np.ptp(observed) > 0
    return {
        "models": len(loss),
        "spearman": float(np.corrcoef(rankdata(-loss), rankdata(observed))[0, 1]) if varied else math.nan,
        "r2": 1 - left / spread if spread > 0 else math.nan,
        "largest_gap": float(gaps[same].max()),
    }
