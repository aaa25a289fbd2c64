"""The models in output folders of evaluation harnesses, with the tasks and items that they share.

Axes: I items of one task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.decisions.paired_difference import Strings, equal_weights, weights_by_part, weights_of_score
from benchcast.errors import InputError
from benchcast.importers.logs.from_logs import CLOSE
from benchcast.importers.logs.item_outcomes import members
from benchcast.importers.logs.item_table import AskedItems, ItemTable
from benchcast.importers.logs.runs import LoggedRun, read_folders
from benchcast.importers.scores.entries import ScoreEntry
from benchcast.importers.scores.lm_eval import limit_of, read_results
from benchcast.importers.scores.names import choose_metrics, match_models
from benchcast.messages import did_you_mean, few
from benchcast.records import Floats, Ints

Key = tuple[str, str, int]  # part of the task, hash of the document, which of its occurrences


@dataclass(frozen=True, eq=False)
class TaskQuestions:
    """The items of one task, in the order of the logs; one record for all models that were asked the same."""

    keys: tuple[Key, ...]
    prompts: Strings  # I hashes
    clusters: Strings  # I hashes, equal for items that share a passage

    @classmethod
    def of(cls, parts: Mapping[str, ItemTable]) -> TaskQuestions:
        """The items of these parts of a task."""
        keys: dict[Key, None] = {}
        for part, items in parts.items():
            for doc_hash in items.asked.doc_hashes:
                occurrence = 0
                while (part, doc_hash, occurrence) in keys:
                    occurrence += 1
                keys[part, doc_hash, occurrence] = None
        asked = [items.asked for items in parts.values()]
        clusters = [p or doc_hash for a in asked for p, doc_hash in zip(a.passages, a.doc_hashes, strict=True)]
        prompts = [prompt for a in asked for prompt in a.prompt_hashes]
        return cls(keys=tuple(keys), prompts=np.array(prompts), clusters=np.array(clusters))

    @cached_property
    def index(self) -> dict[Key, int]:
        """Position of each item."""
        return {key: i for i, key in enumerate(self.keys)}

    def rows(self, keys: Sequence[Key]) -> Ints:
        """Positions of these items."""
        return np.array([self.index[key] for key in keys])


@dataclass(frozen=True, slots=True, eq=False)
class TaskItems:
    """How one model did on the items of one task."""

    metric: str
    questions: TaskQuestions
    right: Floats  # I
    by_part: bool  # whether the score is the mean over the parts of a group, not over its items

    def weights(self, rows: Ints) -> Floats:
        """Weights of these items in the score; they sum to 1."""
        keys = self.questions.keys
        return weights_by_part([keys[i][0] for i in rows]) if self.by_part else equal_weights(len(rows))


@dataclass(frozen=True, slots=True, eq=False)
class LoggedModel:
    """One model in a folder, over all of its runs."""

    name: str
    folder: Path
    entries: tuple[ScoreEntry, ...]  # all metrics of its results
    tasks: tuple[str, ...]  # that are in no group
    leaves: Mapping[str, tuple[str, ...]]  # task → tasks with items of their own
    items: Mapping[str, ItemTable]  # task with items → items
    limited: bool  # whether a run covers only the first items of each task


@dataclass(frozen=True, slots=True, eq=False)
class LoggedSide:
    """One model of a comparison, or the checkpoints and seeds of one run."""

    name: str
    models: Mapping[str, Mapping[str, TaskItems]]  # model → task → items
    limited: bool = False  # whether a run covers only the first items of each task

    @property
    def tasks(self) -> list[str]:
        """Tasks to compare."""
        return list(next(iter(self.models.values())))

    def of_task(self, task: str) -> list[TaskItems]:
        """The items of each model."""
        return [tasks[task] for tasks in self.models.values()]

    def logged(self, task: str) -> int:
        """Number of items that each model logged, or the most that one did."""
        return max(len(items.right) for items in self.of_task(task))


def read_sides(
    folders: Sequence[Path],
    *,
    models: Sequence[str],
    tasks: Sequence[str],
    metrics: Mapping[str, str],
    on_file: Callable[[Path], None],
) -> tuple[list[LoggedSide], dict[str, str]]:
    """The sides of a comparison, and the tasks that are left out with the reason.

    Parameters
    ----------
    folders : output folders of a harness
    models : names or patterns that pick models of a folder with several
    tasks : tasks to compare; empty: those outside groups that all models have
    metrics : task → metric
    on_file : called with the path of each file of samples after it is read
    """
    runs = read_folders(folders, on_file=on_file)
    found = [models_of(folder, of_folder) for folder, of_folder in zip(folders, runs, strict=True)]
    _need_matches(models, [m.name for of_folder in found for m in of_folder])
    picked = [pick(folder, of_folder, models) for folder, of_folder in zip(folders, found, strict=True)]
    everyone = [model for side in picked for model in side]
    left_out: dict[str, str] = {}
    shared = shared_tasks(everyone, tasks, left_out)
    chosen = _metrics(everyone, shared, metrics, left_out)
    questions: dict[tuple[AskedItems, ...], TaskQuestions] = {}
    by_model = {id(model): _task_items(model, chosen, left_out, questions) for model in everyone}
    usable = [task for task in chosen if all(task in by_model[id(model)] for model in everyone)]
    names = _names(folders, picked)
    sides = [
        LoggedSide(
            name=name,
            models={m.name: {task: by_model[id(m)][task] for task in usable} for m in side},
            limited=any(m.limited for m in side),
        )
        for name, side in zip(names, picked, strict=True)
    ]
    return sides, left_out


def models_of(folder: Path, runs: Sequence[LoggedRun]) -> list[LoggedModel]:
    """The models of the runs below a folder."""
    names, _ = match_models((run.model for run in runs), (), {})
    by_model: dict[str, list[LoggedRun]] = {}
    for run in runs:
        by_model.setdefault(names[run.model], []).append(run)
    return [_model(name, folder, of_model) for name, of_model in by_model.items()]


def _model(name: str, folder: Path, runs: Sequence[LoggedRun]) -> LoggedModel:
    entries: list[ScoreEntry] = []
    tasks: dict[str, None] = {}
    leaves: dict[str, tuple[str, ...]] = {}
    items: dict[str, ItemTable] = {}
    for run in runs:
        results, inside = run.results, _inside_groups(run.results.document)
        entries += read_results(results.file.path, results.document, allow_limit=True, harness=results.harness)
        for task in map(str, results.document["results"]):
            leaves[task] = tuple(members(results.document, task))
            tasks |= {task: None} if task not in inside else {}
        for leaf, of_leaf in run.items.items():
            if leaf in items and not items[leaf].equals(of_leaf):
                raise InputError(
                    f"{results.file.path}: {name} has other samples of {leaf!r} in another run; remove one"
                )
            items[leaf] = of_leaf
    return LoggedModel(
        name=name,
        folder=folder,
        entries=tuple(entries),
        tasks=tuple(tasks),
        leaves=leaves,
        items=items,
        limited=any(limit_of(run.results.document) is not None for run in runs),
    )


def _inside_groups(document: Mapping[str, Any]) -> set[str]:
    """Tasks that belong to a group of the same results."""
    groups = document.get("group_subtasks")
    pairs = groups.items() if isinstance(groups, Mapping) else ()
    return {str(task) for group, inner in pairs if isinstance(inner, list) for task in inner if task != group}


def _need_matches(patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(name == pattern or fnmatchcase(name, pattern) for name in names):
            known = few(sorted(set(names)), 6)
            raise InputError(
                f"--model {pattern}: no such model in these folders{did_you_mean(pattern, names)} ({known})"
            )


def pick(folder: Path, found: Sequence[LoggedModel], patterns: Sequence[str]) -> list[LoggedModel]:
    """The models of a folder that are compared: its only one, those of the patterns, or checkpoints of one run."""
    if len(found) == 1:
        return list(found)
    picked = [m for m in found if any(m.name == p or fnmatchcase(m.name, p) for p in patterns)]
    if picked:
        return picked
    if not patterns and len({m.name.partition("@")[0] for m in found}) == 1:
        return list(found)
    names = few([m.name for m in found], 6)
    raise InputError(
        f"{folder}: holds {len(found)} models ({names}); pick one with --model NAME, or checkpoints and "
        "seeds of one run with a pattern"
    )


def _names(folders: Sequence[Path], picked: Sequence[Sequence[LoggedModel]]) -> list[str]:
    """A name for each side: that of its model or run, or of its folder where two would be equal."""
    names = []
    for folder, side in zip(folders, picked, strict=True):
        stems = {m.name.partition("@")[0] for m in side}
        names.append(side[0].name if len(side) == 1 else stems.pop() if len(stems) == 1 else folder.name)
    if len(set(names)) == len(names):
        return names
    by_folder = [folder.name for folder in folders]
    return by_folder if len(set(by_folder)) == len(by_folder) else [str(folder) for folder in folders]


def shared_tasks(models: Sequence[LoggedModel], wanted: Sequence[str], left_out: dict[str, str]) -> list[str]:
    """The tasks that all models have, in the order of the first; the others go to `left_out`."""
    if wanted:
        for task in wanted:
            lacking = next((m for m in models if task not in m.leaves), None)
            if lacking is not None:
                raise InputError(f"{lacking.folder}: no results of task {task!r}{did_you_mean(task, lacking.leaves)}")
        return list(dict.fromkeys(wanted))
    every = dict.fromkeys(task for model in models for task in model.tasks)
    shared = []
    for task in every:
        lacking = next((m for m in models if task not in m.leaves), None)
        if lacking is None:
            shared.append(task)
        else:
            left_out[task] = f"not in {lacking.name} ({lacking.folder})"
    return shared


def _metrics(
    models: Sequence[LoggedModel], tasks: Sequence[str], wanted: Mapping[str, str], left_out: dict[str, str]
) -> dict[str, str]:
    """The metric of each task, as in `init`; a task without an accuracy goes to `left_out`."""
    entries = [e for model in models for e in model.entries if e.score.task in tasks]
    finite = {e.score.task for e in entries if np.isfinite(e.score.accuracy)}
    for task in tasks:
        if task not in finite:
            left_out[task] = "no accuracy in the results"
    _, chosen = choose_metrics([e for e in entries if e.score.task in finite], wanted)
    return {task: chosen[task] for task in tasks if task in chosen}


def _task_items(
    model: LoggedModel,
    metrics: Mapping[str, str],
    left_out: dict[str, str],
    questions: dict[tuple[AskedItems, ...], TaskQuestions],
) -> dict[str, TaskItems]:
    """The items of each task; a task whose score is no mean over its items goes to `left_out`.

    `questions` holds those of other models, and gets those that are new.
    """
    found = {}
    for task, metric in metrics.items():
        parts = {leaf: model.items[leaf] for leaf in model.leaves[task] if leaf in model.items}
        score = next(e.score.accuracy for e in model.entries if e.score.task == task and e.metric == metric)
        if not parts or len(parts) < len(model.leaves[task]):
            left_out[task] = f"no samples of {model.name}"
            continue
        right = np.concatenate([items.metric(metric) for items in parts.values()])
        if not np.isfinite(right).all():
            left_out[task] = f"the samples of {model.name} lack {metric} on some items"
        elif not ((right >= 0) & (right <= 1)).all():
            left_out[task] = f"{metric} of single items is not from 0 to 1"
        else:
            of_items = [leaf for leaf, items in parts.items() for _ in range(len(items))]
            weights = weights_of_score(right, of_items, score, close=CLOSE)
            if weights is None:
                left_out[task] = (
                    f"{metric} is no mean over items ({score:.4f} in the results of {model.name}, "
                    f"{right.mean():.4f} over its items)"
                )
            else:
                asked = tuple(items.asked for items in parts.values())
                if asked not in questions:
                    questions[asked] = TaskQuestions.of(parts)
                by_part = bool(np.ptp(weights) > 0)
                found[task] = TaskItems(metric=metric, questions=questions[asked], right=right, by_part=by_part)
    return found
