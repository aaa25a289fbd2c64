"""Forecasts of a study's models by its stored fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.choices import DEFAULT_LEVEL, check_level
from benchcast.devices import few_blas_threads
from benchcast.errors import BenchcastError
from benchcast.forecasts.fit import refit as fit_again
from benchcast.forecasts.fit import store_fits, stored_fits
from benchcast.forecasts.forecast import Forecast, Forecasts
from benchcast.forecasts.known_scores import ScoreCorrection, correct
from benchcast.forecasts.mean_tasks import member_fits, predict_tasks
from benchcast.forecasts.stored_fit import Fit
from benchcast.messages import as_names, match_names
from benchcast.records import ModelInfo, ModelMetadata, TokenLosses
from benchcast.steps import steps
from benchcast.study.study import Study, StudyLike


@dataclass(frozen=True, slots=True)
class ModelForecasts:
    """Forecasts of one model with the fits and losses that they rest on."""

    fits: list[Fit]
    losses: TokenLosses
    forecasts: list[Forecast]  # one for each fit


@dataclass(frozen=True, slots=True)
class StudyForecasts:
    """Forecasts of models of a study, with the stored fits, each loaded once."""

    fits: list[Fit]
    models: list[ModelForecasts]  # those that could be forecast
    forecasts: Forecasts


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

    A public or the embedded study is read-only: it is fitted in memory, at the first call of a process.

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
    return forecast_models(
        opened,
        find_models(opened, models),
        tasks=as_names(tasks),
        level=level,
        restrict=restrict,
        refit=refit,
        use_scores=use_scores,
    ).forecasts


def find_models(study: Study, patterns: Sequence[str] | None) -> list[str]:
    """Models with losses that the patterns name, in the order of training; None: all."""
    infos = study.infos(study.models_with_losses())
    names = [info.model for info in sorted(infos, key=lambda info: info.training_order)]
    return names if patterns is None else match_names(names, patterns, where=str(study.root), what="losses of model")


@few_blas_threads()
def forecast_models(
    study: Study,
    names: Sequence[str],
    *,
    tasks: Sequence[str] = (),
    level: float = DEFAULT_LEVEL,
    restrict: bool = False,
    refit: bool = False,
    use_scores: bool = False,
) -> StudyForecasts:
    """Forecasts of the named models, and all that they rest on; the options are those of `predict`."""
    check_level(level)
    fits = stored_fits(study, tasks)
    if refit:
        fits = fit_again(study, fits)
        store_fits(study, fits)
    if use_scores and tasks:  # a score on any task that has a fit may correct the others
        known = {fit.task: fit for fit in fits}
        every = study.fitted_tasks() or [fit.task for fit in stored_fits(study)]
        fits = [known[t] if t in known else stored_fits(study, [t])[0] for t in every]
    members = [] if restrict else member_fits(study, fits)
    correction = ScoreCorrection.of([fit.task_fit for fit in fits]) if use_scores else None
    models, rows, failed = [], [], {}
    for name in steps(names, "models"):
        try:
            losses = study.losses(name)
            used = fit_again(study, fits, losses) if restrict else fits
            forecasts = predict_tasks([*used, *members], losses, level)[: len(used)]
        except BenchcastError as error:
            failed[name] = str(error)
            metadata = ModelMetadata.of([ModelInfo(name)], [s for s in study.scores() if s.model == name])
            forecasts = [
                Forecast.missing(f.task, name, str(error), level=level, observed=metadata.known_score(f.task))
                for f in fits
            ]
        else:
            models.append(ModelForecasts(used, losses, forecasts))
            if correction is not None:
                metadata = ModelMetadata.of_losses(losses)
                scores = np.array([metadata.score(fit.task)[0] for fit in used])
                forecasts = correct(correction, forecasts, scores)
        rows += [row for row in forecasts if not tasks or row.task in tasks]
    return StudyForecasts(fits, models, Forecasts(tuple(rows), failed))
