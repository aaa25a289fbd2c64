"""Remove and rename models of a study: losses, metadata, scores and outcomes together.

Both hold the study's lock. Each file is replaced atomically; if the process is killed, running the command again
completes it. Fits are not changed; the result names those that were trained on the models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.messages import counted, match_names, need_name
from benchcast.records import ModelInfo, Score
from benchcast.study.atomic import locked, sync, write_text, write_whole
from benchcast.study.loss_files import is_half, read_parquet, write_parquet
from benchcast.study.outcomes import models_with_outcomes, outcomes_path, rename_outcomes
from benchcast.study.study import Study, StudyLike
from benchcast.study.tables import SCORE_COLUMNS, as_csv, models_csv, write_models, write_scores

JOURNAL = ".rename.json"  # old and new name of a rename in progress; removed at its end


@dataclass(frozen=True, slots=True)
class Edited:
    """Models, files, rows and fits affected by a removal or a rename."""

    models: tuple[str, ...]
    losses: int  # number of loss files
    rows: int  # number of rows of models.csv
    scores: int  # number of rows of scores.csv
    fits: tuple[str, ...]  # tasks whose fits were trained on these models
    outcomes: int = 0  # number of files of outcomes

    def __repr__(self) -> str:
        parts = {"model": len(self.models), "loss file": self.losses, "row": self.rows, "score": self.scores}
        return f"<Edited: {', '.join(counted(number, what) for what, number in parts.items())}>"


def remove_models(study: StudyLike, patterns: Sequence[str], *, dry_run: bool = False) -> Edited:
    """Remove the losses, metadata, scores and outcomes of models from a study.

    Parameters
    ----------
    study : an opened study or its folder
    patterns : names of models or shell-style patterns such as "ash-*"; one without a match raises an error
    dry_run : only report, remove nothing

    Returns
    -------
    the models, the numbers of files and rows, and the tasks whose fits were trained on the models

    >>> import benchcast as bc
    >>> bc.remove_models("study", ["ash-*"], dry_run=True)
    <Edited: 4 models, 4 loss files, 4 rows, 8 scores>
    """
    study = Study.of(study)
    with locked(study.root):
        listed, scores = study.listed_models(), study.stored_scores()
        known = [*study.models_with_losses(), *(m.model for m in listed), *(s.model for s in scores)]
        known += models_with_outcomes(study)
        names = match_names(list(dict.fromkeys(known)), patterns, where=str(study.root), what="model")
        files = [path for name in names if (path := study.losses_path(name)).exists()]
        outcomes = [path for name in names if (path := outcomes_path(study, name)).exists()]
        other_models = [m for m in listed if m.model not in names]
        other_scores = [s for s in scores if s.model not in names]
        edited = Edited(
            models=tuple(names),
            losses=len(files),
            rows=len(listed) - len(other_models),
            scores=len(scores) - len(other_scores),
            fits=affected_fits(study, names),
            outcomes=len(outcomes),
        )
        if not dry_run:
            _write_tables(study, other_models, other_scores)
            for path in (*files, *outcomes):
                path.unlink()
            for folder in {path.parent for path in (*files, *outcomes)}:
                sync(folder)
    return edited


def rename_model(study: StudyLike, old: str, new: str) -> Edited:
    """Rename a model in its files of losses and outcomes, its row of models.csv and its scores.

    A rename that was interrupted is completed first.

    Parameters
    ----------
    study : an opened study or its folder
    old : name of a model of the study; an unknown one raises an error
    new : another name; one that exists raises an error

    Returns
    -------
    the new name, the numbers of files and rows, and the tasks whose fits were trained on the model

    >>> import benchcast as bc
    >>> bc.rename_model("study", "ash-64M@16B", "ash-64M")
    <Edited: 1 model, 1 loss file, 1 row, 2 scores>
    """
    study, new = Study.of(study), need_name(new, "the new name")
    with locked(study.root):
        journal = study.root / JOURNAL
        if journal.exists() and _pending(journal) != (old, new):
            _rename(study, *_pending(journal))
            journal.unlink()
        if not journal.exists():
            _refuse(study, old, new)
            write_text(journal, json.dumps({"old": old, "new": new}, ensure_ascii=False))
        edited = _rename(study, old, new)
        journal.unlink()
    return replace(edited, fits=affected_fits(study, [old]))


def stopped_rename(study: Study) -> tuple[str, str] | None:
    """Old and new name of an interrupted rename, or None; the next rename completes it."""
    journal = study.root / JOURNAL
    return _pending(journal) if journal.exists() else None


def affected_fits(study: Study, names: Sequence[str]) -> tuple[str, ...]:
    """Tasks whose stored fits were trained on any of these models; unreadable fits are ignored (see `status`)."""
    tasks = []
    for task in study.fitted_tasks():
        file = study.fit_folder(task) / "fit.json"
        try:
            about = json.loads(file.read_text(encoding="utf-8"))["about"]
            trained_on = {*about.get("train", ()), *about.get("validation", ())}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
        if trained_on & set(names):
            tasks.append(task)
    return tuple(tasks)


def _pending(journal: Path) -> tuple[str, str]:
    try:
        stored = json.loads(journal.read_text(encoding="utf-8"))
        return str(stored["old"]), str(stored["new"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{journal}: damaged; remove it and rename again") from error


def _refuse(study: Study, old: str, new: str) -> None:
    """Raise an error if the old name is unknown or the new name exists."""
    listed, scores = study.listed_models(), study.stored_scores()
    known = {*study.models_with_losses(), *(m.model for m in listed), *(s.model for s in scores)}
    match_names(sorted(known), [old], where=str(study.root), what="model")
    if old not in known:
        raise InputError(f"{study.root}: rename takes one model, not a pattern; found {old!r}")
    if new in known or study.losses_path(new).exists():
        raise InputError(f"{study.root}: model {new!r} exists already; remove it first, or choose another name")


def _rename(study: Study, old: str, new: str) -> Edited:
    """Rename a model; steps that an interrupted run completed are skipped."""
    source, target = study.losses_path(old), study.losses_path(new)
    if source.exists():
        losses = replace(read_parquet(source, study.texts), model=new)
        write_whole(target, partial(write_parquet, losses=losses, texts=study.texts, half=is_half(source)))
    listed, scores = study.listed_models(), study.stored_scores()
    rows, score_rows = (sum(x.model == old for x in table) for table in (listed, scores))
    _write_tables(study, [_named(m, old, new) for m in listed], [_named(s, old, new) for s in scores])
    if source.exists() and source != target:
        source.unlink()
        sync(source.parent)
    outcomes = rename_outcomes(study, old, new)
    return Edited(models=(new,), losses=int(target.exists()), rows=rows, scores=score_rows, fits=(), outcomes=outcomes)


def _named(row: Any, old: str, new: str) -> Any:
    columns = [c for c in ("model", "base") if getattr(row, c, None) == old]
    return replace(row, **dict.fromkeys(columns, new))


def _write_tables(study: Study, models: Sequence[ModelInfo], scores: Sequence[Score]) -> None:
    """Replace scores.csv and models.csv where they change; a table without rows is removed."""
    tables = (
        ("scores.csv", as_csv(SCORE_COLUMNS, scores), partial(write_scores, scores=scores, tasks=study.tasks)),
        ("models.csv", models_csv(models), partial(write_models, models=models)),
    )
    for (name, text, write), rows in zip(tables, (scores, models), strict=True):
        path = study.root / name
        if not rows:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            write(path)
