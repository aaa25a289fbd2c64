"""What a fit was made from, as hashes, and what has changed in the study since.

Only what the fit depends on counts: models it learned from, their scores on the task and on benchmarks that it
reads, families, and of size and compute what its split or its method uses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchcast.errors import StudyError
from benchcast.folds import training_fold
from benchcast.metadata import ModelMetadata
from benchcast.records import ModelInfo, Score, Task
from benchcast.storage.files import file_name
from benchcast.store import Study
from benchcast.task_fit import SCORE, TaskFit

if TYPE_CHECKING:
    from benchcast.fits import Fit

MOST_NAMES = 3


class StudyTables(NamedTuple):
    """The study's tables, read once: models with losses and scores, and all scores."""

    infos: list[ModelInfo]
    scores: list[Score]

    @classmethod
    def of(cls, study: Study) -> StudyTables:
        """As they are now."""
        scores, there = study.scores(), set(study.models_with_losses())
        tasks = {t.name for t in study.tasks}
        usable = {s.model for s in scores if s.task in tasks} & there
        return cls([m for m in study.models() if m.model in usable], scores)


def hash_inputs(study: Study, core: TaskFit, split: str, tables: StudyTables | None = None) -> dict[str, Any]:
    """Hashes of everything in the study that a fit of this task, method and split depends on.

    `models` has for every model that is learned from the hashes of its losses, scores and metadata.
    """
    return {
        "task": _hash(_of_task(core.task)),
        "features": _features(study),
        "models": _models(study, core, split, tables or StudyTables.of(study)),
    }


def changed_inputs(study: Study, fit: Fit, tables: StudyTables | None = None) -> list[str]:
    """What changed in the study since the fit was made, in words; empty where nothing did or nothing is known."""
    told = [] if fit.texts.annotated_digest == study.texts.annotated_digest else ["texts changed"]
    then = fit.about.get("inputs")
    if then is None:  # made by a version that kept no hashes
        return told
    if not _whole(then) or not isinstance(fit.about.get("split"), str):
        raise StudyError(f"{study.fit_folder(fit.task)}: damaged fit (hashes of its inputs); fit again")
    core, split, task = fit.core, fit.about["split"], _task(study, fit.core)
    if _hash(_of_task(task)) != then["task"]:
        told.append("chance, sources or answers of the task changed")
    if _features(study) != then["features"]:
        told.append("features changed")
    return told + _changed_models(then["models"], _models(study, core, split, tables or StudyTables.of(study)))


def stale_line(study: Study, fits: Sequence[Fit]) -> str:
    """One line on the fits that are older than the study; empty where none is."""
    by_change: dict[str, list[str]] = {}
    tables = StudyTables.of(study)
    for fit in fits:
        why = "; ".join(changed_inputs(study, fit, tables))
        if why:
            by_change.setdefault(why, []).append(fit.task)
    told = [f"{_few(tasks)}: {why}" for why, tasks in by_change.items()]
    return f"the study has changed since these fits were made: {' | '.join(told)}" if told else ""


def _whole(then: Any) -> bool:
    """Whether stored hashes are as `hash_inputs` makes them."""
    return (
        isinstance(then, dict)
        and {"task", "features", "models"} <= then.keys()
        and isinstance(then["models"], dict)
        and all(isinstance(own, list) and len(own) == 3 for own in then["models"].values())
    )


def _changed_models(then: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    both = [m for m in then if m in now]
    told = []
    if len(both) < max(len(then), len(now)):
        gone = len(then) - len(both)
        rest = f" and {gone} that {'is' if gone == 1 else 'are'} gone" if gone else ""
        told.append(f"fitted on {len(both)} of now {len(now)} models{rest}")
    for i, what in enumerate(("losses", "scores", "metadata")):
        other = [m for m in both if then[m][i] != now[m][i]]
        if other:
            told.append(f"{what} of {_few(other)} changed")
    return told


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _of_task(task: Task) -> list[Any]:
    return [task.chance, *task.sources, *([list(task.answers)] if task.answers else [])]


def _task(study: Study, core: TaskFit) -> Task:
    return next((t for t in study.tasks if t.name == core.task.name), core.task)


def _models(study: Study, core: TaskFit, split: str, tables: StudyTables) -> dict[str, list[str]]:
    """Hashes of the losses, the scores and the metadata of every model that such a fit learns from."""
    infos, scores = tables
    if not infos or (split == "column" and not any(m.split for m in infos)):
        return {}
    seen = training_fold(infos, "family" if split == "everything" else split)[1].seen
    known = core.known(ModelMetadata.of(infos, scores))
    wanted = {core.task.name, *(name.removeprefix(SCORE) for name in core.reads if name.startswith(SCORE))}
    own: dict[str, list[Score]] = {}
    for s in scores:
        if s.task in wanted:
            own.setdefault(s.model, []).append(s)
    return {
        m.model: [
            _file(study.losses_path(m.model)) if core.reads_losses else "",
            _hash(sorted([s.task, s.accuracy, str(s.n_items)] for s in own[m.model])),
            _hash(_metadata(m, core, split)),
        ]
        for m, on in zip(infos, seen & known, strict=True)
        if on and any(s.task == core.task.name for s in own.get(m.model, ()))
    }


def _metadata(info: ModelInfo, core: TaskFit, split: str) -> list[str]:
    """What a fit of this method and split reads of a model's row."""
    row = [info.model, info.family]
    row += [info.split] if split == "column" else []
    row += [str(info.params)] if split == "size" else []
    row += [str(info.compute)] if core.reads == ("flops",) else []
    row += [str(info.params), str(info.tokens)] if core.reads[:1] == ("ladder",) else []
    return row


def _features(study: Study) -> str:
    """Hash of the scorer's name and its tokens; empty without features."""
    try:
        found = study.features()
    except StudyError as error:  # of other texts, or damaged
        return str(error)
    if found is None:
        return ""
    meta = json.loads((study.root / "features" / file_name(found[2]) / "meta.json").read_text(encoding="utf-8"))
    edges = hashlib.sha256(np.asarray(found[1], "<i8").tobytes()).hexdigest()
    return _hash([found[2], edges, {k: v for k, v in meta.items() if k != "benchcast"}])


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _file(path: Path) -> str:
    state = path.stat()
    return _file_hash(path, (state.st_ino, state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=4096)
def _file_hash(path: Path, _: tuple[int, int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]
