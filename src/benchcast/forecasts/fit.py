"""From a study to fits.

fit = benchcast.fit(study, task="mmlu")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

import benchcast
from benchcast.choices import DEFAULT_LEVEL, Split, level_text
from benchcast.devices import few_blas_threads
from benchcast.errors import NotEnoughDataError, StudyError
from benchcast.forecasts.fits import Fits
from benchcast.forecasts.intervals import spread_of
from benchcast.forecasts.staleness import StudyInputs, changed_inputs, hash_inputs
from benchcast.forecasts.stored_fit import Fit, load
from benchcast.losses.assemble import reference_of
from benchcast.losses.choice_losses import texts_with
from benchcast.losses.dataset import Dataset
from benchcast.losses.regroup import align_models
from benchcast.messages import as_names
from benchcast.methods import DEFAULT_METHOD, METHODS, MethodName
from benchcast.methods.paper import DescentSettings
from benchcast.methods.spec import (
    MethodSpec,
    equal_inputs,
    fit_method,
    same_losses,
    stored_settings,
    without_weak_tasks,
)
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, TokenLosses
from benchcast.splits import FEWEST_MODELS, Fold, training_fold
from benchcast.study.atomic import is_read_only, locked, require_writable
from benchcast.study.study import Study, StudyLike

MOST_IN_MEMORY = 8  # sets of fits of read-only studies that a process keeps


def fit(
    study: StudyLike,
    task: str,
    *,
    method: MethodName = DEFAULT_METHOD,
    split: Split = "column",
    device: str = "",
    settings: DescentSettings | None = None,
) -> Fit:
    """Learn to forecast one task from the study's training models.

    Parameters
    ----------
    study : an opened study or its folder
    task : a task of study.toml
    method : how to forecast; `benchcast.compare` lists and compares all methods
    split : the split, as in `compare`, whose test models are not used; an empty column, and "family", hold out none
    device : where methods that learn token weights are computed: a torch device such as "cuda"; "" is numpy
    settings : of the method "paper"; other methods have none

    Returns
    -------
    the fit; it is not stored in the study (`fit_tasks(study, [task], store=True)` does that)

    >>> import benchcast as bc
    >>> fit = bc.fit(bc.datasets.load_zoo(), task="code", method="label-token", split="size")
    >>> fit
    <Fit of 'code' by label-token on 135 models>
    """
    opened, spec = Study.of(study), MethodSpec(method, settings, device)
    return _fit_dataset(opened, opened.dataset([task]), spec, split=split, asked_for=True)[0]


def fit_tasks(
    study: StudyLike,
    tasks: Sequence[str] = (),
    *,
    method: MethodName | MethodSpec = DEFAULT_METHOD,
    split: Split = "column",
    store: bool = False,
    on_left_out: Callable[[str], None] = lambda line: None,
    on_doubt: Callable[[str], None] = lambda line: None,
) -> Fits:
    """Fit several tasks, by default all, in shared passes over losses and features.

    Parameters
    ----------
    study, split : as in `fit`
    tasks : tasks of study.toml; none given: all that have enough scores
    method : as in `fit`; or a `MethodSpec`, which has settings and a device, too
    store : save the fits in the study, in place of older ones of the same tasks, as `benchcast fit` does
    on_left_out : called with one line for each task and model that is left out, and why
    on_doubt : called with one line for each model whose losses look wrong

    Returns
    -------
    one fit for each task, by position or as `fits["mmlu"]`; `fits.left_out` has the other tasks, and why

    >>> import benchcast as bc
    >>> bc.fit_tasks("study", method="label-token", store=True)
    [<Fit of 'facts' by label-token on 16 models>, <Fit of 'code' by label-token on 16 models>]
    """
    spec = method if isinstance(method, MethodSpec) else MethodSpec(method)
    opened = Study.of(study)
    if store:
        require_writable(opened.root)
    dataset = opened.dataset(tasks)
    for line in dataset.doubts:
        on_doubt(line)
    fits = _fit_dataset(opened, dataset, spec, split=split, asked_for=bool(tasks), on_left_out=on_left_out)
    if store:
        store_fits(opened, fits)
    return fits


@few_blas_threads()
def _fit_dataset(
    study: Study,
    dataset: Dataset,
    method: MethodSpec,
    *,
    split: Split,
    asked_for: bool,
    on_left_out: Callable[[str], None] = lambda line: None,
) -> Fits:
    """Fits of the dataset's tasks; if they were asked for, one that cannot be fitted is an error."""
    name, fold = training_fold(study.infos(dataset.models), split)
    dataset, weak = without_weak_tasks(dataset, [fold], asked_for=asked_for)
    for task, why in weak.items():
        on_left_out(f"{task}: {why}")
    for model in dataset.support.excluded:
        on_left_out(f"model {model} {dataset.support.why(model)} (--keep-all keeps it)")
    if METHODS[method.name].reads_choices:
        for line in dataset.choices.lines():
            on_left_out(line)
    fits = as_fits(study, dataset, fold, split=name, task_fits=method.fit(dataset, [fold])[0])
    same = same_losses(dataset, fold)
    rejected = {fit.task: why for fit in fits if (why := _why_reject(fit, same_losses=same))}
    if rejected and (asked_for or len(rejected) == len(fits)):
        task, why = next(iter(rejected.items()))
        raise NotEnoughDataError(f"{task}: {why}")
    for task, why in rejected.items():
        on_left_out(f"{task}: {why}")
    kept = with_inputs(study, [fit for fit in fits if fit.task not in rejected])
    return Fits(kept, left_out={**weak, **rejected})


def _why_reject(fit: Fit, *, same_losses: bool) -> str:
    """Reason to reject the fit, or ''. A failed law reports its own reason."""
    task_fit, count = fit.task_fit, fit.about["n_train"][fit.task]
    if task_fit.law.failure:
        return ""
    if count < FEWEST_MODELS:
        return f"{count} training models have all that {task_fit.method} reads, a fit needs at least {FEWEST_MODELS}"
    return equal_inputs(task_fit, same_losses=same_losses)


def with_inputs(study: Study, fits: Sequence[Fit]) -> list[Fit]:
    """Fits with hashes of what they were made from, so that they can tell when the study has changed."""
    now = StudyInputs.of(study)
    hashes = [hash_inputs(study, fit.task_fit, now, split=fit.about["split"]) for fit in fits]
    return [replace(fit, about={**fit.about, "inputs": inputs}) for fit, inputs in zip(fits, hashes, strict=True)]


def as_fits(study: Study, dataset: Dataset, fold: Fold, *, split: str, task_fits: Sequence[TaskFit]) -> list[Fit]:
    """Fits of a fold with all they need to predict: tokens, texts, and where they come from."""
    about = {
        "benchcast": benchcast.__version__,
        "texts": study.texts.digest,
        "annotated_texts": study.texts.annotated_digest,
        "scorer": dataset.features.scorer if dataset.features else "",
        "split": split,
        "unit": "byte",
        "level": DEFAULT_LEVEL,
        "seed": study.seed,
        "keep_all": study.keep_all,
        **dataset.support.as_json(),
        **({} if study.read_choices else {"read_choices": False}),
    }
    seen, tokens = dataset.nats[fold.seen], dataset.reference_tokens
    return [
        Fit(
            task_fit=task_fit,
            salience=task_fit.salience(seen),
            edges=tokens.edges,
            supported=tokens.supported,
            texts=study.texts,
            about=about | _learned(dataset, fold, task_fit),
        )
        for task_fit in task_fits
    ]


def _learned(dataset: Dataset, fold: Fold, task_fit: TaskFit) -> dict[str, Any]:
    """The models that a fit learned from: those with a score and all that the method reads."""
    task = task_fit.task.name
    accuracy = dataset.accuracy[[t.name for t in dataset.tasks].index(task)]
    usable = np.isfinite(accuracy) & task_fit.capability.known(dataset.metadata)
    return {
        "mean_accuracy": float(np.nanmean(accuracy[fold.seen])),
        "n_train": {task: int((fold.train & usable).sum())},
        "train": _named(dataset, fold.train & usable),
        "validation": _named(dataset, fold.validation & usable),
    }


def _named(dataset: Dataset, rows: Bools) -> list[str]:
    return [m for m, on in zip(dataset.models, rows, strict=True) if on]


def stored_fits(study: Study, tasks: Sequence[str] = ()) -> list[Fit]:
    """The fits that are stored in a study, of all tasks or of the named ones; an error without one.

    A public study is read-only and holds none: it is fitted in memory, once in a process.
    """
    asked = [study.task(task).name for task in dict.fromkeys(as_names(tasks))]
    if is_read_only(study.root) and not study.fitted_tasks():
        return list(fits_in_memory(study, tuple(asked)))
    fits = [load(study.fit_folder(name)) for name in asked] if asked else fits_if_any(study)
    if not fits:
        raise StudyError(f"{study.root}: no fits yet; run `benchcast fit {study.root}`")
    return fits


@lru_cache(maxsize=MOST_IN_MEMORY)
def fits_in_memory(study: Study, tasks: tuple[str, ...]) -> tuple[Fit, ...]:
    """Fits of a study, as `fit_tasks` makes them; of no tasks: of all that have enough scores."""
    return tuple(fit_tasks(study, tasks))


def fits_if_any(study: Study) -> list[Fit]:
    """All fits that are stored in a study; empty where there are none."""
    return [load(study.fit_folder(task)) for task in study.fitted_tasks()]


def fits_for_report(
    study: Study, dataset: Dataset, methods: Sequence[str], *, stored: Sequence[Fit]
) -> dict[str, dict[str, Fit]]:
    """For each method and task, the fit that forecasts models without a score.

    This is the stored fit where it is of this method and up to date. Otherwise it is a new one, on the models that
    the stored fit learned from, or that `benchcast fit` would learn from; nothing is stored.
    """
    of_task = {fit.task: fit for fit in stored}
    return {method: _fits_of_method(study, dataset, method, stored=of_task) for method in methods}


def _fits_of_method(study: Study, dataset: Dataset, method: str, *, stored: Mapping[str, Fit]) -> dict[str, Fit]:
    """The stored fits that are what a fit of this method on this dataset would be, and new ones of the other tasks."""
    tokens, kept = dataset.reference_tokens, {}
    to_fit: dict[Split, list[str]] = {}
    for task in (t.name for t in dataset.tasks):
        fit = stored.get(task)
        if (
            fit is not None
            and fit.task_fit.method == method
            and np.array_equal(fit.edges, tokens.edges)
            and np.array_equal(fit.supported, tokens.supported)
            and not changed_inputs(study, fit)
        ):
            kept[task] = fit
        else:
            to_fit.setdefault("column" if fit is None else _split_of(fit), []).append(task)
    for split, tasks in to_fit.items():
        part = dataset.for_tasks(tasks)
        name, fold = training_fold(study.infos(part.models), split)
        fits = as_fits(study, part, fold, split=name, task_fits=fit_method(method, part, [fold])[0])
        kept |= {fit.task: fit for fit in fits}
    return kept


def _split_of(fit: Fit) -> Split:
    """The split to fit again with; `family` holds no model out."""
    return "family" if fit.about["split"] == "everything" else cast(Split, fit.about["split"])


@few_blas_threads()
def refit(study: Study, stored: Sequence[Fit], restrict: TokenLosses | None = None) -> list[Fit]:
    """The same fits again, with the split, method and settings they had; `restrict` holds losses of a model: the fits
    then rest only on tokens where this model has a loss, too, and on texts of which it has a choice loss.

    Fits of one method, split and settings share their passes over the losses.
    """
    alike: dict[tuple[MethodName, Split, DescentSettings | None, bool, bool], list[str]] = {}
    for old in stored:
        method = cast(MethodName, old.task_fit.method)
        opened = (bool(old.about.get("keep_all", False)), bool(old.about.get("read_choices", True)))
        alike.setdefault((method, _split_of(old), stored_settings(old.task_fit), *opened), []).append(old.task)
    support = choice_texts = None
    if restrict is not None:
        tokens, _ = reference_of(study.texts, study.features())
        support = np.isfinite(align_models([restrict], tokens.edges, study.texts)[0])
        choice_texts = texts_with(restrict, of_columns=bool(study.choice_columns))
    again: dict[str, Fit] = {}
    for (method, split, settings, keep_all, read_choices), tasks in alike.items():
        as_opened = (keep_all, read_choices) == (study.keep_all, study.read_choices)
        models = study if as_opened else replace(study, keep_all=keep_all, read_choices=read_choices)
        dataset = models.dataset(tasks, support=support, choice_texts=choice_texts)
        fits = _fit_dataset(models, dataset, MethodSpec(method, settings), split=split, asked_for=True)
        again |= {fit.task: fit for fit in fits}
    return [again[old.task] for old in stored]


def store_fits(study: Study, fits: Sequence[Fit]) -> None:
    """Save fits in the study, in place of older ones of the same tasks."""
    with locked(study.root):
        for fit in fits:
            fit.save(study.fit_folder(fit.task))


def describe(fit: Fit) -> str:
    """One line on a fit for people."""
    law, spread = fit.task_fit.law, spread_of(fit.task_fit)
    if law.failure:
        return f"{fit.task}: no law ({law.failure})"
    known = f"{fit.task}: {fit.task_fit.method}, {fit.about['n_train'][fit.task]} training models"
    if not np.isfinite(spread.half_width):
        return f"{known}; too few unseen models to say how far it misses"
    return (
        f"{known}; misses by {100 * spread.scale:.1f} points (root mean square over {fit.task_fit.out_of_fold.kind}), "
        f"{level_text()} interval ±{100 * min(1.0, spread.half_width):.1f}"
    )
