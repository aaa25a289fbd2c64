"""Import losses, scores, model metadata and features that were made elsewhere into a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from benchcast.choices import LossUnit
from benchcast.errors import InputError
from benchcast.importers.logs.from_logs import losses_from_logs, read_logs, rescore_others
from benchcast.importers.logs.item_outcomes import logged_outcomes, runs_with_samples
from benchcast.importers.logs.runs import is_log
from benchcast.importers.loss_table import losses_of_tables
from benchcast.importers.scores import ImportedScores, ImportOptions, gather
from benchcast.importers.scores.entries import ScoreFile
from benchcast.importers.scores.formats import expand
from benchcast.importers.scores.names import match_models
from benchcast.messages import counted
from benchcast.records import NamedTexts, TokenLosses
from benchcast.steps import steps
from benchcast.study.bos_policies import bos_lines_of
from benchcast.study.check_losses import suspicious_losses
from benchcast.study.feature_files import read_features
from benchcast.study.loss_files import read_losses
from benchcast.study.model_names import NO_RENAMES, check_renames, renamed, unused_renames
from benchcast.study.outcomes import add_outcomes, metrics_of_outcomes
from benchcast.study.study import Study, StudyLike
from benchcast.study.tables import read_models

Files = str | PathLike[str] | Sequence[str | PathLike[str]]
MOST_BLANK = 0.05  # share of a model's bytes without a loss above which a warning is given


@dataclass(frozen=True, slots=True, repr=False)
class ImportedLosses:
    """Models whose losses were imported."""

    models: tuple[str, ...]  # all models of the files
    added: int  # number of models that the study did not have
    warnings: tuple[str, ...]  # one line for each model whose losses are incomplete or implausible
    completed: int = 0  # number of models that the study had, and that got choice losses

    def __repr__(self) -> str:
        models = counted(len(self.models), "model")
        return f"<ImportedLosses of {models}, {self.added} added, {len(self.warnings)} warnings>"


def import_losses(
    study: StudyLike,
    files: Files,
    *,
    family: str = "",
    unit: LossUnit | None = None,
    allow_implausible: bool = False,
    force: bool = False,
    renames: Mapping[str, str] = NO_RENAMES,
    on_file: Callable[[Path], None] = lambda path: None,
) -> ImportedLosses:
    """Read token losses from files and store them in a study.

    Parameters
    ----------
    study : an opened study or its folder
    files : one file or several: JSONL or Parquet, one model in each, or a wide CSV of models × texts; folders with
        logs of lm-evaluation-harness, if the study was made from such logs
    family : family of models that models.csv does not list yet
    unit : what a wide CSV holds, "nats" or "bits-per-byte"; token losses are in nats
    allow_implausible : store losses that no softmax can give, instead of raising InputError
    force : replace losses that the study has
    renames : name of a model in the files → name in the study; patterns with one `*` on each side, too
    on_file : called with the path of each file after it is read

    Returns
    -------
    the models, the number of new ones, and warnings; if one file is invalid, nothing is stored

    >>> import benchcast as bc
    >>> bc.import_losses("study", "my-7b.jsonl", family="mine")
    <ImportedLosses of 1 model, 1 added, 0 warnings>
    """
    opened, paths = Study.of(study), _paths(files)
    check_renames(renames)
    logs = [path for path in paths if is_log(path)]
    runs = read_logs(logs)
    in_study, _ = match_models((run.model for run in runs), [m.model for m in opened.models()], renames)
    logged = losses_from_logs(", ".join(map(str, logs)), runs, opened.texts, names=in_study)
    tables = [path for path in paths if path not in logs and path.suffix.lower() == ".csv"]
    read: list[TokenLosses] = []
    in_files = [run.model for run in runs]
    if tables and isinstance(opened.texts, NamedTexts):
        read, in_tables = losses_of_tables(tables, opened.texts, renames, unit=unit)
        in_files += in_tables
    else:
        tables = []
    for file in steps(paths, "files read"):
        of_file = [] if file in (*logs, *tables) else read_losses(file, opened.texts, unit=unit)
        read += [replace(losses, model=renamed(losses.model, renames) or losses.model) for losses in of_file]
        in_files += [losses.model for losses in of_file]
        on_file(file)
    warnings = list(unused_renames(renames, in_files))
    for losses in read:
        blank = np.diff(losses.edges)[np.isnan(losses.nats)].sum() / max(1, losses.edges[-1])
        if blank > MOST_BLANK:
            what = f"no loss on {blank:.0%} of the bytes; fits that use this model do not read them"
            warnings.append(f"{losses.model} has {what}")
    stored, before = [*logged, *read], set(opened.models_with_losses())
    written = opened.add_losses(stored, family=family, force=force, allow_implausible=allow_implausible)
    names = tuple(losses.model for losses in stored)
    metrics = {t.name: t.metric for t in opened.tasks if t.metric} | metrics_of_outcomes(opened)
    add_outcomes(opened, logged_outcomes(runs, opened.tasks, in_study, metrics=metrics), force=force)
    added = written if force else len(set(names) - before)
    return ImportedLosses(
        models=names,
        added=added,
        warnings=(*warnings, *suspicious_losses(opened, names), *bos_lines_of(opened, names)),
        completed=written - added,
    )


def import_scores(study: StudyLike, files: Files, options: ImportOptions | None = None) -> ImportedScores:
    """Read benchmark scores from files and store them in a study.

    Parameters
    ----------
    study : an opened study or its folder
    files : results of lm-evaluation-harness, OpenCompass or leaderboards, or CSV; one file or folder, or several
    options : metrics, renamed models and tasks, the unit of a table, and what is accepted; None: the defaults

    Returns
    -------
    the scores (accuracies from 0 to 1), how many are new (`.added`), and the choices that were made

    >>> import benchcast as bc
    >>> bc.import_scores("study", "scores.csv")
    <ImportedScores: 1 score, 1 added, 0 new tasks>
    """
    chosen, opened = options or ImportOptions(), Study.of(study)
    known = [m.model for m in opened.models()]
    sources = [
        s if isinstance(s, ScoreFile) else ScoreFile.read(s) for s in steps(expand(_paths(files)), "files read")
    ]  # each read once
    runs = runs_with_samples(sources)
    rescore = rescore_others(opened.items, opened.seed, runs) if opened.items < 1 else None
    in_study, _ = match_models((run.model for run in runs), known, chosen.renames)
    choices = replace(chosen, renames={**chosen.renames, **in_study})
    read = gather(sources, opened.tasks, known, opened.stored_scores(), choices, rescore=rescore)
    opened = opened.add_tasks(read.new_tasks)
    added = opened.add_scores(read.scores, force=chosen.force)
    scored = [t for t in opened.tasks if t.name in {s.task for s in read.scores}]
    outcomes = logged_outcomes(runs, scored, in_study, metrics=read.metrics, renames=chosen.renames)
    add_outcomes(opened, outcomes, force=chosen.force)
    without = sorted({s.model for s in read.scores} - set(opened.models_with_losses()))
    warnings = unused_renames(chosen.renames, read.in_files)
    return replace(read, added=added, without_losses=tuple(without), warnings=warnings)


def import_models(study: StudyLike, file: str | PathLike[str], *, renames: Mapping[str, str] = NO_RENAMES) -> int:
    """Read model metadata from a CSV file and store it in a study.

    Parameters
    ----------
    study : an opened study or its folder
    file : CSV with the column `model` and any other of models.csv: family, params, tokens (training tokens), flops, …
    renames : name of a model in the file → name in the study; patterns with one `*` on each side, too

    Returns
    -------
    the number of models in the file

    >>> import benchcast as bc
    >>> bc.import_models("study", "models.csv")
    1
    """
    check_renames(renames)
    models = [replace(m, model=renamed(m.model, renames) or m.model) for m in read_models(Path(file))]
    repeated = [model for model, count in Counter(m.model for m in models).items() if count > 1]
    if repeated:
        raise InputError(f"{file}: {repeated[0]!r} is the name of two models; give them different names")
    Study.of(study).add_models(models)
    return len(models)


def import_features(study: StudyLike, file: str | PathLike[str], *, name: str = "") -> tuple[int, int]:
    """Read the hidden states of a scorer from an npz file and store them as features of a study.

    Parameters
    ----------
    study : an opened study or its folder
    file : npz with `features`, `bounds` and `counts`; texts in the order of the study
    name : the scorer's name; empty: the file's name without its ending

    Returns
    -------
    number of tokens, number of dimensions

    >>> import benchcast as bc
    >>> bc.import_features("study", "states.npz", name="my-scorer")
    (24, 4)
    """
    opened, path = Study.of(study), Path(file)
    opened.texts.require_texts("import features")
    values, edges = read_features(path, opened.texts)
    opened.add_features(name or path.stem, values, edges)
    return int(values.shape[0]), int(values.shape[1])


def _paths(files: Files) -> list[Path]:
    return [Path(files)] if isinstance(files, str | PathLike) else [Path(file) for file in files]
