"""Measure the distance of a model's loss profile from those of the training models.

A profile is the logarithm of a model's mean loss on each group of tokens, usually a text. The profiles of the training
models differ mostly along one direction, general skill, and less along others. The distance is Mahalanobis's, with a
tenth of the total variance added to every direction, because the variance is poorly known in directions in which the
training models hardly differ. Its unit is the mean squared distance of left-out training families, so that a usual
unseen family is at about 1.
Axes: M models, N reference tokens, G groups of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.records import Bools, Floats, Ints

SHARED_VARIANCE = 0.1  # of the total, added to every direction
SMALLEST_LOSS = 1e-9  # a loss of 0 has no logarithm


@dataclass(frozen=True, slots=True)
class LossProfile:
    """The loss profiles of a fit's training models."""

    group: Ints  # group of each reference token, −1 for none (N)
    mean: Floats  # of the training models' profiles (G)
    whiten: Floats  # inverse of the Cholesky factor of their covariance with the shared variance (G × G)
    typical: float  # mean squared distance of left-out families, before it is made the unit
    usual: float  # squared distance within which most left-out models are, in that unit
    strongest: float  # lowest mean loss of a training model

    def distance(self, nats: npt.NDArray[np.floating]) -> Floats:
        """Squared distance of each model from the training models; `nats` is M × N."""
        return squared_distance(group_losses(nats, self.group), self.mean, self.whiten) / self.typical

    def stronger(self, nats: npt.NDArray[np.floating]) -> Bools:
        """Whether each model has a lower mean loss than every training model."""
        return np.asarray(mean_losses(nats, self.group) < self.strongest)


def group_losses(nats: npt.NDArray[np.floating], group: Ints) -> Floats:
    """Logarithm of the mean loss of each model on each group (M × G)."""
    used = np.flatnonzero(group >= 0)
    count = np.bincount(group[used])
    sums = [np.bincount(group[used], weights=row[used], minlength=len(count)) for row in nats]
    return np.log(np.maximum(np.array(sums).reshape(len(nats), len(count)) / count, SMALLEST_LOSS))


def mean_losses(nats: npt.NDArray[np.floating], group: Ints) -> Floats:
    """Mean loss of each model over the tokens that have a group (M)."""
    used = np.flatnonzero(group >= 0)
    return np.array([row[used].mean(dtype=np.float64) for row in nats])


def spread_of_profiles(profiles: Floats, weight: Floats) -> tuple[Floats, Floats] | None:
    """Mean and whitening matrix of the profiles of weighted models (M × G); None if all profiles are the same."""
    mean = weight @ profiles
    centred = profiles - mean
    covariance = (centred * weight[:, None]).T @ centred
    total = float(np.trace(covariance))
    if not total > 0:
        return None
    covariance[np.diag_indices_from(covariance)] += SHARED_VARIANCE * total
    return mean, np.linalg.inv(np.linalg.cholesky(covariance))


def squared_distance(profiles: Floats, mean: Floats, whiten: Floats) -> Floats:
    """Squared Mahalanobis distance of each profile (M)."""
    return np.asarray((((profiles - mean) @ whiten.T) ** 2).sum(axis=1))
