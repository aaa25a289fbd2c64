"""What a reader should know about a forecast: why it is missing, and why it may be less certain than usual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchcast.intervals import Predictions, distance, nearness_to_chance
from benchcast.metadata import ModelMetadata
from benchcast.task_fit import TaskFit

NO_INTERVAL = "no interval: forecasts of fewer than two unseen models could be tested"
UNLIKE = 2.0  # at least so many times as far as a usual left-out family is worth a remark


def remark_on(
    fit: TaskFit, predicted: Predictions, metadata: ModelMetadata, model: str, about: Mapping[str, Any]
) -> str:
    """The remark on the forecast of one model; empty if there is nothing to say."""
    if fit.law.failure:
        return f"no law: {fit.law.failure}"
    if not np.isfinite(predicted.capability[0]):
        return fit.lacking(metadata)
    if model in about.get("train", ()) or model in about.get("validation", ()):
        why = "seen: the fit was trained on this model's score"
    elif fit.reads_losses and not fit.weights.any():
        why = "constant: the training losses say nothing about this task, so no token has weight"
    else:
        unusual = filter(None, (_beyond(fit, predicted), _unlike(fit, predicted)))
        why = "; ".join(unusual) or _near_chance(fit, predicted)
    return "; ".join(filter(None, (why, "" if np.isfinite(predicted.low[0]) else NO_INTERVAL)))


def _unlike(fit: TaskFit, predicted: Predictions) -> str:
    """A remark if the losses are farther from the training models' than those of any left-out family.

    None if the capability is beyond their range, because that says so already.
    """
    far = float(predicted.position.distance[0])
    if fit.profile is None or far <= max(fit.profile.farthest, UNLIKE**2) or distance(fit, predicted.capability)[0] > 0:
        return ""
    return (
        f"unlike any training model: its losses differ from theirs {np.sqrt(far):.1f} times as much as those of an "
        "unseen family usually do"
    )


def _beyond(fit: TaskFit, predicted: Predictions) -> str:
    """A remark if the model is stronger or weaker than every training model."""
    far = float(distance(fit, predicted.capability)[0])
    if np.isinf(far):
        return "extrapolation: all training models have the same capability, and this model has a different one"
    if far > 0:
        below = bool(predicted.capability[0] < fit.range[0])
        side = "stronger" if below == (fit.law.slope < 0) else "weaker"
        size = "less than 1%" if far < 0.01 else f"{far:.0%}"
        return f"extrapolation: {side} than every training model, by {size} of their range"
    if predicted.position.stronger[0]:
        return "extrapolation: a lower mean loss than every training model"
    return ""


def _near_chance(fit: TaskFit, predicted: Predictions) -> str:
    near = float(nearness_to_chance(fit, predicted.accuracy)[0]) > 0
    return "near chance: losses hardly show whether such a model is about to improve" if near else ""
