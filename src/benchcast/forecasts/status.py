"""The content of a study, its problems, and the next command to run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchcast.devices import few_blas_threads
from benchcast.errors import BenchcastError, StudyError
from benchcast.families import find_relatives
from benchcast.forecasts.below_chance import below_chance
from benchcast.forecasts.fit import fits_if_any
from benchcast.forecasts.staleness import older_line, stale_line
from benchcast.forecasts.stored_fit import Fit
from benchcast.losses.dataset import Dataset, text_losses
from benchcast.messages import counted, did_you_mean, few
from benchcast.methods.spec import without_weak_tasks
from benchcast.records import NamedTexts, Score, Task, Text
from benchcast.splits import FEWEST_MODELS, WHY_FAMILY, choose_split, make_folds, need_test_models
from benchcast.study.check_losses import check_losses, scored_without_options
from benchcast.study.editing import stopped_rename
from benchcast.study.outcomes import models_with_outcomes
from benchcast.study.study import Study, StudyLike
from benchcast.study.study_toml import example_tasks, tasks_toml

SAMPLE = 30  # characters of a source's first text that are shown


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Texts of one source."""

    name: str
    texts: int
    answers: int
    mean_bytes: float | None  # None if texts are known by name only
    sample: str
    unit: str = ""  # unit of the losses, if texts are known by name only


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Scores of one task."""

    name: str
    chance: float
    scores: int
    usable: int  # scores of models that have losses
    lowest: str
    highest: str
    fitted: bool


@dataclass(frozen=True, slots=True, repr=False)
class StudyStatus:
    """Content and problems of a study."""

    texts: int
    models_with_losses: int
    scorer: str
    sources: tuple[SourceStatus, ...]
    tasks: tuple[TaskStatus, ...]
    problems: tuple[str, ...]
    next_step: str
    relatives: tuple[str, ...] = ()  # one line for each group of related families
    models_with_outcomes: int = 0  # models whose outcomes of single items are here

    def __repr__(self) -> str:
        return (
            f"<StudyStatus: {self.texts} texts, {self.models_with_losses} models with losses, {len(self.tasks)} tasks, "
            f"{len(self.problems)} problems>"
        )

    def to_dict(self) -> dict[str, Any]:
        """The record as plain values, as `benchcast status --json` prints it."""
        return asdict(self)


@few_blas_threads()
def status(study: StudyLike) -> StudyStatus:
    """Check all files of a study, without changing any, and suggest the next command.

    Parameters
    ----------
    study : an opened study or its folder

    Returns
    -------
    numbers of texts, models and scores, one line for each problem (`.problems`), and the command to run next
    (`.next_step`); `.to_dict()` gives plain values

    >>> import benchcast as bc
    >>> bc.status("study")
    <StudyStatus: 24 texts, 16 models with losses, 2 tasks, 0 problems>
    """
    study = Study.of(study)
    texts, with_losses, scores = study.texts, set(study.models_with_losses()), study.scores()
    answers = {answer for task in study.tasks for answer in task.answers}
    sources = [_source_status(name, [t for t in texts if t.source == name], answers) for name in texts.sources]
    tasks = _task_statuses(study, scores, with_losses)
    scorer, damaged = _scorer(study)
    checked = check_losses(study, sorted(with_losses), {s.model for s in scores})
    stored, stale = _stored_fits(study)
    dataset: Dataset | None = None
    blocked, unfit = [], []
    try:
        dataset = study.dataset()
    except BenchcastError as error:
        blocked = [f"`fit` and `compare` cannot run: {error}"]
    if all(task.usable < FEWEST_MODELS for task in tasks):  # said by the next step
        blocked = []
    elif dataset is not None:
        unfit = _too_few_to_compare(study, dataset)
    if blocked:
        next_step = f"solve the problems listed above, then benchcast status {study.root}"
    elif stale:
        next_step = f"benchcast fit {study.root}"
    else:
        next_step = _next_step(study, tasks, with_losses, has_features=bool(scorer), comparable=not unfit)
    notes = [study.note] if study.note else []
    of_choices = [] if dataset is None else dataset.choices.lines()
    older = older_line(stored)
    found = [*stale, *([f"{older} (`benchcast fit {study.root}` makes new ones)"] if older else [])]
    found += [*checked.lines(), *of_choices, *_without_options(study)]
    found += below_chance(scores, study.tasks, {fit.task: [fit.task_fit.law.chance] for fit in stored})
    found += _problems(study, tasks, scores, with_losses=with_losses)
    return StudyStatus(
        texts=len(texts),
        models_with_losses=len(with_losses),
        scorer=scorer,
        sources=tuple(sources),
        tasks=tuple(tasks),
        problems=(*notes, *damaged, *found, *blocked, *unfit),
        next_step=next_step,
        relatives=() if dataset is None else tuple(_relatives(study, dataset)),
        models_with_outcomes=len(models_with_outcomes(study)),
    )


def _task_statuses(study: Study, scores: Sequence[Score], with_losses: Collection[str]) -> list[TaskStatus]:
    tasks, fitted = [], study.fitted_tasks()
    for task in study.tasks:
        of_task = [s for s in scores if s.task == task.name]
        accuracies = [s.accuracy for s in of_task]
        tasks.append(
            TaskStatus(
                name=task.name,
                chance=task.chance,
                scores=len(of_task),
                usable=sum(s.model in with_losses for s in of_task),
                lowest=f"{min(accuracies):.3f}" if accuracies else "–",
                highest=f"{max(accuracies):.3f}" if accuracies else "–",
                fitted=task.name in fitted,
            )
        )
    return tasks


def _source_status(name: str, texts: Sequence[Text], answers: Collection[str]) -> SourceStatus:
    """Status of one source with these texts; `answers` are ids of texts that tasks name as answers."""
    named = texts[0].unit is not None
    sample = ", ".join(t.id for t in texts[:8]) if named else " ".join(texts[0].text.split())
    shown = sample[:SAMPLE] + "…" * (len(sample) > SAMPLE)
    count = sum(t.answer_start is not None or t.id in answers for t in texts)
    return SourceStatus(
        name=name,
        texts=len(texts),
        answers=count,
        mean_bytes=None if named else float(np.mean([len(t.text.encode()) for t in texts])),
        sample=shown,
        unit=", ".join(sorted({t.unit or "–" for t in texts})) if named else "",
    )


def _scorer(study: Study) -> tuple[str, list[str]]:
    """The scorer in use (empty without one), and problems with its features."""
    try:
        features = study.features()
    except StudyError as error:
        return "", [str(error)]
    return (features.scorer if features else ""), []


def _stored_fits(study: Study) -> tuple[list[Fit], list[str]]:
    """The fits of the study, and a line on those that are outdated or cannot be read."""
    fits: list[Fit] = []
    try:
        fits = fits_if_any(study)
        line = stale_line(study, fits)
    except StudyError as error:
        return fits, [str(error)]
    return fits, [line] if line else []


def _without_options(study: Study) -> list[str]:
    """A line on the models that were scored before the texts had their options."""
    names = scored_without_options(study)
    if not names:
        return []
    were = f"{counted(len(names), 'model')} {'was' if len(names) == 1 else 'were'}"
    return [
        f"{were} scored without the options of the texts: {few(names)}; run the same `benchcast collect` again, "
        "which adds them and leaves the losses as they are"
    ]


def _too_few_to_compare(study: Study, dataset: Dataset) -> list[str]:
    """A line if `compare` and `report`, which hold out models, have too few models for it."""
    try:
        split, folds = make_folds(study.infos(dataset.models), "auto", groups=dataset.groups)
        need_test_models(split, folds)
        without_weak_tasks(dataset, folds, asked_for=False)
    except BenchcastError as error:
        return [f"`compare` and `report` hold out models and cannot run: {error}"]
    return []


def _relatives(study: Study, dataset: Dataset) -> list[str]:
    """One line for each group of related families, and how it was found."""
    related = find_relatives(study.infos(dataset.models), text_losses(dataset))
    return [
        f"related, so hidden together and counted once in intervals: {few(list(r.names))} ({', '.join(r.reasons)})"
        for r in related.relations
    ]


def _task_problems(study: Study, task: Task) -> Iterator[str]:
    """One line for each name in a task's settings that the study does not have."""
    known, on_table = study.texts.sources, isinstance(study.texts, NamedTexts)
    absent = [s for s in task.sources if s not in known]
    named = [s for s in absent if s not in (task.name, *task.members)]  # the others are defaults
    unknown = [a for a in task.answers if a not in study.texts.index]
    if unknown:
        yield f"task {task.name}: answers name {few(unknown)}, not a text of the study; correct study.toml"
    if named and on_table:
        similar = did_you_mean(named[0], known)
        yield f"task {task.name}: no columns of source {', '.join(named)}{similar} (correct sources in study.toml)"
    elif absent and on_table and not task.answers:
        yield f"task {task.name}: no answers; label-token needs them (answers = […] in study.toml)"
    elif absent and not on_table:
        yield f"task {task.name}: no texts of source {', '.join(absent)}; source-token and label-token need them"


def _problems(study: Study, tasks: list[TaskStatus], scores: list[Score], *, with_losses: set[str]) -> list[str]:
    problems = []
    stopped = stopped_rename(study)
    if stopped:
        problems.append(f"a rename was interrupted; run it again: benchcast rename {study.root} {' '.join(stopped)}")
    problems += [line for task in study.tasks for line in _task_problems(study, task)]
    no_scores = sorted(with_losses - {s.model for s in scores})
    no_losses = sorted({s.model for s in scores} - with_losses)
    if no_scores and tasks:
        problems.append(f"losses but no scores: {few(no_scores)} (they can be forecast, not learned from)")
    if no_losses:
        problems.append(f"scores but no losses: {few(no_losses)}")
    models = [m for m in study.models() if m.model in with_losses]
    if models and not any(m.family for m in models):
        problems.append("no model has a family; intervals and `--split family` go by groups of similar loss profiles")
    if models and choose_split(models) == "family":
        problems.append(f"{WHY_FAMILY}: `compare` holds out each family in turn")
    return problems


def _next_step(
    study: Study, tasks: list[TaskStatus], with_losses: set[str], *, has_features: bool, comparable: bool
) -> str:
    at = study.root
    if not study.tasks:
        lines = tasks_toml(example_tasks(study.texts)[:1]).splitlines()
        return "   ".join(
            [f"add your tasks to {at / 'study.toml'} (chance: the accuracy of guessing), such as", *lines]
        )
    named = isinstance(study.texts, NamedTexts)
    if not with_losses and named:
        return f"benchcast import losses {at} FILE.csv"
    if not with_losses:
        return f"benchcast collect {at} --model hf --model_args pretrained=…   or   benchcast import losses {at} FILE…"
    if all(t.usable < FEWEST_MODELS for t in tasks):
        return (
            f"benchcast import scores {at} FILE…   (a fit needs at least {FEWEST_MODELS} models with losses and scores)"
        )
    if any(t.fitted for t in tasks):
        return f"benchcast predict {at} --model NAME" + f"   or   benchcast report {at}" * comparable
    if not any(m.family for m in study.models()):
        return f"benchcast import models {at} FILE…   (families, sizes and training tokens; then benchcast fit {at})"
    forecast = f"benchcast compare {at}   then   benchcast fit {at}" if comparable else f"benchcast fit {at}"
    if has_features or named:
        return forecast
    before = f"benchcast features {at} --scorer …   or   benchcast import features {at} FILE.npz"
    return f"{forecast}   or   {before}   (before the fit, which then groups similar tokens)"
