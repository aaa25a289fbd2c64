"""The difference of two runs on the same items: its mean, and its noise by the draw of the items.

Both runs answer the same items, so what makes an item hard is in both scores and cancels in their difference. Items of
one passage are not independent; they count as one cluster, and so does a document that occurs in several tasks.
Axes: I items, C clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.records import Floats

Strings = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True, eq=False)
class PairedDifference:
    """The second score minus the first, as a weighted mean over items."""

    value: float
    clusters: Strings  # C names
    pulls: Floats  # C: what each cluster adds to the error of the mean
    floor: float  # variance that is added, since a sample without a difference does not prove that there is none

    @property
    def variance(self) -> float:
        """Variance of the value by the draw of the clusters."""
        count = len(self.pulls)
        return float(count / max(count - 1, 1) * (self.pulls**2).sum() + self.floor)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance."""
        return float(max(len(self.pulls) - 1, 1))


def paired_difference(first: Floats, second: Floats, clusters: Strings, weights: Floats) -> PairedDifference:
    """The difference of two scores that are weighted means over the same items.

    The variance is that of a ratio of sums over clusters. It never is zero: two items are added, half of each won by
    either run, as in the interval of Agresti and Min (Statistics in Medicine 24, 2005).

    Parameters
    ----------
    first, second : I outcomes of each run, from 0 to 1
    clusters : I names; items with one name are drawn together
    weights : I weights of the items in the score; they sum to 1
    """
    difference = second - first
    value = float(weights @ difference)
    names, index = np.unique(clusters, return_inverse=True)
    pulls = np.bincount(index, weights * (difference - value), minlength=len(names)).astype(np.float64)
    return PairedDifference(value, names, pulls, float((weights**2).mean()))


def mean_difference(parts: Sequence[PairedDifference]) -> PairedDifference:
    """The mean of several differences; clusters of the same name are one."""
    names, index = np.unique(np.concatenate([p.clusters for p in parts]), return_inverse=True)
    pulls = np.bincount(index, np.concatenate([p.pulls for p in parts]), minlength=len(names)) / len(parts)
    floor = sum(p.floor for p in parts) / len(parts) ** 2
    return PairedDifference(float(np.mean([p.value for p in parts])), names, pulls, floor)


def equal_weights(count: int) -> Floats:
    """Weights of a mean over items."""
    return np.full(count, 1 / count)


def weights_by_part(parts: Sequence[str]) -> Floats:
    """Weights of a mean over the parts of a group, each of which is a mean over its items."""
    names, index, counts = np.unique(np.array(parts), return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(names) * counts[index]), np.float64)


def weights_of_score(right: Floats, parts: Sequence[str], score: float, *, close: float) -> Floats | None:
    """Weights with which these outcomes have this score: those of all items, or of all parts; None if neither fits."""
    for weights in (equal_weights(len(right)), weights_by_part(parts)):
        if abs(float(weights @ right) - score) < close:
            return weights
    return None
