"""Choose the metric of each task that is its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchcast.errors import InputError
from benchcast.formatting import did_you_mean
from benchcast.scores.reading import ScoreEntry

# Start of a task's name → the metrics that papers and leaderboards quote for it, most common first.
QUOTED: dict[str, tuple[str, ...]] = {
    "hellaswag": ("acc_norm",),
    "arc": ("acc_norm",),
    "gsm8k": ("exact_match,strict-match",),
    "bbh": ("exact_match,get-answer", "acc_norm"),
    "truthfulqa": ("mc2",),
}
GENERAL = ("acc", "accuracy", "exact_match", "EM", "naive_average", "score", "acc_norm", "pass@1", "")


def choose_metrics(
    entries: Sequence[ScoreEntry], requested: Mapping[str, str]
) -> tuple[list[ScoreEntry], dict[str, str]]:
    """Choose one metric for each task, the same for all models.

    Parameters
    ----------
    entries : all scores of the files
    requested : task → metric, as the user chose

    Returns
    -------
    The entries of the chosen metrics, and the chosen metric of each task.
    """
    metrics: dict[str, list[str]] = {}
    for r in entries:
        metrics.setdefault(r.score.task, [])
        if np.isfinite(r.score.accuracy):
            metrics[r.score.task].append(r.metric)
    _refuse_unknown(requested, metrics)
    by_task = {task: _choose(task, list(dict.fromkeys(names)), requested.get(task)) for task, names in metrics.items()}
    chosen = [r for r in entries if r.metric == by_task[r.score.task] and np.isfinite(r.score.accuracy)]
    _refuse_without(entries, chosen, by_task)
    return chosen, {task: metric for task, metric in by_task.items() if metric}


def _refuse_unknown(requested: Mapping[str, str], metrics: Mapping[str, Sequence[str]]) -> None:
    for task in requested:
        if task not in metrics:
            raise InputError(f"--metric: no scores of task {task!r} in these files{did_you_mean(task, metrics)}")


def _refuse_without(entries: Sequence[ScoreEntry], chosen: Sequence[ScoreEntry], by_task: Mapping[str, str]) -> None:
    """Raise an error for a model without the chosen metric, instead of dropping it silently."""
    have = {(r.score.model, r.score.task) for r in chosen}
    for r in entries:
        if (r.score.model, r.score.task) not in have:
            metric = by_task[r.score.task]
            raise InputError(
                f"{r.where}: no metric {metric!r}, which the other files have for {r.score.task!r}; "
                f"choose one that all files have with --metric {r.score.task}=…"
            )


def _choose(task: str, names: Sequence[str], requested: str | None) -> str:
    if not names:
        raise InputError(f"{task}: no usable metric in these files; an accuracy is in 0..1 and higher is better")
    if requested is not None:
        if requested not in names:
            hint = did_you_mean(requested, names)
            raise InputError(f"{task}: no metric {requested!r}{hint}; found {', '.join(names)}")
        return requested
    quoted = next((q for name, q in QUOTED.items() if task.startswith(name)), ())
    for metric in (*quoted, *GENERAL):
        if metric in names:
            return metric
    if len(names) == 1:
        return names[0]
    raise InputError(f"{task}: which metric? found {', '.join(names)}; choose one with --metric {task}={names[0]}")
