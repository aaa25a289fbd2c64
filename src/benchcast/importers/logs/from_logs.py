"""Create a study from evaluation logs: items become texts, log-likelihoods of right answers losses, results scores.

A loss contains the answer that it is to forecast: with few items, luck on these items lowers the loss and raises the
score. With `items = 0.5` in study.toml, half of the items give losses and the other half the scores.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from benchcast.errors import InputError
from benchcast.importers.logs.item_outcomes import logged_outcomes, members
from benchcast.importers.logs.item_table import ItemTable
from benchcast.importers.logs.items import is_drawn
from benchcast.importers.logs.log_record import LogRecord
from benchcast.importers.logs.runs import LoggedRun, Results, read_runs, results_beside, run_of
from benchcast.importers.loss_table import create_whole
from benchcast.importers.presets import logged_tasks
from benchcast.importers.scores import ImportedScores, ImportOptions, gather, refuse_mixed
from benchcast.importers.scores.entries import Rescore, ScoreEntry, ScoreFile
from benchcast.importers.scores.lm_eval import read_results
from benchcast.importers.scores.names import match_models
from benchcast.messages import need_name
from benchcast.records import CHOICE_LOSSES, Floats, Score, Task, TextSet, TokenLosses
from benchcast.study.loss_files import LossRows, lay_out
from benchcast.study.model_names import check_renames, guessed_infos, unused_renames
from benchcast.study.outcomes import add_outcomes
from benchcast.study.study import Study

CLOSE = 1e-6  # difference between a score in the results and the mean of its items that rounding explains
BACKEND = "lm-eval"
ADVICE = "one study takes runs of one version with the same shots; move the others to another folder"
NOT_IN_SAMPLES = "its samples do not hold the metric of the results, so a part of the items has no score; it is no task"
Items = Mapping[str, Mapping[str, ItemTable]]  # model → task → items


@dataclass(frozen=True, slots=True, repr=False)
class LoggedStudy:
    """A study that was made from logs, and what was chosen."""

    study: Study
    scores: ImportedScores
    notes: tuple[str, ...]  # one line for each task that gives no losses or no score
    warnings: tuple[str, ...] = ()  # a line on renames that match no name

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
    tokens_per_step: float = math.nan,
    on_file: Callable[[Path], None] = lambda path: None,
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
    tokens_per_step : training tokens of one step, for models whose name has a step; NaN: unknown
    on_file : called with the path of each file of samples after it is read

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
    runs = read_runs(path, on_file=on_file)
    check_renames(chosen.renames)
    names, _ = match_models((run.model for run in runs), (), chosen.renames)
    logged = items_by_model(runs, names)
    tasks, notes = _tasks(runs, allow_limit=chosen.allow_limit, preset=preset)
    rescore = rescore_others(items, seed, runs) if items < 1 else None
    files = [run.results.file for run in runs]
    renames = {**chosen.renames, **names}
    gathered = gather(files, tasks, [], [], replace(chosen, renames=renames, allow_mixed=True), rescore=rescore)
    refuse_mixed(gathered.scores, [], ADVICE)
    scores = [_counted(score, runs) for score in gathered.scores]
    scored = {s.task for s in scores}
    unscored = [t.name for t in tasks if t.name not in scored and not t.members]
    texts = _texts(logged, items, seed)
    losses = [model_losses(str(path), model, by_task, texts) for model, by_task in logged.items()]
    sized = {names[run.model]: run.params for run in runs if np.isfinite(run.params)}

    def fill(place: Path) -> None:
        kept = [t for t in tasks if t.name not in unscored]
        study = Study.create(place, texts, tasks=kept, seed=seed, items=items)
        study.add_losses(losses)
        study.add_models(guessed_infos(names.values(), params=sized, tokens_per_step=tokens_per_step))
        study.add_scores(scores)
        add_outcomes(study, logged_outcomes(runs, kept, names, metrics=gathered.metrics, renames=chosen.renames))
        in_folder = {os.path.relpath(run.results.file.path, path): run.model for run in runs}
        record = LogRecord(in_folder, names, gathered.metrics, tokens_per_step=tokens_per_step)
        record.write(place)

    study = create_whole(root, fill)
    notes += [f"{name}: {NOT_IN_SAMPLES}" for name in unscored]
    in_logs = dict.fromkeys(task for by_task in logged.values() for task in by_task)
    without_texts = [name for name in in_logs if name not in texts.sources and name not in unscored]
    notes += [f"{name}: no losses in the logs; only its scores are used" for name in without_texts]
    warnings = unused_renames(chosen.renames, [*(run.model for run in runs), *gathered.in_files, *in_logs])
    return LoggedStudy(study=study, scores=gathered, notes=tuple(notes), warnings=warnings)


def _tasks(runs: Sequence[LoggedRun], *, allow_limit: bool, preset: str) -> tuple[list[Task], list[str]]:
    """Tasks to forecast, which are those of the results that are in no group; and notes on those that are left out."""
    usable: dict[str, bool] = {}
    inside: set[str] = set()
    for run in runs:
        document = run.results.document
        groups = document.get("group_subtasks")
        for group, inner in groups.items() if isinstance(groups, Mapping) else ():
            inside |= {str(task) for task in inner if task != group} if isinstance(inner, list) else set()
        path, harness = run.results.file.path, run.results.harness
        for entry in read_results(path, document, allow_limit=allow_limit, harness=harness):
            name = need_name(entry.score.task, str(path))
            usable[name] = usable.get(name, False) or bool(np.isfinite(entry.score.accuracy))
    notes = [
        f"{name}: no accuracy in the results; its texts are used, it is no task" for name in usable if not usable[name]
    ]
    tasks = [_task(name, runs) for name, is_usable in usable.items() if is_usable and name not in inside]
    if preset:
        tasks, missing = logged_tasks(preset, tasks)
        notes += missing
    return tasks, notes


def _task(name: str, runs: Sequence[LoggedRun]) -> Task:
    """A task with the texts of its members, and with chance from their numbers of options."""
    run = next(run for run in runs if name in run.results.document["results"])
    leaves = [leaf for leaf in members(run.results.document, name) if leaf in run.items]
    options = [count for leaf in leaves for count in run.items[leaf].asked.options]
    chance = float(np.mean([1 / count if count else 0.0 for count in options])) if options else 0.0
    sources = tuple(leaf for leaf in leaves if run.items[leaf].has_loss.any())
    return Task(name, round(chance, 4), sources)


def _counted(score: Score, runs: Sequence[LoggedRun]) -> Score:
    """The score with its number of items, which results of lighteval do not state."""
    if np.isfinite(score.n_items):
        return score
    run = next(run for run in runs if score.task in run.results.document["results"])
    counts = [len(run.items.get(leaf, ())) for leaf in members(run.results.document, score.task)]
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


def items_by_model(runs: Sequence[LoggedRun], names: Mapping[str, str]) -> dict[str, dict[str, ItemTable]]:
    """Items of each model by task, over all of its runs.

    Parameters
    ----------
    runs : runs of any models
    names : name of a model in the results → in the study
    """
    by_model: dict[str, dict[str, ItemTable]] = {}
    for run in runs:
        model, path = names[run.model], run.results.file.path
        of_model = by_model.setdefault(model, {})
        for task, items in run.items.items():
            before = of_model.setdefault(task, items)
            if not items.has_losses_of(before) and (before.has_loss.any() or items.has_loss.any()):
                raise InputError(f"{path}: {model} has other samples of {task!r} in another run; remove one of them")
    return by_model


def read_logs(paths: Sequence[Path]) -> list[LoggedRun]:
    """The runs in folders with results and samples, or of sample files with their results beside them."""
    read = cache(Results.read)  # several sample files may belong to one run
    runs: list[LoggedRun] = []
    for path in paths:
        runs += read_runs(path) if path.is_dir() else [run_of(results_beside(path, read), only=path)]
    return runs


def losses_from_logs(
    where: str, runs: Sequence[LoggedRun], texts: TextSet, *, names: Mapping[str, str]
) -> list[TokenLosses]:
    """Losses of every model of some runs, on the texts of a study that was made from such logs.

    Parameters
    ----------
    where : origin of the runs, for messages
    runs : runs of any models
    texts : texts of the study
    names : name of a model in the results → in the study
    """
    models = items_by_model(runs, names)
    return [model_losses(where, model, tasks, texts) for model, tasks in models.items()]


def model_losses(where: str, model: str, tasks: Mapping[str, ItemTable], texts: TextSet) -> TokenLosses:
    """Losses of one model: the answer of each text is one token, its prompt one without a loss.

    Items of tasks that the study has no texts of are left out, and so are items whose losses are not in the study.
    """
    places = {
        text_id: (of_task, i)
        for of_task in tasks.values()
        for i, (text_id, has_loss) in enumerate(zip(of_task.asked.text_ids, of_task.has_loss.tolist(), strict=True))
        if has_loss
    }
    sources = {task for task, of_task in tasks.items() if of_task.has_loss.any()}
    ids = [text.id for text in texts if text.source in sources]
    for text_id in ids:
        if text_id not in places:
            _refuse_item(where, model, text_id, places)
    if not ids:
        raise InputError(
            f"{where}: {model} has no losses of the study's texts; logged are {', '.join(sorted(sources)) or 'none'}, "
            f"the study has {', '.join(texts.sources[:5])}"
        )
    rows = [places[text_id] for text_id in ids]
    bounds = [of_task.asked.bounds[i] for of_task, i in rows]
    counts = np.array([len(of_text) - 1 for of_text in bounds])
    nats = np.full(int(counts.sum()), np.nan)
    nats[np.cumsum(counts) - 1] = [of_task.answers.nats[i] for of_task, i in rows]
    loss_rows = LossRows(
        where=where,
        model=model,
        ids=ids,
        bounds=np.concatenate(bounds),
        bound_counts=counts + 1,
        nats=nats,
        counts=counts,
        choices={name: np.array([getattr(of_task.answers, name)[i] for of_task, i in rows]) for name in CHOICE_LOSSES},
    )
    return lay_out(loss_rows, texts, {"backend": BACKEND})


def _refuse_item(where: str, model: str, text_id: str, logged: Iterable[str]) -> NoReturn:
    item = text_id.rpartition("-")[0]
    if item in {other.rpartition("-")[0] for other in logged}:
        raise InputError(
            f"{where}: {model} was asked item {item} with another prompt or answer than the study's models; "
            "were shots, task version or chat template different?"
        )
    raise InputError(f"{where}: {model} lacks item {item} of the study; was it run with --limit or on other data?")


def rescore_others(share: float, seed: int, runs: Sequence[LoggedRun] = ()) -> Rescore:
    """A function that replaces scores of lm-eval results by scores on the items outside a random share.

    Parameters
    ----------
    share : share of the items whose losses are texts of the study
    seed : seed of the study, which draws them
    runs : runs that have been read, so that they are not read again
    """
    known = {run.results.file.path: run for run in runs}

    def rescore(file: ScoreFile, document: Mapping[str, Any], entries: list[ScoreEntry]) -> list[ScoreEntry]:
        items = (known[file.path] if file.path in known else run_of(Results.of(file))).items
        kept: list[ScoreEntry] = []
        for entry in entries:
            if not math.isfinite(entry.score.accuracy):
                kept.append(entry)
                continue
            leaves = members(document, entry.score.task)
            values = [_values(items.get(task), entry.metric, share=share, seed=seed) for task in leaves]
            rescored = _rescored(entry, values)
            kept += [] if rescored is None else [rescored]
        return kept

    return rescore


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of one metric on the items of one task."""

    all: Floats
    kept: Floats  # on the items that are scored


def _values(items: ItemTable | None, metric: str, *, share: float, seed: int) -> _Values:
    """Values of a metric; none if one of the items lacks it."""
    values = np.array([]) if items is None else items.metric(metric)
    if items is None or np.isnan(values).any():
        return _Values(all=np.array([]), kept=np.array([]))
    drawn = np.array([is_drawn(document, share, seed) for document in items.asked.documents])
    return _Values(all=values, kept=values[~drawn])


def _rescored(entry: ScoreEntry, values: Sequence[_Values]) -> ScoreEntry | None:
    """The score on the other items; None for a metric that is no mean over items.

    A group has the mean over its items or over its tasks; the one that agrees with the results is used.
    """
    if any(not len(v.all) for v in values):
        return None
    for weights in ([len(v.all) for v in values], [1] * len(values)):
        if abs(_mean([v.all for v in values], weights) - entry.score.accuracy) < CLOSE:
            if any(not len(v.kept) for v in values):
                raise InputError(f"{entry.where}: no items are left to score; choose a smaller share of items")
            return _scored(entry, [v.kept for v in values], by_size=len(set(weights)) > 1 or len(values) == 1)
    if entry.metric == "acc" or len(values) == 1:
        raise InputError(
            f"{entry.where}: {entry.metric} is {entry.score.accuracy:g} in the results and "
            f"{_mean([v.all for v in values], [len(v.all) for v in values]):g} over the samples; "
            "are they of the same run?"
        )
    return None


def _scored(entry: ScoreEntry, values: Sequence[Floats], *, by_size: bool) -> ScoreEntry:
    """Mean and standard error over the scored items."""
    weights = [len(v) for v in values] if by_size else [1] * len(values)
    share = np.array(weights) / sum(weights)
    variance = [v.var(ddof=1) / len(v) if len(v) > 1 else math.nan for v in values]
    error = float(np.sqrt(np.sum(share**2 * variance)))
    score = replace(entry.score, accuracy=_mean(values, weights), n_items=float(sum(map(len, values))))
    return replace(entry, score=score, stderr=error)


def _mean(values: Sequence[Floats], weights: Sequence[int]) -> float:
    return float(np.average([v.mean() for v in values], weights=weights))
