"""Training runs, and the points of equal size and compute at which they can be compared.

Axes: R runs, M models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError
from benchcast.extrapolation.family_law import ScalePoints
from benchcast.formatting import did_you_mean
from benchcast.records import Floats, Ints

SAME_SIZE = 1.5  # runs are compared if their sizes are within this factor


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A family, or the checkpoints of one of its models."""

    name: str
    rows: Ints  # indices of its models


@dataclass(frozen=True, slots=True)
class ComparisonPoint:
    """A compute that several runs of about the same size have reached."""

    params: float
    flops: float
    rows: tuple[Ints, ...]  # for each run, indices of its models of this size, by compute


def find_run(name: str, models: Sequence[str], families: npt.NDArray[np.str_]) -> TrainingRun:
    """The run named by a family, or by a model's name before the @."""
    stems = np.array([m.partition("@")[0] for m in models])
    rows = np.flatnonzero(families == name)
    rows = rows if len(rows) else np.flatnonzero(stems == name)
    if not len(rows):
        known = sorted({*map(str, families), *map(str, stems)})
        raise InputError(
            f"unknown run {name!r}; families are {', '.join(sorted(set(families)))}{did_you_mean(name, known)}"
        )
    return TrainingRun(name, rows)


def comparison_points(points: ScalePoints, runs: Sequence[TrainingRun]) -> list[ComparisonPoint]:
    """The points at which runs can be compared: for each size that all have, the most compute that all reached."""
    sizes = [np.unique(points.params[run.rows][np.isfinite(points.flops[run.rows])]) for run in runs]
    if any(len(s) == 0 for s in sizes):
        return []
    if all(len(s) == 1 for s in sizes):
        groups = [tuple(float(s[0]) for s in sizes)]
    else:
        finite = [s[np.isfinite(s)] for s in sizes]
        groups = [g for size in finite[0] if (g := _alike(float(size), finite))]
    meetings = []
    for group in groups:
        rows = tuple(_by_compute(points, run.rows, size) for run, size in zip(runs, group, strict=True))
        least = max(float(points.flops[r[0]]) for r in rows)
        most = min(float(points.flops[r[-1]]) for r in rows)
        if least <= most:
            meetings.append(ComparisonPoint(float(np.exp(np.mean(np.log(group)))), most, rows))
    return sorted(meetings, key=lambda m: -m.params)


def _alike(size: float, sizes: Sequence[Floats]) -> tuple[float, ...]:
    """The size of each run that is nearest to `size`; empty if one is not within `SAME_SIZE`."""
    nearest = [float(params[np.abs(np.log(params / size)).argmin()]) for params in sizes if len(params)]
    return (
        tuple(nearest)
        if len(nearest) == len(sizes) and all(1 / SAME_SIZE <= n / size <= SAME_SIZE for n in nearest)
        else ()
    )


def _by_compute(points: ScalePoints, rows: Ints, size: float) -> Ints:
    params = points.params[rows]
    kept = rows[(params == size) | (np.isnan(params) & np.isnan(size))]
    kept = kept[np.isfinite(points.flops[kept])]
    return kept[np.argsort(points.flops[kept], kind="stable")]


def at_compute(points: ScalePoints, values: Floats, rows: Ints, flops: float) -> float:
    """A value of a run at a given compute, interpolated in log compute; NaN if a neighbour is unknown."""
    return float(np.interp(np.log(flops), np.log(points.flops[rows]), values[rows]))
