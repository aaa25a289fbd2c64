"""Outcomes of items for a study: which items of the logs belong to its tasks, and how right each model was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchcast.importers.logs.item_table import ItemTable
from benchcast.importers.logs.runs import LoggedRun, Results, run_of
from benchcast.importers.scores.entries import ScoreEntry, ScoreFile
from benchcast.importers.scores.formats import expand
from benchcast.importers.scores.lm_eval import read_results
from benchcast.importers.scores.names import choose_metrics, match_tasks
from benchcast.records import Task
from benchcast.study.outcomes import Outcomes, TaskOutcomes


def members(document: Mapping[str, object], task: str) -> list[str]:
    """Tasks with items of their own that a group consists of; a task that is no group is its only member."""
    groups = document.get("group_subtasks")
    inside = groups.get(task) if isinstance(groups, Mapping) else None
    others = [str(member) for member in inside if member != task] if isinstance(inside, list) else []
    return [leaf for member in others for leaf in members(document, member)] if others else [task]


def runs_with_samples(sources: Sequence[Path | ScoreFile]) -> list[LoggedRun]:
    """The runs of either harness among score files and folders that have samples beside them."""
    runs = []
    for source in expand(sources):
        file = source if isinstance(source, ScoreFile) else _json_file(source)
        if file is not None and isinstance(file.head, Mapping) and isinstance(file.head.get("results"), Mapping):
            results = Results.of(file)
            runs += [run_of(results)] if results.samples else []
    return runs


def _json_file(path: Path) -> ScoreFile | None:
    return ScoreFile.read(path) if path.suffix.lower() == ".json" else None


def logged_outcomes(
    runs: Sequence[LoggedRun],
    tasks: Sequence[Task],
    names: Mapping[str, str],
    *,
    metrics: Mapping[str, str],
    renames: Mapping[str, str] | None = None,
) -> list[Outcomes]:
    """How each model of the runs did on the items of a study's tasks.

    A task is left out where an item lacks the metric, or where its values are not from 0 to 1.

    Parameters
    ----------
    runs : runs of any models
    tasks : tasks of the study
    names : name of a model in the results → in the study
    metrics : task of the study → metric that is its score; for other tasks it is chosen as in `init`
    renames : name of a task in the logs → in the study
    """
    renamed = renames or {}
    wanted = [t.name for t in tasks if not t.members]
    by_model: dict[str, dict[str, TaskOutcomes]] = {}
    for run in runs:
        of_model = by_model.setdefault(names[run.model], {})
        matched = match_tasks(map(str, run.results.document["results"]), wanted, renamed)
        entries: list[ScoreEntry] = []
        for in_log, task in matched.items():
            if task in of_model:
                continue
            leaves = members(run.results.document, in_log)
            if not all(run.items.get(leaf) for leaf in leaves):
                continue
            if task not in metrics and not entries:
                entries = _entries(run)
            metric = metrics.get(task) or _usual_metric(in_log, entries)
            found = task_outcomes({leaf: run.items[leaf] for leaf in leaves}, metric)
            if found is not None:
                of_model[task] = found
    return [Outcomes(model, of_model) for model, of_model in by_model.items() if of_model]


def _entries(run: LoggedRun) -> list[ScoreEntry]:
    results = run.results
    return read_results(results.file.path, results.document, allow_limit=True, harness=results.harness)


def _usual_metric(task: str, entries: Sequence[ScoreEntry]) -> str:
    """The metric of a task that `init` chooses; empty if the results hold none that can be an accuracy."""
    of_task = [e for e in entries if e.score.task == task and np.isfinite(e.score.accuracy)]
    return choose_metrics(of_task, {})[1].get(task, "") if of_task else ""


def task_outcomes(items: Mapping[str, ItemTable], metric: str) -> TaskOutcomes | None:
    """The outcomes of the items of a task's parts; None if one lacks the metric or has no value from 0 to 1."""
    right = np.concatenate([of_part.metric(metric) for of_part in items.values()])
    if not len(right) or not ((right >= 0) & (right <= 1)).all():
        return None
    return TaskOutcomes(
        metric=metric,
        parts=tuple(part for part, of_part in items.items() for _ in range(len(of_part))),
        items=tuple(name for of_part in items.values() for name in of_part.asked.item_names),
        passages=tuple(passage for of_part in items.values() for passage in of_part.asked.passages),
        right=right,
    )
