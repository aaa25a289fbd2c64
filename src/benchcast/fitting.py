"""From a study to fits.

fit = benchcast.fit(study, task="mmlu")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

import benchcast
from benchcast.align import align_models
from benchcast.assemble import reference_of
from benchcast.cells import near
from benchcast.errors import EvidenceError, InputError, StudyError
from benchcast.evidence import Evidence, Fold, TaskFit
from benchcast.fits import Fit, load
from benchcast.folds import SPLITS, make_folds
from benchcast.intervals import LEVEL, spread_of
from benchcast.methods import METHODS
from benchcast.records import Bools, TokenLosses
from benchcast.store import Study

FEWEST_MODELS = 4


def fit(
    study: Study,
    task: str,
    *,
    method: str = "salience",
    split: str | None = None,
    restrict: TokenLosses | None = None,
) -> Fit:
    """Fit one task on the study's training models (see `fit_tasks`)."""
    return fit_tasks(study, [task], method=method, split=split, restrict=restrict)[0]


def fit_tasks(
    study: Study,
    tasks: Sequence[str] = (),
    *,
    method: str = "salience",
    split: str | None = None,
    restrict: TokenLosses | None = None,
    on_left_out: Callable[[str], None] | None = None,
) -> list[Fit]:
    """Fit several tasks in one go, on shared passes over losses and features.

    With a split, its test models stay unseen. Without one, or by family, every model with losses and
    scores is learned from. `restrict` confines the fit to tokens on which that model has a loss too.
    """
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}; known: {', '.join(METHODS)}{near(method, METHODS)}")
    evidence = study.evidence(tasks, support=None if restrict is None else _support_of(study, restrict))
    name, fold = training_fold(study, evidence, split)
    evidence, weak = without_weak_tasks(evidence, [fold], asked_for=bool(tasks))
    if on_left_out is not None:
        for task, why in weak.items():
            on_left_out(f"{task}: {why}")
        for model in evidence.support.excluded:
            on_left_out(f"model {model} {evidence.support.why(model)} (--keep-all keeps it)")
    return as_fits(study, evidence, fold, name, METHODS[method](evidence, [fold])[0])


def as_fits(study: Study, evidence: Evidence, fold: Fold, split: str, cores: Sequence[TaskFit]) -> list[Fit]:
    """Fits of a fold with all they need to be stored: tokens, texts, and where they come from."""
    about = {
        "benchcast": benchcast.__version__,
        "texts": study.texts.digest,
        "annotated_texts": study.texts.annotated_digest,
        "scorer": evidence.features.scorer if evidence.features else "",
        "split": split,
        "unit": "byte",
        "level": LEVEL,
        "seed": study.seed,
        "keep_all": study.keep_all,
        **evidence.support.as_json(),
        "n_train": {
            task.name: int((fold.train & np.isfinite(accuracy)).sum())
            for task, accuracy in zip(evidence.tasks, evidence.accuracy, strict=True)
        },
    }
    learned = {
        task.name: {"mean_accuracy": float(np.nanmean(accuracy[fold.seen]))}
        | {role: _named(evidence, on & np.isfinite(accuracy)) for role, on in _roles(fold)}
        for task, accuracy in zip(evidence.tasks, evidence.accuracy, strict=True)
    }
    seen = evidence.nats[fold.seen]
    tokens = evidence.tokens
    return [
        Fit(
            core,
            core.salience(seen) if core.reads_losses else np.zeros(seen.shape[1], np.float32),
            tokens.edges,
            tokens.supported,
            study.texts,
            about | learned[core.task.name],
        )
        for core in cores
    ]


def _roles(fold: Fold) -> tuple[tuple[str, Bools], ...]:
    return ("train", fold.train), ("validation", fold.validation)


def _named(evidence: Evidence, rows: Bools) -> list[str]:
    return [m for m, on in zip(evidence.models, rows, strict=True) if on]


def stored_fits(study: Study, tasks: Sequence[str] = ()) -> list[Fit]:
    """Fits that lie in the study, of the named tasks or of all that have one."""
    names = [study.task(task).name for task in tasks] or study.fitted_tasks()
    if not names:
        raise StudyError(f"{study.root}: no fits yet; run `benchcast fit {study.root}`")
    return [load(study.fit_folder(name)) for name in names]


def _support_of(study: Study, losses: TokenLosses) -> Bools:
    """The reference tokens on which a model has a loss."""
    tokens, _ = reference_of(study.texts, study.features())
    return np.isfinite(align_models([losses], tokens.edges, study.texts)[0])


def refit(study: Study, stored: Sequence[Fit], restrict: TokenLosses) -> list[Fit]:
    """The same fits again, on the tokens that `restrict` has losses for; what was unseen stays unseen.

    Fits of one method and split share their passes over the losses.
    """
    alike: dict[tuple[str, str, bool], list[str]] = {}
    for old in stored:
        kept = bool(old.about.get("keep_all", False))
        alike.setdefault((old.core.method, old.about["split"], kept), []).append(old.task)
    again: dict[str, Fit] = {}
    for (method, name, keep_all), tasks in alike.items():
        split = None if name == "everything" else name
        models = replace(study, keep_all=keep_all)
        made = fit_tasks(models, tasks, method=method, split=split, restrict=restrict)
        again |= {x.task: x for x in made}
    return [again[old.task] for old in stored]


def training_fold(study: Study, evidence: Evidence, split: str | None) -> tuple[str, Fold]:
    """The models to learn from. By default the split column, or everything where it is empty."""
    models = study.infos(evidence.models)
    everything = np.ones(len(models), bool)
    nobody = ~everything
    if split is not None and split not in SPLITS:
        raise InputError(f"unknown split {split!r}; known: {', '.join(SPLITS)}{near(split, SPLITS)}")
    if split == "family" or (split is None and not any(m.split for m in models)):
        return "everything", Fold(everything, nobody, nobody)
    name, folds = make_folds(models, split)
    return name, folds[0]


def weak_tasks(evidence: Evidence, folds: Sequence[Fold]) -> dict[str, str]:
    """Tasks that no method could learn from, and what they lack."""
    weak = {}
    for task, accuracy in zip(evidence.tasks, evidence.accuracy, strict=True):
        for fold in folds:
            known = fold.train & np.isfinite(accuracy)
            if known.sum() < FEWEST_MODELS:
                weak[task.name] = (
                    f"{known.sum()} training models have both losses and accuracy, a fit needs at least {FEWEST_MODELS}"
                )
            elif np.ptp(accuracy[known]) == 0:
                weak[task.name] = f"all training models score {accuracy[known][0]:g}; there is nothing to learn from"
    return weak


def without_weak_tasks(
    evidence: Evidence, folds: Sequence[Fold], *, asked_for: bool
) -> tuple[Evidence, dict[str, str]]:
    """Evidence on the tasks that can be learned, and why the others cannot; a task that was asked for must."""
    weak = weak_tasks(evidence, folds)
    if weak and (asked_for or len(weak) == len(evidence.tasks)):
        name, why = next(iter(weak.items()))
        raise EvidenceError(f"{name}: {why}")
    return evidence.for_tasks([t.name for t in evidence.tasks if t.name not in weak]), weak


def describe(fit: Fit) -> str:
    """One line on a fit for people."""
    law, spread = fit.core.law, spread_of(fit.core.honest)
    if law.failure:
        return f"{fit.task}: no law ({law.failure})"
    known = f"{fit.task}: {fit.core.method}, {fit.about['n_train'][fit.task]} training models"
    if not np.isfinite(spread.half_width):
        return f"{known}; too few unseen models to say how far it misses"
    return (
        f"{known}; misses by {100 * spread.scale:.1f} points (root mean square over {fit.core.honest.kind}), "
        f"90% interval ±{100 * min(1.0, spread.half_width):.1f}"
    )
