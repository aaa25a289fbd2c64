"""k-means clustering with k-means++ initialisation.

Axes: n points, d dimensions, k clusters.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchcast.records import Ints

Points = npt.NDArray[np.floating]


def cluster(points: Points, count: int, *, rounds: int, seed: int) -> Points:
    """Centres of `count` clusters (k × d); the centre of an empty cluster is not moved."""
    centres = _draw_apart(points, count, seed)
    for _ in range(rounds):
        label = nearest(points, centres)
        size = np.bincount(label, minlength=count)
        order = np.argsort(label, kind="stable")
        used = np.flatnonzero(size)
        starts = np.cumsum(size)[used] - size[used]
        centres = centres.copy()
        centres[used] = np.add.reduceat(points[order], starts, axis=0, dtype=np.float64) / size[used, None]
    return centres


def nearest(points: Points, centres: Points) -> Ints:
    """Index of the nearest centre of each point."""
    return np.argmax(points @ centres.T - 0.5 * (centres**2).sum(axis=1), axis=1).astype(np.int64)


def _draw_apart(points: Points, count: int, seed: int) -> Points:
    """Initial centres, drawn with probability proportional to the squared distance to the nearest earlier centre."""
    rng = np.random.RandomState(seed)
    chosen = [int(rng.randint(len(points)))]
    far = np.full(len(points), np.inf)
    for _ in range(count - 1):
        far = np.minimum(far, ((points - points[chosen[-1]]).astype(np.float64) ** 2).sum(axis=1))
        chosen.append(int(np.searchsorted(np.cumsum(far / far.sum()), rng.uniform())))
    return points[chosen]
