"""Scores that a model must reach, and the probability that it does."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from benchcast.errors import InputError
from benchcast.forecasts.forecast import Forecast
from benchcast.messages import did_you_mean


def parse_needs(given: Sequence[str]) -> dict[str, float]:
    """Task → score (0..1) from texts such as "mmlu=0.62"."""
    needs: dict[str, float] = {}
    for text in given:
        task, _, score = (part.strip() for part in text.rpartition("="))
        try:
            value = float(score)
        except ValueError:
            value = math.nan
        if not task or math.isnan(value) or task in needs:
            again = f"; {task} is given twice" if task in needs else ""
            raise InputError(f"--need {text}: a task and a score from 0 to 1 are needed, such as mmlu=0.62{again}")
        needs[task] = value
    return needs


def check_needs(needs: Mapping[str, float], tasks: Collection[str]) -> None:
    """Raise InputError for a task without a fit, and for a score that is not above 0 and at most 1."""
    for task, score in needs.items():
        if task not in tasks:
            known = f"fits are there of {', '.join(tasks)}" if tasks else "no task has a fit"
            raise InputError(f"need of {task!r}: {known}{did_you_mean(task, tasks)}")
        if not 0 < score <= 1:
            percent = f"; {score:g}% is {score / 100:g}" if 2 <= score <= 100 else ""
            raise InputError(f"need of {task!r}: {score:g} is no score above 0 and at most 1{percent}")


def probabilities(forecasts: Iterable[Forecast], needs: Mapping[str, float]) -> dict[str, float]:
    """Task → probability that the observed score reaches the need; NaN where there is no interval.

    Parameters
    ----------
    forecasts : of one model
    needs : task → score from 0 to 1
    """
    by_task = {forecast.task: forecast for forecast in forecasts}
    return {task: by_task[task].probability_above(score) for task, score in needs.items() if task in by_task}
