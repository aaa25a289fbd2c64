"""Compute → capability → accuracy: a family's law, then the task's fit, with an interval that carries both. Pure.

Axes: P targets, K nodes of the distribution of capability.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import t as student

from benchcast.extrapolation.family_law import Drift, FamilyLaw, ScalePoints
from benchcast.intervals import LEVEL, spread_of, widening
from benchcast.records import Floats
from benchcast.task_fit import TaskFit

NODES = 201


@dataclass(frozen=True, slots=True)
class ExtrapolatedForecast:
    """Forecasts of one task by one family's law, one entry a target; ends of 90% intervals."""

    accuracy: Floats
    low: Floats
    high: Floats
    capability: Floats
    capability_low: Floats
    capability_high: Floats


def extrapolate_task(fit: TaskFit, law: FamilyLaw, drift: Drift, target: ScalePoints) -> ExtrapolatedForecast:
    """Forecasts at points with intervals that carry both steps.

    Capability is Student-t around the law in logs; each value of it has its own accuracy and, around that, the
    error of forecasts of unseen families. The interval holds 90% of the mixture. The two errors are taken as
    independent: one is about losses of larger models, the other about what a given loss means for the score.
    """
    middle = law.log_loss(target)
    deviation, freedom = law.uncertainty(target, drift)
    shares = (np.arange(NODES) + 0.5) / NODES
    draws = student.ppf(shares, freedom[:, None])
    capability = np.exp(middle[:, None] + deviation[:, None] * draws)
    low, high = (mixture_quantile(fit, capability, p) for p in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    reach = deviation * student.ppf((1 + LEVEL) / 2, freedom)
    ends = (np.exp(middle + sign * reach) for sign in (-1, 1))
    return ExtrapolatedForecast(fit.law.accuracy(np.exp(middle)), low, high, np.exp(middle), *ends)


def mixture_quantile(fit: TaskFit, capability: Floats, share: float) -> Floats:
    """Quantile of accuracy when capability is one of these (targets × nodes), with the forecast's own error."""
    accuracy = fit.law.accuracy(capability)
    normal = float(student.ppf((1 + LEVEL) / 2, np.inf))
    scale = spread_of(fit.out_of_fold).half_width / normal * widening(fit, capability, accuracy)
    if not np.isfinite(scale).all():
        return np.full(len(capability), np.nan)
    low, high = np.full(len(capability), -1.0), np.full(len(capability), 2.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = ndtr((middle[:, None] - accuracy) / np.maximum(scale, 1e-9)).mean(axis=1) < share
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.clip((low + high) / 2, 0.0, 1.0)
