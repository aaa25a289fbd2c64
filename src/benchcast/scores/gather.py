"""Score files and a study's names → score rows, with every choice stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from benchcast.errors import InputError
from benchcast.formatting import need_name
from benchcast.records import Score, Task
from benchcast.scores.chances import chance_of
from benchcast.scores.files import ReaderOptions, expand, read_score_file
from benchcast.scores.metrics import choose_metrics
from benchcast.scores.names import match_models, match_tasks
from benchcast.scores.reading import ScoreEntry


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the user decided."""

    metrics: Mapping[str, str] = field(default_factory=dict)  # by task of the study
    renames: Mapping[str, str] = field(default_factory=dict)  # names in files → names in the study
    unit: str | None = None  # of wide tables
    add_tasks: tuple[str, ...] = ()  # patterns of tasks in files that become tasks of the study
    allow_mixed: bool = False
    allow_limit: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class ImportedScores:
    """What the files say, in the study's names."""

    scores: tuple[Score, ...]
    new_tasks: tuple[Task, ...]
    kinds: Mapping[str, int]  # kind of file → how many
    metrics: Mapping[str, str]  # task → the metric taken
    left_out: tuple[str, ...]  # tasks of the files that the study does not have
    renamed: Mapping[str, str]  # models that are called otherwise in the study
    unmatched: Mapping[str, Sequence[str]]  # models the study does not have → names that are near


def gather(
    paths: Sequence[Path], tasks: Sequence[Task], known: Sequence[str], old: Sequence[Score], choices: ImportOptions
) -> ImportedScores:
    """Read all files, or refuse them all. `known` are the study's models, `old` its scores."""
    names = [t.name for t in tasks]
    kinds: Counter[str] = Counter()
    entries: list[ScoreEntry] = []
    for path in expand(paths):
        kind, own = read_score_file(path, _wanted(tasks, names, choices))
        kinds[kind] += 1
        for r in own:
            for name in (r.score.model, r.score.task):
                need_name(name, r.where[:200])
        entries += own
    called = match_tasks((r.score.task for r in entries), names, choices.renames)
    added = _added(entries, called, tasks, choices)
    called |= {t.name: t.name for t in added}
    left_out = tuple(dict.fromkeys(r.score.task for r in entries if r.score.task not in called))
    if not called:
        raise InputError(_nothing(left_out, names))
    taken = [replace(r, score=replace(r.score, task=called[r.score.task])) for r in entries if r.score.task in called]
    chosen, metrics = choose_metrics(taken, choices.metrics)
    models, unmatched = match_models((r.score.model for r in chosen), known, choices.renames)
    scores = _once([replace(r, score=replace(r.score, model=models[r.score.model])) for r in chosen])
    if not choices.allow_mixed:
        _refuse_mixed(scores, old)
    if not choices.force:
        _refuse_changed(scores, old)
    renamed = {a: b for a, b in models.items() if a != b}
    return ImportedScores(tuple(scores), tuple(added), kinds, metrics, left_out, renamed, unmatched)


def _wanted(tasks: Sequence[Task], names: Sequence[str], choices: ImportOptions) -> ReaderOptions:
    def pick(found: list[str]) -> set[str]:
        return set(match_tasks(found, names, choices.renames)) | {t for t in found if _asked(t, choices.add_tasks)}

    return ReaderOptions(tasks, pick, choices.unit, choices.allow_limit)


def _asked(task: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(task, pattern) for pattern in patterns)


def _added(
    entries: Sequence[ScoreEntry], called: Mapping[str, str], tasks: Sequence[Task], choices: ImportOptions
) -> list[Task]:
    """Tasks of the files that the user wants as tasks of their own, with the texts of the task they are part of."""
    found = dict.fromkeys(r.score.task for r in entries if r.score.task not in called)
    made = []
    for name in found:
        if _asked(name, choices.add_tasks):
            whole = [t for t in tasks if t.name in name]
            made.append(Task(name, chance_of(name), max(whole, key=lambda t: len(t.name)).sources if whole else ()))
    return made


def _nothing(left_out: Sequence[str], names: Sequence[str]) -> str:
    found = ", ".join(left_out[:8]) + (" …" if len(left_out) > 8 else "")
    known = f"study.toml has {', '.join(names)}" if names else "study.toml has no tasks yet"
    return f"no task of the study in these files: found {found or 'no scores'}; {known} (--rename maps names)"


def _once(entries: Sequence[ScoreEntry]) -> list[Score]:
    """One score for each model and task; the same twice is one, two different ones are a question."""
    first: dict[tuple[str, str], ScoreEntry] = {}
    for r in entries:
        known = first.setdefault((r.score.model, r.score.task), r)
        if _said(known.score) != _said(r.score) or _other(known.score.n_items, r.score.n_items):
            raise InputError(
                f"{r.score.model!r} on {r.score.task!r}: {known.score.accuracy:g} in {known.where}, "
                f"{r.score.accuracy:g} in {r.where} (or another harness, version, shots or number of items); "
                "leave one of them out"
            )
    return [replace(r.score, stderr=r.stderr if r.stderr == r.stderr else r.score.stderr) for r in first.values()]


def _other(one: float, two: float) -> bool:
    """Whether both are known and differ."""
    return one == one and two == two and one != two


def _said(score: Score) -> tuple[float, str, str, str]:
    return score.accuracy, score.harness, score.version, score.shots


def _refuse_mixed(scores: Sequence[Score], old: Sequence[Score]) -> None:
    """Scores of one task must come from one harness, one version and one number of shots."""
    new = {(s.model, s.task) for s in scores}
    tasks = {s.task for s in scores}
    together = [s for s in old if s.task in tasks and (s.model, s.task) not in new] + list(scores)
    for task in dict.fromkeys(s.task for s in scores):
        own = [s for s in together if s.task == task]
        for part in ("harness", "version", "shots"):
            values = dict.fromkeys(getattr(s, part) for s in own)
            if len(values) > 1:
                shown = ", ".join(repr(v) if v else "unstated" for v in list(values)[:4])
                raise InputError(
                    f"{task}: scores with different {part} ({shown}) do not compare; "
                    "leave some out, or mix them all the same with --allow-mixed"
                )


def _refuse_changed(scores: Sequence[Score], old: Sequence[Score]) -> None:
    before = {(s.model, s.task): s.accuracy for s in old}
    for s in scores:
        was = before.get((s.model, s.task), s.accuracy)
        if was != s.accuracy:
            raise InputError(
                f"{s.model!r} has accuracy {was:g} on {s.task!r} in the study, "
                f"the file says {s.accuracy:g}; --force replaces it"
            )
