"""Read score files and convert them to score rows with the study's names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from benchcast.errors import InputError
from benchcast.importers.scores.entries import ReaderOptions, Rescore, ScoreEntry, ScoreFile
from benchcast.importers.scores.formats import expand, read_score_file
from benchcast.importers.scores.names import chance_of, choose_metrics, match_models, match_tasks
from benchcast.messages import counted, need_name
from benchcast.records import Score, Task


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of `import_scores` and `create_from_logs`.

    >>> import benchcast as bc
    >>> options = bc.ImportOptions(metrics={"gsm8k": "exact_match,strict-match"}, unit="percent")
    """

    metrics: Mapping[str, str] = field(default_factory=dict)  # task of the study → metric
    renames: Mapping[str, str] = field(default_factory=dict)  # name in files → in the study; one * on each side
    unit: str | None = None  # of tables, "fraction" or "percent"; None: what the format says
    columns: tuple[str, ...] = ()  # patterns of columns that are scores, in exports of W&B, MLflow and TensorBoard
    add_tasks: tuple[str, ...] = ()  # patterns of tasks in files to add to the study
    allow_mixed: bool = False  # accept different harnesses, versions or shots for one task
    allow_limit: bool = False  # accept lm-eval results of a part of each task
    force: bool = False  # replace scores of the study


@dataclass(frozen=True, slots=True, repr=False)
class ImportedScores:
    """Scores of the files, with the study's names, and the choices made on import."""

    scores: tuple[Score, ...]
    new_tasks: tuple[Task, ...]
    kinds: Mapping[str, int]  # file format → number of files
    metrics: Mapping[str, str]  # task → chosen metric
    left_out: tuple[str, ...]  # tasks of the files that the study does not have
    renamed: Mapping[str, str]  # model name in the files → different name in the study
    unmatched: Mapping[str, Sequence[str]]  # model that the study does not have → similar names
    added: int = 0  # number of scores that the study did not have
    without_losses: tuple[str, ...] = ()  # models of these scores that have no losses in the study
    in_files: tuple[str, ...] = ()  # models, then tasks, as the files name them
    warnings: tuple[str, ...] = ()  # a line on renames that match no name

    def __repr__(self) -> str:
        scores = counted(len(self.scores), "score")
        return f"<ImportedScores: {scores}, {self.added} added, {len(self.new_tasks)} new tasks>"


def gather(
    sources: Sequence[Path | ScoreFile],
    tasks: Sequence[Task],
    known: Sequence[str],
    old: Sequence[Score],
    choices: ImportOptions,
    *,
    rescore: Rescore | None = None,
) -> ImportedScores:
    """Read score files; any error rejects all of them.

    Parameters
    ----------
    sources : score files, folders with such files, or files that have been read
    tasks : tasks of the study
    known : names of the study's models
    old : scores of the study
    choices : options of the user
    rescore : replaces the scores of lm-eval results by scores of a part of their items; None: all items count
    """
    names = [t.name for t in tasks]
    kinds, entries = _read(sources, tasks, choices, rescore=rescore)
    task_of = match_tasks((e.score.task for e in entries), names, choices.renames)
    added = _added(entries, task_of, tasks, choices=choices)
    task_of |= {t.name: t.name for t in added}
    left_out = tuple(dict.fromkeys(e.score.task for e in entries if e.score.task not in task_of))
    if not task_of:
        in_files = (", ".join(left_out[:8]) + (" …" if len(left_out) > 8 else "")) or "no scores"
        known_tasks = f"study.toml has {', '.join(names)}" if names else "study.toml has no tasks yet"
        raise InputError(f"no task of the study in these files: found {in_files}; {known_tasks} (--rename maps names)")
    of_tasks = [
        replace(e, score=replace(e.score, task=task_of[e.score.task])) for e in entries if e.score.task in task_of
    ]
    present = {e.score.task for e in of_tasks}
    of_study = {t.name: t.metric for t in tasks if t.metric and t.name in present}
    chosen, metrics = choose_metrics(of_tasks, {**of_study, **choices.metrics})
    models, unmatched = match_models((e.score.model for e in chosen), known, choices.renames)
    scores = _once([replace(e, score=replace(e.score, model=models[e.score.model])) for e in chosen])
    if not choices.allow_mixed:
        refuse_mixed(scores, old)
    if not choices.force:
        _refuse_changed(scores, old)
    return ImportedScores(
        scores=tuple(scores),
        new_tasks=tuple(added),
        kinds=kinds,
        metrics=metrics,
        left_out=left_out,
        renamed={a: b for a, b in models.items() if a != b},
        unmatched=unmatched,
        in_files=tuple(dict.fromkeys([*(e.score.model for e in entries), *(e.score.task for e in entries)])),
    )


def _read(
    sources: Sequence[Path | ScoreFile], tasks: Sequence[Task], choices: ImportOptions, *, rescore: Rescore | None
) -> tuple[Counter[str], list[ScoreEntry]]:
    """Number of files of each format, and their scores with the names used in the files."""

    def pick(in_file: list[str]) -> set[str]:
        of_study = match_tasks(in_file, [t.name for t in tasks], choices.renames)
        return {*of_study, *(name for name in in_file if _matches(name, choices.add_tasks))}

    options = ReaderOptions(
        tasks=tasks,
        pick=pick,
        unit=choices.unit,
        columns=choices.columns,
        allow_limit=choices.allow_limit,
        rescore=rescore,
    )
    kinds: Counter[str] = Counter()
    entries: list[ScoreEntry] = []
    for source in expand(sources):
        kind, of_file = read_score_file(source, options)
        kinds[kind] += 1
        for entry in of_file:
            need_name(entry.score.model, entry.where[:200])
            need_name(entry.score.task, entry.where[:200])
        entries += of_file
    return kinds, entries


def _matches(task: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(task, pattern) for pattern in patterns)


def _added(
    entries: Sequence[ScoreEntry], task_of: Mapping[str, str], tasks: Sequence[Task], *, choices: ImportOptions
) -> list[Task]:
    """Tasks to add to the study; a subtask uses the texts of the task that it is part of."""
    new_names = dict.fromkeys(e.score.task for e in entries if e.score.task not in task_of)
    added = []
    for name in new_names:
        if _matches(name, choices.add_tasks):
            parents = [t for t in tasks if t.name in name]
            sources = max(parents, key=lambda t: len(t.name)).sources if parents else ()
            added.append(Task(name, chance_of(name), sources))
    return added


def _once(entries: Sequence[ScoreEntry]) -> list[Score]:
    """One score for each model and task; equal duplicates are merged, different ones are an error."""
    first: dict[tuple[str, str], ScoreEntry] = {}
    for entry in entries:
        other, score = first.setdefault((entry.score.model, entry.score.task), entry), entry.score
        sizes = {n for n in (other.score.n_items, score.n_items) if not math.isnan(n)}
        if _compared(other.score) != _compared(score) or len(sizes) > 1:
            raise InputError(
                f"{score.model!r} on {score.task!r}: {other.score.accuracy:g} in {other.where}, "
                f"{score.accuracy:g} in {entry.where} (or another harness, version, shots or number of items); "
                "remove one of them"
            )
    return [replace(e.score, stderr=e.score.stderr if math.isnan(e.stderr) else e.stderr) for e in first.values()]


def _compared(score: Score) -> tuple[float, str, str, str]:
    return score.accuracy, score.harness, score.version, score.shots


def refuse_mixed(
    scores: Sequence[Score], old: Sequence[Score], advice: str = "remove some, or accept them with --allow-mixed"
) -> None:
    """Raise an error if the scores of a task differ in harness, version or shots; `advice` ends the message."""
    new = {(s.model, s.task) for s in scores}
    tasks = {s.task for s in scores}
    together = [s for s in old if s.task in tasks and (s.model, s.task) not in new] + list(scores)
    for task in dict.fromkeys(s.task for s in scores):
        of_task = [s for s in together if s.task == task]
        for part in ("harness", "version", "shots"):
            values = dict.fromkeys(getattr(s, part) for s in of_task)
            if len(values) > 1:
                shown = ", ".join(repr(v) if v else "unstated" for v in list(values)[:4])
                raise InputError(f"{task}: scores with different {part} ({shown}) are not comparable; {advice}")


def _refuse_changed(scores: Sequence[Score], old: Sequence[Score]) -> None:
    before = {(s.model, s.task): s.accuracy for s in old}
    for s in scores:
        was = before.get((s.model, s.task), s.accuracy)
        if was != s.accuracy:
            raise InputError(
                f"{s.model!r} has accuracy {was:g} on {s.task!r} in the study, "
                f"the file says {s.accuracy:g}; --force replaces it"
            )
