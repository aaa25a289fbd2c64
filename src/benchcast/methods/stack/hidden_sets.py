"""Step 2: the hidden sets, which are whole families and models stronger than all others, and their rows.

The words are those of the package's glossary. A known model has one row with its family, and one more with every set
of stronger models that it belongs to.

Axes: M models, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import Dataset
from benchcast.methods.law import share_above_chance
from benchcast.methods.stack.settings import StackSettings
from benchcast.records import Bools, Floats, Ints, Task
from benchcast.splits import Fold, inner_folds

# "validation" and "strongest" are the two kinds of stronger models; a task has at most one of them.
HiddenKind = Literal["family", "validation", "strongest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScores:
    """The scores on one task, as far as a fold may see them."""

    task: Task
    observed: Floats  # M: accuracy, NaN where unknown
    floor: float  # accuracy of models that know nothing; nominal chance until it is learned (`floor`)
    known: Bools  # M: training and validation models that have a score
    validation: Bools  # M: those of them that are validation models
    families: npt.NDArray[np.str_]  # M: group of related models that each belongs to

    @classmethod
    def of(cls, dataset: Dataset, fold: Fold, t: int, *, among: Bools | None = None) -> TaskScores:
        """Scores on task number `t`, only of the models in a mask (M; None: all)."""
        task, observed = dataset.tasks[t], (dataset.accuracy if dataset.unclipped is None else dataset.unclipped)[t]
        known = fold.seen & np.isfinite(observed)
        if among is not None:
            known &= among
        return cls(
            task=task,
            observed=observed,
            floor=task.chance,
            known=known,
            validation=known & fold.validation,
            families=dataset.groups,
        )

    @property
    def q(self) -> Floats:
        """Share of the range from the floor to 1 (M); below 0 for a score below the floor, 0 for unknown models."""
        return share_above_chance(np.where(self.known, self.observed, self.floor), self.floor)


@dataclass(frozen=True, slots=True)
class HiddenSet:
    """Known models that are hidden together."""

    kind: HiddenKind
    models: Bools  # M


def hidden_sets(scores: TaskScores, mean_loss: Floats, settings: StackSettings) -> list[HiddenSet]:
    """The hidden sets of one task: families first, then stronger models.

    The validation models are hidden as the stronger ones. Where there are none, the known models of the lowest mean
    loss (M) are hidden instead.
    """
    sets = [HiddenSet("family", models) for models in inner_folds(scores.families, scores.known)]
    if scores.validation.any():
        sets.append(HiddenSet("validation", scores.validation))
    else:
        sets += [HiddenSet("strongest", models) for models in strongest_models(mean_loss, scores.known, settings)]
    return sets


def strongest_models(mean_loss: Floats, known: Bools, settings: StackSettings) -> list[Bools]:
    """Masks of the known models of the lowest mean loss (M each), each within the one before.

    Scores are not used: a selection by score would also select by the noise of the score.
    """
    models = np.flatnonzero(known)
    by_loss = models[np.argsort(mean_loss[models], kind="stable")]
    masks: list[Bools] = []
    for fraction in settings.strongest:
        count = max(1, round(fraction * len(by_loss)))
        if len(by_loss) - count >= settings.fewest_weaker and not (masks and masks[-1].sum() == count):
            mask = np.zeros_like(known)
            mask[by_loss[:count]] = True
            masks.append(mask)
    return masks


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRows:
    """The rows of one task. Those of one set are consecutive and in the order of the models."""

    model: Ints  # index of the row's model
    family: npt.NDArray[np.str_]
    hidden_set: Ints  # index of the row's set
    kind: npt.NDArray[np.str_]  # `HiddenKind` of that set
    q: Floats  # share of the range from the floor to 1

    @classmethod
    def of(cls, sets: Sequence[HiddenSet], scores: TaskScores) -> HiddenRows:
        """The rows of all sets, one set after the other."""
        model = np.concatenate([np.flatnonzero(s.models) for s in sets])
        hidden_set = np.repeat(np.arange(len(sets)), [s.models.sum() for s in sets])
        return cls(
            model=model,
            family=scores.families[model],
            hidden_set=hidden_set,
            kind=np.array([s.kind for s in sets])[hidden_set],
            q=scores.q[model],
        )

    @property
    def of_families(self) -> Bools:
        """Family rows: those of models that are hidden with their family (R). All others are stronger rows."""
        return self.kind == "family"

    def of_models_in(self, hidden_set: int) -> Bools:
        """All rows of the models of one set, those with other sets included (R)."""
        return np.isin(self.model, self.model[self.hidden_set == hidden_set])
