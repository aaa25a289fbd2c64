"""What the steps learn of one task: groups, hidden sets, floor and candidates, from which fits are made.

Axes: M models, N tokens, R rows, C candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import VIEWS, Dataset
from benchcast.methods.capability import Capability, ChoiceWeights
from benchcast.methods.disagreement import Disagreement, main_directions
from benchcast.methods.law import SigmoidLaw, at_share, sigmoid
from benchcast.methods.stack.averaging import Average, as_weighted_loss, mixes, shared
from benchcast.methods.stack.candidates import Candidates, GroupLosses, Recipe
from benchcast.methods.stack.hidden_sets import HiddenKind, HiddenRows, HiddenSet, TaskScores
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Floats
from benchcast.splits import family_balanced, left_out
from benchcast.steps import steps

Learner = Callable[..., Candidates]  # a recipe of `candidates`


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Groups, hidden sets, floor and candidates of one task (steps 1 to 4)."""

    dataset: Dataset
    losses: GroupLosses
    scores: TaskScores
    sets: list[HiddenSet]
    rows: HiddenRows
    candidates: list[Candidates]

    def with_candidates(self, scores: TaskScores, recipes: Sequence[Learner], settings: StackSettings) -> Pool:
        """The pool with the candidates of some recipes, learned from scores that may have another floor."""
        candidates = [
            learn(view, self.losses, scores, sets=self.sets, settings=settings)
            for learn, view in steps(list(product(recipes, VIEWS)), "kinds of candidates")
        ]
        return replace(self, scores=scores, rows=HiddenRows.of(self.sets, scores), candidates=candidates)

    def only(self, *recipes: Recipe) -> Pool:
        """The pool with the candidates of some recipes alone."""
        return replace(self, candidates=[c for c in self.candidates if c.recipe in recipes])

    def single(self, name: str) -> Pool | None:
        """The pool with one candidate alone; None if there is none of that name."""
        found = [c.single(name) for c in self.candidates if name in c.names]
        return replace(self, candidates=found) if found else None

    def without_recipes(self, *recipes: Recipe) -> Pool:
        """The pool without the candidates of some recipes."""
        return replace(self, candidates=[c for c in self.candidates if c.recipe not in recipes])

    def without_sets(self, kind: HiddenKind) -> Pool:
        """The pool without the hidden sets of one kind and their rows; what remains keeps its order."""
        sets = [hidden for hidden in self.sets if hidden.kind != kind]
        kept = self.rows.kind != kind
        candidates = [replace(c, log_odds_without_own_set=c.log_odds_without_own_set[kept]) for c in self.candidates]
        return replace(self, sets=sets, rows=HiddenRows.of(sets, self.scores), candidates=candidates)

    @property
    def log_odds_without_own_set(self) -> Floats:
        """Those of the rows under all candidates (R × C)."""
        return np.concatenate([c.log_odds_without_own_set for c in self.candidates], axis=1)

    def left_out_error(self, log_odds_without_own_set: Floats) -> float:
        """Squared error on family rows, the mean over families; the log-odds are those of all rows (R)."""
        rows, of_families = self.rows, self.rows.of_families
        errors = self._errors(log_odds_without_own_set)[of_families]
        return float(family_balanced(rows.family[of_families]) @ errors**2)

    def _errors(self, log_odds_without_own_set: Floats) -> Floats:
        """Forecast minus observed accuracy of each row (R)."""
        forecast = at_share(sigmoid(log_odds_without_own_set), self.scores.floor)
        return np.asarray(forecast - self.scores.observed[self.rows.model])

    def as_weighted_loss(self, average: Average) -> tuple[npt.NDArray[np.float32], SigmoidLaw]:
        """An average of the pool's candidates as weights of tokens (views × N) and a law."""
        floor = self.scores.floor
        return as_weighted_loss(average, self.candidates, self.losses.groups, views=VIEWS, floor=floor)

    def choice_weights(self, average: Average) -> ChoiceWeights | None:
        """Weights of choice losses in an average of the pool's candidates; None where none are read."""
        groups = self.losses.groups
        weights = np.stack([groups.choice_weights(mix) for mix in mixes(average.shares, self.candidates, views=VIEWS)])
        return ChoiceWeights(name=self.dataset.choices.name, weights=weights) if weights.size else None

    def task_fit(
        self,
        *,
        method: str,
        capability: Capability,
        law: SigmoidLaw,
        log_odds_without_own_set: Floats,
        shares: Floats,
        notes: dict[str, Any],
    ) -> TaskFit:
        """The fit, with the errors of the rows (`log_odds_without_own_set`: R), and what the candidates disagree about.

        `shares` (C) are those of the candidates for a model of usual strength.
        """
        dataset, scores, rows = self.dataset, self.scores, self.rows
        errors = self._errors(log_odds_without_own_set)
        family_masks = [hidden.models for hidden in self.sets if hidden.kind == "family"]
        stronger_masks = [hidden.models for hidden in self.sets if hidden.kind != "family"]
        family_errors, stronger_errors = errors[rows.of_families], errors[~rows.of_families]
        hidden_families = left_out(dataset.groups, scores.known)
        of_known = capability.of(dataset.nats, dataset.metadata)[scores.known]
        disagreement, of_rows = self.disagreement(shares)
        return TaskFit(
            task=scores.task,
            method=method,
            capability=capability,
            law=law,
            out_of_fold=replace(
                OutOfFoldErrors.of(dataset, family_masks, family_errors, kind=hidden_families), disagreement=of_rows
            ),
            stronger=OutOfFoldErrors.of(dataset, stronger_masks, stronger_errors, kind="stronger models"),
            range=(float(of_known.min()), float(of_known.max())),
            disagreement=disagreement,
            notes=notes,
        )

    def disagreement(self, shares: Floats) -> tuple[Disagreement, Floats]:
        """The variance of the candidates' log-odds for any model, and that of the family rows without their own set."""
        of_families, groups = self.rows.of_families, self.losses.groups
        log_odds = self.log_odds_without_own_set[of_families]
        directions = main_directions(log_odds, shares, family_balanced(self.rows.family[of_families]))
        parts = [mixes(row, self.candidates, views=VIEWS) for row in directions]
        found = Disagreement.of_directions(
            tokens=np.stack([[groups.token_weights(-mix) for mix in part] for part in parts]),
            choices=np.stack([[groups.choice_weights(-mix) for mix in part] for part in parts]),
            offset=np.array([sum(c.offset @ part for c, part in shared(row, self.candidates)) for row in directions]),
        )
        return found, ((log_odds @ directions.T) ** 2).sum(axis=1)
