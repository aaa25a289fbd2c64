"""Explain the forecast of a study's task by its stored fit or a new one."""

from __future__ import annotations

from collections.abc import Callable

from benchcast.errors import InputError
from benchcast.explanation import ColumnWeight, Explanation, make_units, weigh_columns, weigh_units
from benchcast.fits import Fit
from benchcast.fitting import fit as fit_task
from benchcast.fitting import fits_for_new_models
from benchcast.records import NamedTexts
from benchcast.store import Study, StudyLike


def _silent(_: str) -> None:
    return None


def explain(study: StudyLike, task: str, *, tell: Callable[[str], None] = _silent) -> Explanation | list[ColumnWeight]:
    """Which tokens the forecast of a task rests on.

    Parameters
    ----------
    study : an opened study or its folder
    task : a task of study.toml
    tell : is called with one line where the stored fit cannot be used and a new one is made

    Returns
    -------
    the salience of every token, from the stored fit or, without one, from a new one that is not stored. Of a study
    from a table, the weight of each column, the largest first
    """
    opened = Study.of(study)
    fit = fit_to_explain(opened, task, tell)
    if isinstance(fit.texts, NamedTexts):
        return weigh_columns(fit.texts, fit.core.task.answers, fit.salience, fit.supported)
    return explain_fit(fit)


def explain_fit(fit: Fit) -> Explanation:
    """The salience of a fit on tokens as they are shown."""
    return weigh_units(fit.task, fit.core.method, make_units(fit.texts, fit.edges), fit.salience, fit.supported)


def fit_to_explain(study: Study, task: str, tell: Callable[[str], None] = _silent) -> Fit:
    """The stored fit of a task if it reads losses on the study's texts, else a new one."""
    study.task(task)
    if task in study.fitted_tasks():
        (stored,) = fits_for_new_models(study, [task])
        if not stored.core.reads_losses:
            raise InputError(
                f"{task}: the stored fit is by {stored.core.method}, which reads no tokens; "
                f"fit again with `benchcast fit {study.root} --task {task}`"
            )
        if stored.texts.annotated_digest == study.texts.annotated_digest:
            return stored
        tell(f"{task}: the stored fit is of other texts; fitting again")
    return fit_task(study, task)
