"""Are the probabilities of `compare_scores` right? Recipes of the OLMo ladder that were run twice.

Five sizes were trained for one Chinchilla length twice, with about ten checkpoints each. Every checkpoint of a first
run is compared with every checkpoint of the first run of another size. The probability that the order is the same when
both are trained again is stated from the first runs of both sizes and from both runs of the other sizes; the second
runs of the two sizes say whether it was. Comparisons share runs, so they are far from independent.

    python -m lab.run_calibration
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from benchcast import datasets
from benchcast.decisions.compare_scores import (
    ScoredModels,
    checkpoint_variance,
    difference,
    scored_models,
    seed_variance,
)
from benchcast.records import Floats
from benchcast.study.study import Study

FIRST, SECOND = "1xC", "1xC-rerun"
BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Stated:
    """A stated probability of one order and whether the order came out."""

    task: str
    sizes: tuple[str, str]
    probability: float  # of the order of the first runs, at least 0.5
    right: float  # 1 if the second runs have this order, 0 if not, 0.5 if they are equal


def rerun_calibration(study: Study) -> list[Stated]:
    """Stated probabilities and outcomes of all comparisons in the OLMo ladder.

    Parameters
    ----------
    study : `datasets.fetch("olmo-ladder")`, or another study whose models are named `<size>-1xC[-rerun]@<step>`
    """
    known = scored_models(study.models(), study.scores(), [t.name for t in study.tasks])
    index = {m.model: i for i, m in enumerate(known.models)}
    sizes = [s for s in dict.fromkeys(m.family for m in known.models) if _steps(index, f"{s}-{SECOND}")]
    rows: list[Stated] = []
    for a, b in combinations(sizes, 2):
        rows += _of_pair(known, index, (a, b))
    return rows


def _steps(index: dict[str, int], run: str) -> dict[str, int]:
    """Step → index of the model."""
    return {name.partition("@")[2]: i for name, i in index.items() if name.startswith(f"{run}@")}


def _of_pair(known: ScoredModels, index: dict[str, int], sizes: tuple[str, str]) -> list[Stated]:
    """Comparisons of two sizes; noise is estimated without the second runs of both."""
    first, second = ([_steps(index, f"{s}-{run}") for s in sizes] for run in (FIRST, SECOND))
    used = np.ones(len(known.models), bool)
    used[[i for steps in second for i in steps.values()]] = False
    checkpoints = checkpoint_variance(known, np.flatnonzero(used))
    seeds = seed_variance(known, used, checkpoints)
    stated = []
    for x in first[0].keys() & second[0].keys():
        for y in first[1].keys() & second[1].keys():
            pair = [(sizes[0], np.array([first[0][x]])), (sizes[1], np.array([first[1][y]]))]
            for t, task in enumerate(known.tasks):
                compared = difference(known, t, pair, checkpoints=checkpoints, seeds=seeds)
                again = known.scores[t, second[1][y]] - known.scores[t, second[0][x]]
                up = compared.again >= 0.5
                right = 0.5 if again == 0 else float((again > 0) == up)
                stated.append(Stated(task, sizes, max(compared.again, 1 - compared.again), right))
    return stated


def calibration_table(rows: Sequence[Stated]) -> list[tuple[str, float, float, int]]:
    """For each bin of stated probabilities: its name, the mean stated, the share that was right, the number."""
    stated, right = (np.array([getattr(r, key) for r in rows]) for key in ("probability", "right"))
    table = []
    for low, high in pairwise(BINS):
        inside = (stated >= low) & ((stated < high) | (high == 1))
        if inside.any():
            name = f"{low:.0%} – {high:.0%}"
            table.append((name, float(stated[inside].mean()), float(right[inside].mean()), int(inside.sum())))
    return table


def brier(rows: Sequence[Stated]) -> float:
    """Mean squared difference between stated probabilities and outcomes; 0.25 for a coin."""
    errors: Floats = np.array([r.probability - r.right for r in rows])
    return float(np.mean(errors**2))


def lines(rows: Sequence[Stated]) -> list[str]:
    """The table as text."""
    table = [f"{name:12} {said:9.1%} {right:6.1%} {n:7}" for name, said, right, n in calibration_table(rows)]
    expected, right = (float(np.mean([getattr(r, key) for r in rows])) for key in ("probability", "right"))
    total = f"{len(rows)} comparisons: {right:.1%} came out, {expected:.1%} stated; Brier score {brier(rows):.3f}"
    return ["stated        mean    right  number", *table, total]


if __name__ == "__main__":
    print("\n".join(lines(rerun_calibration(datasets.fetch("olmo-ladder")))))  # noqa: T201
