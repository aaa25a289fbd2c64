"""Create a study from logs of lm-evaluation-harness or lighteval, without running a model.

create_from_logs("study", "results", items=0.5)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from benchcast.datasets.table import create_whole
from benchcast.errors import InputError
from benchcast.formatting import need_name
from benchcast.logs.held_out import members, rescore_others
from benchcast.logs.items import LoggedItem
from benchcast.logs.losses import items_by_model, model_losses
from benchcast.logs.runs import LoggedRun, read_runs
from benchcast.presets import logged_tasks
from benchcast.records import ModelInfo, Score, Task, TextSet
from benchcast.scores.gather import ImportedScores, ImportOptions, gather, refuse_mixed
from benchcast.scores.lm_eval import read_results
from benchcast.store import Study

ADVICE = "one study takes runs of one version with the same shots; move the others to another folder"
Items = Mapping[str, Mapping[str, Sequence[LoggedItem]]]  # model → task → items


@dataclass(frozen=True, slots=True, repr=False)
class LoggedStudy:
    """A study that was made from logs, and what was chosen."""

    study: Study
    scores: ImportedScores
    notes: tuple[str, ...]  # one line for each task that gives no losses or no score

    def __repr__(self) -> str:
        return (
            f"<LoggedStudy {str(self.study.root)!r}: {len(self.study.texts)} texts, {len(self.scores.scores)} scores>"
        )


def create_from_logs(
    root: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    items: float = 1.0,
    seed: int = 0,
    options: ImportOptions | None = None,
    preset: str = "",
) -> LoggedStudy:
    """Create a study from runs of lm-evaluation-harness with `--log_samples`, or of lighteval with `--save-details`.

    Parameters
    ----------
    root : folder to create
    folder : the output of the runs: results_*.json with samples_*.jsonl beside them; the folders results/ and details/
        of lighteval
    items : share of the items that become texts; if below 1, scores are of the other items
    seed : seed of the drawn items and of everything random in the study
    options : metric of each task, renamed models, whether to accept runs with `--limit`; None: the defaults
    preset : name of a suite whose tasks are taken, with their chance and metric; empty: all tasks of the logs

    Returns
    -------
    the study (`.study`), its scores with the metric of each task (`.scores`), and notes; nothing is written if one file
    cannot be used

    >>> import benchcast as bc
    >>> options = bc.ImportOptions(metrics={"pond_write": "exact_match,strict-match"})
    >>> bc.create_from_logs("new", "results", options=options)
    <LoggedStudy 'new': 34 texts, 30 scores>
    """
    if not 0 < items <= 1:
        raise InputError(f"items = {items:g}; it is a share of the items, above 0 and at most 1")
    chosen, path = options or ImportOptions(), Path(folder)
    runs = read_runs(path)
    logged = items_by_model(runs, ())
    scored, without_score = _scored_tasks(runs, allow_limit=chosen.allow_limit)
    tasks = [_task(name, runs) for name in scored]
    if preset:
        tasks, missing = logged_tasks(preset, tasks)
        without_score = [*without_score, *missing]
    rescore = rescore_others(items, seed, runs) if items < 1 else None
    gathered = gather([run.path for run in runs], tasks, [], [], replace(chosen, allow_mixed=True), rescore)
    refuse_mixed(gathered.scores, [], ADVICE)
    scores = [_counted(score, runs) for score in gathered.scores]
    tasks, unscored = _with_scores(tasks, scores)
    texts = _texts(logged, items, seed)
    losses = [model_losses(str(path), model, by_task, texts) for model, by_task in logged.items()]
    names = {run.model: gathered.renamed.get(run.model, run.model) for run in runs}
    sized = {names[run.model]: run.params for run in runs if np.isfinite(run.params)}

    def fill(place: Path) -> None:
        study = Study.create(place, texts, tasks=tasks, seed=seed, items=items)
        study.add_losses(losses)
        if sized:
            study.add_models([ModelInfo(name, params=params) for name, params in sized.items()])
        study.add_scores(scores)

    study = create_whole(root, fill)
    only_scores = [n for n in _without_losses(logged, texts) if n not in {t for t, _ in unscored}]
    notes = [f"{name}: no losses in the logs; only its scores are used" for name in only_scores]
    return LoggedStudy(study, gathered, (*without_score, *(note for _, note in unscored), *notes))


def _scored_tasks(runs: Sequence[LoggedRun], *, allow_limit: bool) -> tuple[list[str], list[str]]:
    """Tasks to forecast, which are those of the results that are in no group; and notes on tasks without a score."""
    usable: dict[str, bool] = {}
    inside: set[str] = set()
    for run in runs:
        groups = run.document.get("group_subtasks")
        for group, inner in groups.items() if isinstance(groups, Mapping) else ():
            inside |= {str(task) for task in inner if task != group} if isinstance(inner, list) else set()
        for entry in read_results(run.path, run.document, allow_limit=allow_limit, harness=run.harness):
            name = need_name(entry.score.task, str(run.path))
            usable[name] = usable.get(name, False) or bool(np.isfinite(entry.score.accuracy))
    notes = [
        f"{name}: no accuracy in the results; its texts are used, it is no task" for name in usable if not usable[name]
    ]
    return [name for name, is_usable in usable.items() if is_usable and name not in inside], notes


def _task(name: str, runs: Sequence[LoggedRun]) -> Task:
    """A task with the texts of its members, and with chance from their numbers of options."""
    run = next(run for run in runs if name in run.document["results"])
    leaves = [leaf for leaf in members(run.document, name) if leaf in run.items]
    items = [item for leaf in leaves for item in run.items[leaf]]
    chance = float(np.mean([1 / item.options if item.options else 0.0 for item in items])) if items else 0.0
    sources = tuple(leaf for leaf in leaves if any(item.has_loss for item in run.items[leaf]))
    return Task(name, round(chance, 4), sources)


def _counted(score: Score, runs: Sequence[LoggedRun]) -> Score:
    """The score with its number of items, which results of lighteval do not state."""
    if np.isfinite(score.n_items):
        return score
    run = next(run for run in runs if score.task in run.document["results"])
    counts = [len(run.items.get(leaf, ())) for leaf in members(run.document, score.task)]
    return replace(score, n_items=float(sum(counts)) if all(counts) else score.n_items)


def _texts(logged: Items, share: float, seed: int) -> TextSet:
    """The drawn items of all tasks as texts, from the first model that has the task."""
    texts = {}
    for tasks in logged.values():
        for task, items in tasks.items():
            if task not in texts:
                texts[task] = [i.as_text() for i in items if i.has_loss and i.drawn(share, seed)]
    all_texts = [text for of_task in texts.values() for text in of_task]
    if not all_texts:
        raise InputError("the logs hold no log-likelihoods of answers (only generations?); a study needs some")
    return TextSet.of(all_texts)


def _with_scores(tasks: Sequence[Task], scores: Sequence[Score]) -> tuple[list[Task], list[tuple[str, str]]]:
    """Tasks that have scores, and the others, each with a note."""
    scored = {s.task for s in scores}
    why = "its samples do not hold the metric of the results, so a part of the items has no score; it is no task"
    kept = [t for t in tasks if t.name in scored or t.members]
    return kept, [(t.name, f"{t.name}: {why}") for t in tasks if t not in kept]


def _without_losses(logged: Items, texts: TextSet) -> list[str]:
    """Tasks of the logs that have no texts."""
    names = dict.fromkeys(task for tasks in logged.values() for task in tasks)
    return [name for name in names if name not in texts.sources]
