"""Read score files and convert them to score rows with the study's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from benchcast.errors import InputError
from benchcast.importers.scores.entries import ScoreEntry
from benchcast.importers.scores.formats import ReaderOptions, Rescore, expand, read_score_file
from benchcast.importers.scores.names import chance_of, choose_metrics, match_models, match_tasks
from benchcast.messages import counted, need_name
from benchcast.records import Score, Task


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of the user for an import."""

    metrics: Mapping[str, str] = field(default_factory=dict)  # task of the study → metric
    renames: Mapping[str, str] = field(default_factory=dict)  # name in files → name in the study
    unit: str | None = None  # of wide tables
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

    def __repr__(self) -> str:
        scores = counted(len(self.scores), "score")
        return f"<ImportedScores: {scores}, {self.added} added, {len(self.new_tasks)} new tasks>"


def gather(
    paths: Sequence[Path],
    tasks: Sequence[Task],
    known: Sequence[str],
    old: Sequence[Score],
    choices: ImportOptions,
    rescore: Rescore | None = None,
) -> ImportedScores:
    """Read score files; any error rejects all of them.

    Parameters
    ----------
    paths : score files, or folders with such files
    tasks : tasks of the study
    known : names of the study's models
    old : scores of the study
    choices : options of the user
    rescore : replaces the scores of lm-eval results by scores of a part of their items; None: all items count
    """
    names = [t.name for t in tasks]
    kinds: Counter[str] = Counter()
    entries: list[ScoreEntry] = []
    options = _reader_options(tasks, names, choices, rescore)
    for path in expand(paths):
        kind, file_entries = read_score_file(path, options)
        kinds[kind] += 1
        for r in file_entries:
            for name in (r.score.model, r.score.task):
                need_name(name, r.where[:200])
        entries += file_entries
    task_of = match_tasks((r.score.task for r in entries), names, choices.renames)
    added = _added(entries, task_of, tasks, choices)
    task_of |= {t.name: t.name for t in added}
    left_out = tuple(dict.fromkeys(r.score.task for r in entries if r.score.task not in task_of))
    if not task_of:
        raise InputError(_nothing(left_out, names))
    renamed_entries = [
        replace(r, score=replace(r.score, task=task_of[r.score.task])) for r in entries if r.score.task in task_of
    ]
    present = {r.score.task for r in renamed_entries}
    of_study = {t.name: t.metric for t in tasks if t.metric and t.name in present}
    chosen, metrics = choose_metrics(renamed_entries, {**of_study, **choices.metrics})
    models, unmatched = match_models((r.score.model for r in chosen), known, choices.renames)
    scores = _once([replace(r, score=replace(r.score, model=models[r.score.model])) for r in chosen])
    if not choices.allow_mixed:
        refuse_mixed(scores, old)
    if not choices.force:
        _refuse_changed(scores, old)
    renamed = {a: b for a, b in models.items() if a != b}
    return ImportedScores(tuple(scores), tuple(added), kinds, metrics, left_out, renamed, unmatched)


def _reader_options(
    tasks: Sequence[Task], names: Sequence[str], choices: ImportOptions, rescore: Rescore | None
) -> ReaderOptions:
    def pick(in_file: list[str]) -> set[str]:
        return set(match_tasks(in_file, names, choices.renames)) | {
            t for t in in_file if _matches(t, choices.add_tasks)
        }

    return ReaderOptions(tasks, pick, choices.unit, choices.allow_limit, rescore)


def _matches(task: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(task, pattern) for pattern in patterns)


def _added(
    entries: Sequence[ScoreEntry], task_of: Mapping[str, str], tasks: Sequence[Task], choices: ImportOptions
) -> list[Task]:
    """Tasks to add to the study; a subtask uses the texts of the task that it is part of."""
    new_names = dict.fromkeys(r.score.task for r in entries if r.score.task not in task_of)
    added = []
    for name in new_names:
        if _matches(name, choices.add_tasks):
            parents = [t for t in tasks if t.name in name]
            sources = max(parents, key=lambda t: len(t.name)).sources if parents else ()
            added.append(Task(name, chance_of(name), sources))
    return added


def _nothing(left_out: Sequence[str], names: Sequence[str]) -> str:
    in_files = ", ".join(left_out[:8]) + (" …" if len(left_out) > 8 else "")
    known = f"study.toml has {', '.join(names)}" if names else "study.toml has no tasks yet"
    return f"no task of the study in these files: found {in_files or 'no scores'}; {known} (--rename maps names)"


def _once(entries: Sequence[ScoreEntry]) -> list[Score]:
    """One score for each model and task; equal duplicates are merged, different ones are an error."""
    first: dict[tuple[str, str], ScoreEntry] = {}
    for r in entries:
        known = first.setdefault((r.score.model, r.score.task), r)
        if _compared(known.score) != _compared(r.score) or _differ(known.score.n_items, r.score.n_items):
            raise InputError(
                f"{r.score.model!r} on {r.score.task!r}: {known.score.accuracy:g} in {known.where}, "
                f"{r.score.accuracy:g} in {r.where} (or another harness, version, shots or number of items); "
                "remove one of them"
            )
    return [replace(r.score, stderr=r.stderr if r.stderr == r.stderr else r.score.stderr) for r in first.values()]


def _differ(one: float, two: float) -> bool:
    """Whether both are known and differ."""
    return one == one and two == two and one != two


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
