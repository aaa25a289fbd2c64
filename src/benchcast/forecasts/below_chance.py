"""Say which tasks have scores below nominal chance, and which floor was learned for them.

Harnesses that take the option of the largest log-likelihood prefer short options, so that models that know nothing
score less than a guess. `stack` and `salience` learn the floor of such a task; other methods count on nominal chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from benchcast.records import Score, Task

LOWEST = 0.2  # share of a task's scores, the lowest, whose mean is compared with chance
ERRORS = 3.0  # standard errors of one score that this mean must lie below chance
USUAL_ITEMS = 500.0  # of a score whose number of items is unknown


def below_chance(scores: Sequence[Score], tasks: Sequence[Task], floors: Mapping[str, Sequence[float]]) -> list[str]:
    """One line for each task whose lowest scores are clearly below chance.

    Parameters
    ----------
    scores : rows of scores.csv
    tasks : the tasks to look at
    floors : floors that were learned for tasks, by name: of a stored fit, or of each fold of a comparison
    """
    lines = []
    for task in tasks:
        of_task = [s for s in scores if s.task == task.name and math.isfinite(s.accuracy)]
        if task.chance > 0 and of_task and _is_below(of_task, task.chance):
            accuracies = [s.accuracy for s in of_task]
            count = f"{sum(a < task.chance for a in accuracies)} of {len(accuracies)}"
            line = f"{task.name}: {count} scores are below chance {task.chance:.3g} (lowest {min(accuracies):.2g})"
            lines.append("; ".join(filter(None, (line, _floor(task, floors.get(task.name, ()))))))
    return lines


def _is_below(scores: Sequence[Score], chance: float) -> bool:
    lowest = sorted(scores, key=lambda s: s.accuracy)[: max(1, int(LOWEST * len(scores)))]
    known = [s.n_items for s in lowest if s.n_items > 0]
    n_items = float(np.mean(known)) if known else USUAL_ITEMS
    mean = float(np.mean([s.accuracy for s in lowest]))
    return mean < chance - ERRORS * math.sqrt(chance * (1 - chance) / n_items)


def _floor(task: Task, floors: Sequence[float]) -> str:
    if not floors:
        return ""
    low, high = f"{min(floors):.2g}", f"{max(floors):.2g}"
    if min(floors) == task.chance:
        return "chance stays the floor of the fit"
    return f"floor learned at {low}" if low == high else f"floors learned at {low} to {high}"
