"""Add new files of a folder of evaluation logs to the study that was made from it.

The study keeps in logs.json which results files it was made from; what else is below the folder is new.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from benchcast.errors import InputError, StudyError
from benchcast.importers import import_scores
from benchcast.importers.logs.from_logs import losses_from_logs
from benchcast.importers.logs.log_record import LogRecord
from benchcast.importers.logs.runs import LoggedRun, read_run, results_below
from benchcast.importers.scores import ImportOptions
from benchcast.messages import counted, few
from benchcast.records import ModelInfo
from benchcast.steps import steps
from benchcast.study.model_names import NameParts, check_renames, guessed_infos, names_of, renamed, unused_renames
from benchcast.study.study import Study, StudyLike


@dataclass(frozen=True, slots=True, repr=False)
class AddedLogs:
    """What new files of logs brought."""

    study: Study
    files: int  # number of new results files
    models: tuple[str, ...]  # models of these files
    scores: int  # number of scores that the study did not have
    notes: tuple[str, ...] = field(default=())  # tasks of the new files that the study does not have
    warnings: tuple[str, ...] = field(default=())  # renames that change nothing

    def __repr__(self) -> str:
        return f"<AddedLogs: {counted(self.files, 'file')} of {counted(len(self.models), 'model')}>"


def add_new_logs(
    study: StudyLike,
    folder: str | PathLike[str],
    *,
    options: ImportOptions | None = None,
    tokens_per_step: float = math.nan,
) -> AddedLogs:
    """Add the logs that a folder has got since `create_from_logs` made a study from it.

    Parameters
    ----------
    study : an opened study or its folder
    folder : the folder of logs, in its place or moved
    options : renamed models, and whether to accept runs with `--limit`; metrics stay those of the study
    tokens_per_step : training tokens of one step, for models whose name has a step; NaN: as when the study was made

    Returns
    -------
    the new files, their models and the number of new scores; the tasks of the study stay as they are

    >>> import benchcast as bc
    >>> options = bc.ImportOptions(metrics={"pond_write": "exact_match,strict-match"})
    >>> study = bc.create_from_logs("new", "results", options=options).study
    >>> bc.add_new_logs(study, "results")                                            # nothing is new yet
    <AddedLogs: 0 files of 0 models>
    """
    opened, chosen, path = Study.of(study), options or ImportOptions(), Path(folder)
    check_renames(chosen.renames)
    record = LogRecord.read(opened.root)
    below = {os.path.relpath(p, path): p for p in results_below(path)}
    if not any(name in below for name in record.files):
        raise StudyError(
            f"{opened.root}: made from other logs than those in {path} (it lacks {few(list(record.files), 2)}); "
            f"`benchcast import losses` and `import scores` add logs of another folder"
        )
    new = [name for name in below if name not in record.files]
    fresh = {name: read_run(below[name]) for name in steps(new, "runs read")}
    warnings = _without_effect(chosen.renames, record, [run.model for run in fresh.values()])
    if not fresh:
        return AddedLogs(study=opened, files=0, models=(), scores=0, warnings=warnings)
    record = record.with_step(tokens_per_step)
    names = _names(list(fresh.values()), record, opened, renames=chosen.renames)
    changed = [below[name] for name, source in record.files.items() if source in names and name in below]
    runs = [*(read_run(p) for p in changed), *fresh.values()]
    known = set(opened.models_with_losses())
    losses = losses_from_logs(str(path), runs, opened.texts, names=names)
    again = [x for x in losses if x.model in known]
    opened.add_losses([x for x in losses if x.model not in known])
    opened.add_losses(again, force=True)  # with the texts of tasks that came later
    params = {names[run.model]: run.params for run in runs if math.isfinite(run.params)}
    opened.add_models(_infos(list(names.values()), params, record.tokens_per_step, opened.models()))
    score_options = replace(chosen, metrics={**record.metrics, **chosen.metrics}, renames={**chosen.renames, **names})
    scores = import_scores(opened, [below[name] for name in fresh], score_options)
    record.with_files({name: run.model for name, run in fresh.items()}, names).write(opened.root)
    notes = () if not scores.left_out else (
        f"not among the study's tasks, left out: {few(scores.left_out, 5)}; a new study has them",
    )  # fmt: skip
    return AddedLogs(
        study=Study.open(opened.root),
        files=len(fresh),
        models=tuple(dict.fromkeys(names.values())),
        scores=scores.added,
        notes=notes,
        warnings=warnings,
    )


def _names(runs: Sequence[LoggedRun], record: LogRecord, study: Study, *, renames: Mapping[str, str]) -> dict[str, str]:
    """Names of the models of new runs: those of the study for models that it has, names of their own for others."""
    sources = list(dict.fromkeys(run.model for run in runs))
    before = {source: name for source, name in record.names.items() if source in sources}
    usual = names_of((s for s in sources if s not in before), taken=[m.model for m in study.models()])
    names = before | {s: renamed(s, renames, usual=name) or name for s, name in usual.items()}
    if len(set(names.values())) < len(names):
        raise InputError(f"--rename: two models of the new logs would be {few(list(names.values()))}")
    return names


def _without_effect(renames: Mapping[str, str], record: LogRecord, new: Sequence[str]) -> tuple[str, ...]:
    """Lines on renames that match no model, or models that the study has under another name already."""
    usual = names_of(record.names)
    kept = [
        name
        for source, name in record.names.items()
        if source not in new and renamed(source, renames, usual=usual[source]) not in (None, name)
    ]
    stored = f"--rename: the study has {few(kept)} already; `benchcast rename` changes the name of a model"
    return (*unused_renames(renames, [*record.files.values(), *new]), *([stored] if kept else []))


def _infos(
    names: Sequence[str], params: Mapping[str, float], tokens_per_step: float, known: Sequence[ModelInfo]
) -> list[ModelInfo]:
    """Guessed rows of models.csv; a checkpoint of a run that the study has gets the family of that run."""
    family_of_run = {NameParts.of(m.model).run: m.family for m in known if m.family}
    listed = {m.model for m in known if m.family}
    guessed = guessed_infos(names, params=params, tokens_per_step=tokens_per_step)
    return [
        replace(
            info, family="" if info.model in listed else family_of_run.get(NameParts.of(info.model).run, info.family)
        )
        for info in guessed
    ]
