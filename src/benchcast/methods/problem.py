"""Describe one task of one fold: its training models, their scores, and the sets of models that are hidden in turn.

Axes: M models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchcast.dataset import Dataset, Fold
from benchcast.folds import inner_folds
from benchcast.law import at_share, share_above_chance, sigmoid
from benchcast.records import Bools, Floats, Task

STRONGEST = (0.4, 0.25, 0.15)  # shares of the training models that are hidden as stronger than the rest
FEWEST_WEAKER = 4  # models that must be left to learn from


@dataclass(frozen=True, slots=True)
class Problem:
    """The models to learn from, their scores on one task, and the hidden sets that candidates are compared on."""

    dataset: Dataset
    task: Task
    observed: Floats  # M, NaN where unknown
    known: Bools  # M: training or validation models that have a score
    families: list[Bools]  # M each: whole families, hidden in turn
    stronger: list[Bools]  # M each: models stronger than the rest, hidden to measure extrapolation
    validation: Bools  # M: known validation models
    mean_loss: Floats | None = None  # M: loss per character; None: the strongest training models are not hidden

    @classmethod
    def of(cls, dataset: Dataset, fold: Fold, t: int, *, mean_loss: Floats | None = None) -> Problem:
        """Task number `t` of a fold.

        The validation models are hidden as the stronger ones. Where there are none and `mean_loss` (M) is given, the
        training models of the lowest mean loss are hidden instead, 40%, 25% and 15% of them.
        """
        observed = dataset.accuracy[t]
        known = fold.seen & np.isfinite(observed)
        validation = known & fold.validation
        families = inner_folds(dataset.groups, known)
        alone = cls(dataset, dataset.tasks[t], observed, known, families, [], validation).without_strongest()
        if mean_loss is None:
            return alone
        return replace(alone, stronger=alone.stronger or strongest_models(mean_loss, known), mean_loss=mean_loss)

    def without_strongest(self) -> Problem:
        """The same problem with the validation models as the only stronger ones."""
        return replace(self, stronger=[self.validation] if self.validation.any() else [], mean_loss=None)

    @property
    def hidden(self) -> list[Bools]:
        """All hidden sets: families first, then stronger models."""
        return [*self.families, *self.stronger]

    @property
    def learning(self) -> list[Bools]:
        """Sets of models to learn from: all known ones, then the known ones without each hidden set."""
        return [self.known, *(self.known & ~hidden for hidden in self.hidden)]

    @property
    def q(self) -> Floats:
        """Scores above chance, 0 to 1; 0 for models without a known score."""
        chance = self.task.chance
        return np.clip(share_above_chance(np.where(self.known, self.observed, chance), chance), 0.0, 1.0)

    def accuracy(self, log_odds: Floats) -> Floats:
        """The score that belongs to the log-odds of a score above chance."""
        return np.asarray(at_share(sigmoid(log_odds), self.task.chance))


def strongest_models(mean_loss: Floats, known: Bools) -> list[Bools]:
    """Nested sets of the known models of the lowest mean loss.

    Scores are not used: a selection by score would also select by the noise of the score.
    """
    rows = np.flatnonzero(known)
    by_loss = rows[np.argsort(mean_loss[rows], kind="stable")]
    sets: list[Bools] = []
    for share in STRONGEST:
        count = max(1, round(share * len(by_loss)))
        if len(by_loss) - count >= FEWEST_WEAKER and not (sets and sets[-1].sum() == count):
            hidden = np.zeros_like(known)
            hidden[by_loss[:count]] = True
            sets.append(hidden)
    return sets
