"""Step 3: the floor of a task, which is what models score that know nothing of it.

Nominal chance is what guessing gets, but scores may lie below it: lm-evaluation-harness takes the option of the largest
log-likelihood, which favours short options. And a floor below all scores makes the law straighter where most models
are near chance. So the floor is learned. For nominal chance and each lower floor, the anchors alone (all tokens, the
task's own texts, their answers) are learned without each hidden set and averaged (steps 4 and 5). The floor of the
least squared error on family rows is taken if it saves enough of the error of nominal chance.

Lower floors are tried only where the weakest models are not clearly above chance: elsewhere the floor is not seen, and
would only bend the law. The anchors take the place of all candidates because they are quick to learn and choose as well
(lab/LOG.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from benchcast.methods.law import at_share, sigmoid
from benchcast.methods.stack.averaging import average_without_own_set
from benchcast.methods.stack.candidates import anchors
from benchcast.methods.stack.hidden_sets import TaskScores
from benchcast.methods.stack.pool import Pool
from benchcast.methods.stack.settings import StackSettings
from benchcast.splits import family_balanced


def learn_floor(task: Pool, settings: StackSettings) -> float:
    """The floor of a task: nominal chance, or a lower one that left-out families clearly favour.

    Candidates of the pool are not used.
    """
    chance = task.scores.task.chance
    floors = possible_floors(task.scores, settings)
    if len(floors) == 1:
        return chance
    errors = {floor: _error_of_anchors(task, replace(task.scores, floor=floor), settings) for floor in floors}
    best = min(errors, key=lambda floor: errors[floor])
    return best if errors[best] < (1 - settings.least_floor_saving) * errors[chance] else chance


def possible_floors(scores: TaskScores, settings: StackSettings) -> list[float]:
    """Nominal chance, and lower floors down to 0; below 0 for a centred mean of tasks that has scores below 0."""
    chance, observed = scores.task.chance, np.sort(scores.observed[scores.known])
    weakest = observed[: max(1, int(settings.weakest * len(observed)))]
    error = math.sqrt(chance * (1 - chance) / settings.usual_items)
    if weakest.mean() > chance + error:
        return [chance]
    reach = chance if chance > 0 else -settings.reach_below_zero * float(weakest[0])
    return [chance, *(chance - (1 - fraction) * reach for fraction in settings.floors if reach > 0)]


def _error_of_anchors(task: Pool, scores: TaskScores, settings: StackSettings) -> float:
    """Squared error of the averaged anchors on family rows, the mean over families."""
    pool = task.with_candidates(scores, [anchors], settings)
    rows, of_families = pool.rows, pool.rows.of_families
    z = average_without_own_set(pool.log_odds_without_own_set, rows, settings)
    forecast = at_share(sigmoid(z), scores.floor)
    errors = (forecast - scores.observed[rows.model])[of_families]
    return float(family_balanced(rows.family[of_families]) @ errors**2)
