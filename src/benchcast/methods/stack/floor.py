"""Step 3: the floor of a task, which is what models score that know nothing of it.

Nominal chance is what guessing gets, but scores may lie below it: lm-evaluation-harness takes the option of the largest
log-likelihood, which favours short options. And a floor below all scores makes the law straighter where most models
are near chance. So the floor is learned, in two steps:

1. The anchors alone (all tokens, the task's own texts, their answers) are learned with nominal chance and with each
   lower floor, without each hidden set, and averaged; where families are many, the signed candidates, too. The floor of
   the least squared error on family rows is proposed if it saves enough of the error of nominal chance. Anchors take
   little time.
2. All candidates are learned with the proposed floor, too. It is taken if their blend errs less on family rows than
   with nominal chance.

With few families lower floors are tried only where the weakest models are not clearly above chance: elsewhere the
floor is not seen, and few families may favour one by luck. With many they may tell that a lower floor makes the law
straighter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchcast.methods.stack.averaging import average_without_own_set
from benchcast.methods.stack.blend import fit_blend
from benchcast.methods.stack.candidates import anchors, signed
from benchcast.methods.stack.hidden_sets import TaskScores
from benchcast.methods.stack.pool import Learner, Pool
from benchcast.methods.stack.settings import StackSettings


def with_learned_floor(task: Pool, recipes: Sequence[Learner], settings: StackSettings) -> Pool:
    """The pool with candidates, learned under nominal chance or under a lower floor that families clearly favour."""
    nominal = task.with_candidates(task.scores, recipes, settings)
    floor = propose_floor(task, settings)
    if floor == task.scores.task.chance:
        return nominal
    lower = task.with_candidates(replace(task.scores, floor=floor), recipes, settings)

    def error(pool: Pool) -> float:
        return pool.left_out_error(fit_blend(pool, settings).log_odds_without_own_set)

    return lower if error(lower) < error(nominal) else nominal


def propose_floor(task: Pool, settings: StackSettings) -> float:
    """The floor with which averaged candidates forecast left-out families best; nominal chance if it saves little.

    Anchors propose, and with many families signed candidates, too: the floor of the larger saving is taken.
    """
    chance, floors = task.scores.task.chance, possible_floors(task.scores, settings)
    if len(floors) == 1:
        return chance
    proposed, least = chance, 1 - settings.least_floor_saving
    for recipe in (anchors, signed) if _many_families(task.scores, settings) else (anchors,):
        errors = {}
        for floor in floors:
            pool = task.with_candidates(replace(task.scores, floor=floor), [recipe], settings)
            z = average_without_own_set(pool.log_odds_without_own_set, pool.rows, settings)
            errors[floor] = pool.left_out_error(z)
        best = min(floors, key=lambda floor: errors[floor])
        if errors[best] < least * errors[chance]:
            proposed, least = best, errors[best] / errors[chance]
    return proposed


def possible_floors(scores: TaskScores, settings: StackSettings) -> list[float]:
    """Nominal chance, and lower floors down to 0; below 0 for a centred mean of tasks that has scores below 0."""
    chance, observed = scores.task.chance, np.sort(scores.observed[scores.known])
    weakest = observed[: max(1, int(settings.weakest * len(observed)))]
    error = math.sqrt(chance * (1 - chance) / settings.usual_items)
    if weakest.mean() > chance + error and not _many_families(scores, settings):
        return [chance]
    reach = chance if chance > 0 else -settings.reach_below_zero * float(weakest[0])
    return [chance, *(chance - (1 - fraction) * reach for fraction in settings.floors if reach > 0)]


def _many_families(scores: TaskScores, settings: StackSettings) -> bool:
    return len(np.unique(scores.families[scores.known])) >= settings.families_for_any_floor
