"""Explain the forecast of a study's task by its stored fit or a new one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from benchcast.aggregation import aggregate_fits
from benchcast.errors import InputError
from benchcast.explanation import Explanation, family_losses, make_units, weigh_units
from benchcast.fits import Fit
from benchcast.fits.inputs import stale_line
from benchcast.fitting import fit as fit_task
from benchcast.fitting import fits_for_new_models
from benchcast.formatting import few
from benchcast.metadata import family_names
from benchcast.records import NamedTexts
from benchcast.store import Study, StudyLike

MOST_SHARES = 8  # averaged candidates of an explanation
Tell = Callable[[str], None]  # receives one line


def explain(study: StudyLike, task: str, *, tell: Tell = lambda line: None) -> Explanation | ColumnWeights:
    """Show which tokens the forecast of a task depends on.

    Parameters
    ----------
    study : an opened study or its folder
    task : a task of study.toml
    tell : called with a line if the stored fit is outdated, or cannot be used and a new one is made, or `predict` uses
        the fits of the task's members instead

    Returns
    -------
    the salience of every token, from the stored fit or, without one, from a new one that is not stored. For a study
    made from a table, the weight of each column, the largest first

    >>> import benchcast as bc
    >>> explained = bc.explain("study", "code")
    >>> explained
    <Explanation of 'code' by label-token: 24 texts, 646 tokens>
    >>> explained.quote(explained.most(1)[0])["part"]
    'answer'
    """
    opened = Study.of(study)
    fit = fit_to_explain(opened, task, tell)
    for aggregate in aggregate_fits(opened, [fit]):
        if aggregate.by_members:
            members = few(aggregate.task.members)
            tell(f"{task}: `predict` uses the mean of the forecasts of {members}; this shows its own fit")
    shares = largest_shares(fit.core.notes.get("shares", {}), MOST_SHARES)
    names = opened.models_with_losses()
    nats = fit.align(opened.losses(m) for m in names)
    if isinstance(fit.texts, NamedTexts):
        columns = (replace(w, mean_loss=_mean(nats[:, w.index])) for w in weigh_columns(fit))
        return ColumnWeights(task, fit.core.method, tuple(columns), shares)
    units = make_units(fit.texts, fit.edges)
    explained = weigh_units(fit.task, fit.core.method, units, fit.salience, fit.supported)
    families = [str(f) for f in family_names(opened.infos(names))]
    return replace(explained, losses=family_losses(nats, families, units), shares=shares)


def largest_shares(shares: dict[str, float], most: int) -> dict[str, float]:
    """The largest shares of the candidates that a fit averages (see its notes), the largest first."""
    return dict(sorted(shares.items(), key=lambda item: -item[1])[:most])


def _mean(values: npt.NDArray[np.float32]) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan


def fit_to_explain(study: Study, task: str, on_message: Tell = lambda line: None) -> Fit:
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
            line = stale_line(study, [stored])
            if line:
                on_message(f"warning: {line} (`benchcast fit {study.root}` fits again)")
            return stored
        on_message(f"{task}: the stored fit is of other texts; fitting again")
    return fit_task(study, task)


@dataclass(frozen=True, slots=True)
class ColumnWeight:
    """Weight of one column of a table of losses in a task's forecast."""

    index: int  # of the column
    column: str
    unit: str
    answers: bool  # whether the column is the loss of the task's correct answers
    salience: float  # relative to the mean; NaN if a training model has no loss there
    share: float  # of the absolute salience of all columns
    mean_loss: float = math.nan  # over the models of the study that have one, in the column's unit


@dataclass(frozen=True, slots=True, repr=False)
class ColumnWeights:
    """The weights of all columns of a table of losses in a task's forecast, the largest first."""

    task: str
    method: str
    columns: tuple[ColumnWeight, ...]
    shares: dict[str, float] = field(default_factory=dict)  # of the candidates that the method averages, the largest

    def __repr__(self) -> str:
        return f"<ColumnWeights of {self.task!r} by {self.method}: {len(self)} columns>"

    def __iter__(self) -> Iterator[ColumnWeight]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, index: int) -> ColumnWeight:
        return self.columns[index]


def weigh_columns(fit: Fit) -> list[ColumnWeight]:
    """One entry for each column of a fit on a table of losses, by absolute salience, unused columns last."""
    salience, used = fit.salience.astype(np.float64), fit.supported
    size = np.where(used, np.abs(salience), 0.0)
    mean, total = (float(size[used].mean()) if used.any() else 0.0) or 1.0, float(size.sum()) or 1.0
    return [
        ColumnWeight(
            int(i),
            fit.texts.texts[i].id,
            fit.texts.texts[i].unit or "",
            fit.texts.texts[i].id in fit.core.task.answers,
            float(salience[i]) / mean if used[i] else math.nan,
            float(size[i]) / total if used[i] else math.nan,
        )
        for i in np.argsort(np.where(used, -size, 1.0), kind="stable")
    ]
