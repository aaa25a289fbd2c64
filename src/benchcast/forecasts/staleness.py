"""Hashes of the inputs of a fit, and the changes in the study since the fit was made.

Inputs are those that the fit depends on: its training and validation models, their scores on the task and on
benchmarks that it reads, families, and size and compute if its split or method uses them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from benchcast.choices import Split
from benchcast.errors import StudyError
from benchcast.messages import few
from benchcast.methods import METHODS
from benchcast.methods.task_fit import TaskFit
from benchcast.records import CHOICE_LOSSES, ModelInfo, ModelMetadata, Score, Task
from benchcast.splits import RULES, training_fold
from benchcast.study.atomic import Stamp, stamp
from benchcast.study.feature_files import read_meta
from benchcast.study.parquet import hash_columns
from benchcast.study.study import MOST_LOSS_FILES, Study

if TYPE_CHECKING:
    from benchcast.forecasts.stored_fit import Fit

MOST_NAMES = 3
TOKENS = "tokens:"  # start of a hash of token losses alone; other hashes are of the whole file, with choice losses


class StudyInputs(NamedTuple):
    """What all fits of a study share: models with losses and scores, all scores, and the hash of the features."""

    infos: list[ModelInfo]
    scores: list[Score]
    features: str

    @classmethod
    def of(cls, study: Study) -> StudyInputs:
        """The present inputs of a study."""
        scores, with_losses = study.scores(), set(study.models_with_losses())
        tasks = {t.name for t in study.tasks}
        usable = {s.model for s in scores if s.task in tasks} & with_losses
        return cls([m for m in study.models() if m.model in usable], scores, _hash_features(study))


def hash_inputs(study: Study, task_fit: TaskFit, inputs: StudyInputs, *, split: str) -> dict[str, Any]:
    """Hash the inputs of a fit of this task, method and split.

    Returns
    -------
    Hashes by key: "task", "features", and "models", which maps each training and validation model to the hashes of
    its losses, scores and metadata.
    """
    tokens_only = not (METHODS[task_fit.method].reads_choices and study.read_choices)
    return {
        "task": _hash_task(task_fit.task),
        "features": inputs.features,
        "models": _hash_models(study, task_fit, inputs, split=split, tokens_only=tokens_only),
    }


def changed_inputs(study: Study, fit: Fit, inputs: StudyInputs | None = None) -> list[str]:
    """Descriptions of the changes in the study since the fit was made; empty if there are none, or no hashes."""
    changes = [] if fit.texts.annotated_digest == study.texts.annotated_digest else ["texts changed"]
    then = fit.about.get("inputs")
    if then is None:  # made by a version that stored no hashes
        return changes
    if not _valid(then) or not isinstance(fit.about.get("split"), str):
        raise StudyError(f"{study.fit_folder(fit.task)}: damaged fit (hashes of its inputs); fit again")
    task_fit, now = fit.task_fit, inputs or StudyInputs.of(study)
    if _hash_task(next((t for t in study.tasks if t.name == fit.task), task_fit.task)) != then["task"]:
        changes.append("chance, sources or answers of the task changed")
    if now.features != then["features"]:
        changes.append("features changed")
    tokens_only = any(str(hashes[0]).startswith(TOKENS) for hashes in then["models"].values())
    found = _hash_models(study, task_fit, now, split=fit.about["split"], tokens_only=tokens_only)
    return changes + _changed_models(then["models"], found)


def stale_line(study: Study, fits: Sequence[Fit]) -> str:
    """One line that names the outdated fits and the changes in the study; empty if there are none."""
    if not fits:
        return ""
    by_change: dict[str, list[str]] = {}
    inputs = StudyInputs.of(study)
    for fit in fits:
        change = "; ".join(changed_inputs(study, fit, inputs))
        if change:
            by_change.setdefault(change, []).append(fit.task)
    outdated = [f"{few(tasks, MOST_NAMES)}: {change}" for change, tasks in by_change.items()]
    return f"the study has changed since these fits were made: {' | '.join(outdated)}" if outdated else ""


def older_line(fits: Sequence[Fit]) -> str:
    """One line that names the fits of older versions, whose intervals stay as they were; empty if there are none."""
    older = [fit.task for fit in fits if fit.task_fit.width is None]
    return f"{few(older, MOST_NAMES)}: fitted by an older version, whose intervals are kept" if older else ""


def _valid(then: Any) -> bool:
    """Whether stored hashes have the form that `hash_inputs` returns."""
    return (
        isinstance(then, dict)
        and {"task", "features", "models"} <= then.keys()
        and isinstance(then["models"], dict)
        and all(isinstance(hashes, list) and len(hashes) == 3 for hashes in then["models"].values())
    )


def _changed_models(then: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    both = [m for m in then if m in now]
    changes = []
    if len(both) < max(len(then), len(now)):
        removed = len(then) - len(both)
        rest = f" and {removed} that {'is' if removed == 1 else 'are'} no longer there" if removed else ""
        changes.append(f"fitted on {len(both)} of now {len(now)} models{rest}")
    for i, what in enumerate(("losses", "scores", "metadata")):
        changed = [m for m in both if then[m][i] != now[m][i]]
        if changed:
            changes.append(f"{what} of {few(changed, MOST_NAMES)} changed")
    return changes


def _hash_task(task: Task) -> str:
    choices = [list(task.answers), list(task.choices)] if task.choices else []
    return _hash([task.chance, *task.sources, *(choices or ([list(task.answers)] if task.answers else []))])


def _hash_models(
    study: Study, task_fit: TaskFit, inputs: StudyInputs, *, split: str, tokens_only: bool
) -> dict[str, list[str]]:
    """Hashes of the losses, scores and metadata of each training and validation model of such a fit."""
    infos, scores = inputs.infos, inputs.scores
    seen = training_fold(infos, "family" if split == "everything" else cast(Split, split))[1].seen
    known = task_fit.capability.known(ModelMetadata.of(infos, scores))
    tasks = {task_fit.task.name, *task_fit.capability.scores_used}
    scores_of: dict[str, list[Score]] = {}
    for s in scores:
        if s.task in tasks:
            scores_of.setdefault(s.model, []).append(s)
    return {
        m.model: [
            _hash_file(path := study.losses_path(m.model), stamp(path), tokens_only) if task_fit.reads_losses else "",
            _hash(sorted([s.task, s.accuracy, str(s.n_items)] for s in scores_of[m.model])),
            _hash(_used_metadata(m, task_fit, split)),
        ]
        for m, used in zip(infos, seen & known, strict=True)
        if used and any(s.task == task_fit.task.name for s in scores_of.get(m.model, ()))
    }


def _used_metadata(info: ModelInfo, task_fit: TaskFit, split: str) -> list[str]:
    """The values of a model's row that a fit of this method and split uses."""
    row = [info.model, info.family, *([info.base] if info.base else [])]
    by_split = RULES[split].columns if split in RULES else ()
    return row + [str(getattr(info, column)) for column in (*by_split, *task_fit.capability.columns_used)]


def _hash_features(study: Study) -> str:
    """Hash of the scorer's name and its tokens; empty without features."""
    try:
        features = study.features()
        if features is None:
            return ""
        meta = read_meta(study.features_folder(features.scorer))
    except StudyError as error:  # features of other texts, or damaged
        return str(error)
    edges_hash = hashlib.sha256(np.asarray(features.edges, "<i8").tobytes()).hexdigest()
    return _hash([features.scorer, edges_hash, {k: v for k, v in meta.items() if k != "benchcast"}])


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@lru_cache(maxsize=2 * MOST_LOSS_FILES)
def _hash_file(path: Path, version: Stamp | None, tokens_only: bool) -> str:
    """Hash of this version of a file of losses, or of its token losses."""
    if tokens_only:
        return TOKENS + hash_columns(path, without=CHOICE_LOSSES)[:12]
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]
