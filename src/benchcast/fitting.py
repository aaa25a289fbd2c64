"""From a study to fits.

fit = benchcast.fit(study, task="mmlu")
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import benchcast
from benchcast.align import align_models
from benchcast.cells import near
from benchcast.errors import EvidenceError, InputError
from benchcast.evidence import Evidence, Fold
from benchcast.fits import Fit
from benchcast.folds import SPLITS, make_folds
from benchcast.intervals import LEVEL, spread_of
from benchcast.methods import METHODS
from benchcast.records import TokenLosses
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
) -> list[Fit]:
    """Fit several tasks in one go, on shared passes over losses and features.

    With a split, its test models stay unseen. Without one, or by family, every model with losses and
    scores is learned from. `restrict` confines the fit to tokens on which that model has a loss too.
    """
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}; known: {', '.join(METHODS)}{near(method, METHODS)}")
    evidence = study.evidence(tasks)
    if restrict is not None:
        row = align_models([restrict], evidence.tokens.edges, study.texts)[0]
        evidence = study.evidence(tasks, support=np.isfinite(row))
    name, fold = _training_fold(study, evidence, split)
    check_evidence(evidence, fold)
    fits = METHODS[method](evidence, [fold])[0]
    about = {
        "benchcast": benchcast.__version__,
        "texts": study.texts.digest,
        "scorer": evidence.features.scorer if evidence.features else "",
        "split": name,
        "unit": "byte",
        "level": LEVEL,
        "seed": study.seed,
        "train": [m for m, on in zip(evidence.models, fold.train, strict=True) if on],
        "validation": [m for m, on in zip(evidence.models, fold.validation, strict=True) if on],
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
            about,
        )
        for core in fits
    ]


def refit(study: Study, stored: Fit, restrict: TokenLosses) -> Fit:
    """The same fit again, on the tokens that `restrict` has losses for; what was unseen stays unseen."""
    split = None if stored.about["split"] == "everything" else stored.about["split"]
    return fit(study, stored.task, method=stored.core.method, split=split, restrict=restrict)


def _training_fold(study: Study, evidence: Evidence, split: str | None) -> tuple[str, Fold]:
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


def check_evidence(evidence: Evidence, fold: Fold) -> None:
    """Refuse what no method could learn from, naming the task and what it lacks."""
    for task, accuracy in zip(evidence.tasks, evidence.accuracy, strict=True):
        known = fold.seen & np.isfinite(accuracy)
        if known.sum() < FEWEST_MODELS:
            raise EvidenceError(
                f"{task.name}: {known.sum()} training models have both losses and accuracy, "
                f"a fit needs at least {FEWEST_MODELS}"
            )
        if np.ptp(accuracy[known]) == 0:
            raise EvidenceError(
                f"{task.name}: all training models score {accuracy[known][0]:g}; there is nothing to learn from"
            )


def describe(fit: Fit) -> str:
    """One line on a fit for people."""
    spread = spread_of(fit.core.honest)
    law = fit.core.law
    if law.failure:
        return f"{fit.task}: no law ({law.failure})"
    return (
        f"{fit.task}: {fit.core.method}, {len(fit.about['train'])} training models, {int(fit.supported.sum())} tokens; "
        f"families not shown are missed by {100 * spread.scale:.1f} points (root mean square), "
        f"90% interval ±{100 * spread.half_width:.1f}"
    )
