"""Forecasts of a study's models by its stored fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.choices import DEFAULT_LEVEL, check_level
from benchcast.errors import BenchcastError
from benchcast.forecasts.fit import fits_for_new_models, store_fits
from benchcast.forecasts.fit import refit as fit_again
from benchcast.forecasts.forecast import Forecast, Forecasts
from benchcast.forecasts.known_scores import ScoreCorrection, correct
from benchcast.forecasts.mean_tasks import member_fits, predict_tasks
from benchcast.forecasts.stored_fit import Fit, load
from benchcast.messages import as_names, match_names
from benchcast.records import ModelMetadata, TokenLosses
from benchcast.study.study import Study, StudyLike


@dataclass(frozen=True, slots=True)
class ModelForecasts:
    """Forecasts of one model with the fits and losses that they rest on."""

    fits: list[Fit]
    losses: TokenLosses
    forecasts: list[Forecast]


def predict(
    study: StudyLike,
    models: Sequence[str] | None = None,
    *,
    tasks: Sequence[str] = (),
    level: float = DEFAULT_LEVEL,
    restrict: bool = False,
    refit: bool = False,
    use_scores: bool = False,
) -> Forecasts:
    """Forecast models of a study by the fits that are stored in it.

    Parameters
    ----------
    study : an opened study or its folder
    models : names of models that have losses, or patterns such as "my-7b@*"; None: all
    tasks : tasks that have a fit; none given: all of them
    level : share of scores of unseen models that the interval should contain, between 0 and 1
    restrict : fit again for each model, on the tokens that it has losses for; nothing is stored
    refit : fit these tasks again first, from the present data of the study, and store the new fits
    use_scores : also use each model's known scores on the other tasks that have a fit; remarks say which were used

    Returns
    -------
    one row for each model and task: `.to_pandas()`, `.to_arrow()`. A model that cannot be forecast has nulls, and the
    reason in its remark and in `.failed`

    >>> import benchcast as bc
    >>> forecasts = bc.predict("study", ["oak-64M@16B"])
    >>> forecasts
    <Forecasts of 1 model on code>
    >>> forecasts[0].low < forecasts[0].accuracy < forecasts[0].high
    True
    """
    opened = Study.of(study)
    names, tasks = find_models(opened, models), as_names(tasks)
    for task in tasks:
        load(opened.fit_folder(opened.task(task).name))  # an error for a task without a fit, before any work
    if refit:
        store_fits(opened, fit_again(opened, fits_for_new_models(opened, tasks)))
    fits = fits_for_new_models(opened, () if use_scores else tasks)
    by_model, failed = predict_models(opened, names, fits, level=level, restrict=restrict)
    correction = ScoreCorrection.of([fit.core for fit in fits]) if use_scores else None
    forecasts = (one.forecasts if correction is None else with_scores(one, correction) for one in by_model)
    rows = [row for of_model in forecasts for row in of_model if not tasks or row.task in tasks]
    shown = [fit.task for fit in fits if not tasks or fit.task in tasks]
    rows += [Forecast.missing(task, name, why, level) for name, why in failed.items() for task in shown]
    return Forecasts(tuple(sorted(rows, key=lambda row: names.index(row.model))), failed)


def with_scores(forecasts: ModelForecasts, correction: ScoreCorrection) -> list[Forecast]:
    """Forecasts of one model, corrected by its known scores on the other tasks."""
    known = ModelMetadata.of_losses(forecasts.losses)
    return correct(correction, forecasts.forecasts, np.array([known.score(fit.task)[0] for fit in forecasts.fits]))


def find_models(study: Study, patterns: Sequence[str] | None) -> list[str]:
    """Models with losses that the patterns name; None: all."""
    names = study.models_with_losses()
    return names if patterns is None else match_names(names, patterns, where=str(study.root), what="losses of model")


def predict_models(
    study: Study, names: Sequence[str], fits: list[Fit], *, level: float = DEFAULT_LEVEL, restrict: bool = False
) -> tuple[list[ModelForecasts], dict[str, str]]:
    """Forecasts of models, and for those that cannot be forecast the reason."""
    check_level(level)
    by_model, failed = [], {}
    members = [] if restrict else member_fits(study, fits)
    for name in names:
        try:
            losses = study.losses(name)
            used = fit_again(study, fits, losses) if restrict else fits
            forecasts = predict_tasks([*used, *members], losses, level)
            by_model.append(ModelForecasts(used, losses, forecasts[: len(used)]))
        except BenchcastError as error:
            failed[name] = str(error)
    return by_model, failed
