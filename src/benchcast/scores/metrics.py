"""Which of a task's metrics is its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchcast.errors import InputError
from benchcast.formatting import did_you_mean
from benchcast.scores.reading import ScoreEntry

# The metric that papers and leaderboards quote for a task, best known first; by the start of its name.
QUOTED: dict[str, tuple[str, ...]] = {
    "hellaswag": ("acc_norm",),
    "arc": ("acc_norm",),
    "gsm8k": ("exact_match,strict-match",),
    "bbh": ("exact_match,get-answer", "acc_norm"),
    "truthfulqa": ("mc2",),
}
GENERAL = ("acc", "accuracy", "exact_match", "EM", "naive_average", "score", "acc_norm", "pass@1", "")


def choose_metrics(entries: Sequence[ScoreEntry], said: Mapping[str, str]) -> tuple[list[ScoreEntry], dict[str, str]]:
    """The readings of one metric for each task, the same for all models, and which one that is."""
    metrics: dict[str, list[str]] = {}
    for r in entries:
        metrics.setdefault(r.score.task, [])
        if np.isfinite(r.score.accuracy):
            metrics[r.score.task].append(r.metric)
    _refuse_unknown(said, metrics)
    by_task = {task: _choose(task, list(dict.fromkeys(found)), said.get(task)) for task, found in metrics.items()}
    chosen = [r for r in entries if r.metric == by_task[r.score.task] and np.isfinite(r.score.accuracy)]
    _refuse_without(entries, chosen, by_task)
    return chosen, {task: metric for task, metric in by_task.items() if metric}


def _refuse_unknown(said: Mapping[str, str], metrics: Mapping[str, Sequence[str]]) -> None:
    for task in said:
        if task not in metrics:
            raise InputError(f"--metric: no scores of task {task!r} in these files{did_you_mean(task, metrics)}")


def _refuse_without(entries: Sequence[ScoreEntry], chosen: Sequence[ScoreEntry], by_task: Mapping[str, str]) -> None:
    """A model whose file lacks the chosen metric is not dropped in silence."""
    have = {(r.score.model, r.score.task) for r in chosen}
    for r in entries:
        if (r.score.model, r.score.task) not in have:
            metric = by_task[r.score.task]
            raise InputError(
                f"{r.where}: no metric {metric!r}, which the other files have for {r.score.task!r}; "
                f"say one that all have with --metric {r.score.task}=…"
            )


def _choose(task: str, found: Sequence[str], said: str | None) -> str:
    if not found:
        raise InputError(f"{task}: no usable metric in these files; an accuracy lies in 0..1 and more of it is better")
    if said is not None:
        if said not in found:
            raise InputError(f"{task}: no metric {said!r}{did_you_mean(said, found)}; found {', '.join(found)}")
        return said
    quoted = next((q for name, q in QUOTED.items() if task.startswith(name)), ())
    for metric in (*quoted, *GENERAL):
        if metric in found:
            return metric
    if len(found) == 1:
        return found[0]
    raise InputError(f"{task}: which metric? found {', '.join(found)}; say --metric {task}={found[0]}")
