"""Forecast accuracy from compute: a family's law, then the task's fit, with an interval for both errors. Pure.

Axes: P targets, K nodes of the distribution of capability.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from benchcast.choices import DEFAULT_LEVEL
from benchcast.extrapolation.family_law import Drift, FamilyLaw, ScalePoints
from benchcast.intervals import angle, from_angle, half_widths, locate
from benchcast.records import Floats
from benchcast.task_fit import TaskFit

NODES = 201


@dataclass(frozen=True, slots=True)
class ExtrapolatedForecast:
    """Forecasts of one task by one family's law, one entry for each target, with prediction intervals."""

    accuracy: Floats
    low: Floats
    high: Floats
    capability: Floats
    capability_low: Floats
    capability_high: Floats


def extrapolate_task(fit: TaskFit, law: FamilyLaw, drift: Drift, target: ScalePoints) -> ExtrapolatedForecast:
    """Forecast accuracy at targets, with intervals that include the errors of both steps.

    Log capability has a Student-t distribution around the law. Each capability gives an accuracy, with the error of
    forecasts of unseen families around it. The interval covers `DEFAULT_LEVEL` of it. The errors are assumed to be
    independent: the first concerns the losses of larger models, the second the score at a given loss.

    Parameters
    ----------
    fit : the task's fit
    law : the family's law of capability
    drift : growth of the law's error with distance
    target : the P points to forecast

    Returns
    -------
    forecasts of accuracy and capability with the ends of their prediction intervals, each an array of P floats
    """
    middle = law.log_loss(target)
    deviation, freedom = law.uncertainty(target, drift)
    quantiles = (np.arange(NODES) + 0.5) / NODES
    nodes = stdtrit(freedom[:, None], quantiles)
    capability = np.exp(middle[:, None] + deviation[:, None] * nodes)
    low, high = (mixture_quantile(fit, capability, p) for p in ((1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2))
    reach = deviation * stdtrit(freedom, (1 + DEFAULT_LEVEL) / 2)
    ends = (np.exp(middle + sign * reach) for sign in (-1, 1))
    return ExtrapolatedForecast(fit.law.accuracy(np.exp(middle)), low, high, np.exp(middle), *ends)


def mixture_quantile(fit: TaskFit, capability: Floats, share: float) -> Floats:
    """Quantile of accuracy for equally likely capabilities (targets × nodes), with the forecast's error around each."""
    accuracy = fit.law.accuracy(capability)
    normal = float(ndtri((1 + DEFAULT_LEVEL) / 2))
    below, above = half_widths(fit, accuracy, locate(fit, capability), DEFAULT_LEVEL)
    if not np.isfinite(above).all():
        return np.full(len(capability), np.nan)
    centre = angle(accuracy)
    low, high = np.full(len(capability), -np.pi / 2), np.full(len(capability), np.pi)
    for _ in range(40):
        middle = ((low + high) / 2)[:, None]
        scale = np.maximum(np.where(middle < centre, below, above) / normal, 1e-9)
        is_low = ndtr((middle - centre) / scale).mean(axis=1) < share
        low, high = np.where(is_low, middle[:, 0], low), np.where(is_low, high, middle[:, 0])
    return from_angle((low + high) / 2)
