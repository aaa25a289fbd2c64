"""The methods `stack`, the default, and `salience`: averages of weighted losses by their errors on hidden models.

Words
-----
known            training or validation model that has a score on the task
hidden set       known models that are hidden together while candidates are learned: a whole family, or models stronger
                 than all others, which are the validation models where there are any, else the strongest known models
row              a known model together with one hidden set that it is in: a family row or a stronger row
without own set  of a row's log-odds: learned without the models of the row's hidden set

Steps
-----
1. Groups (`token_groups`). Tokens are grouped by source, answer and hidden state. A model has one loss for each group.
   Where models have choice losses, those of a task's own texts are one more group. Only non-negative candidates read
   it: as a penalised group or in signed candidates it gained nothing (lab/LOG.md).
2. Hidden sets (`hidden_sets`). They take turns: all families, then sets of stronger models.
3. Candidates (`candidates`). Many combinations of the groups' losses are learned from all known models, and again
   without each hidden set.
4. Averages (`averaging`). Shares of the candidates minimise the weighted squared error of the averaged log-odds on the
   rows. `stack` makes two averages. The all-rows average is chosen on family rows and stronger rows. The family-rows
   average is chosen on family rows alone; only this one has strength-weighted candidates, because with them in both
   averages the forecasts of models stronger than all known ones got worse (gain on the OLMo ladder 2.70 → 2.37).
5. Calibration (`averaging`). A fraction of a fitted line, and where it saves error a monotone curve, correct the
   averaged log-odds. The fraction is 0 for the all-rows average, whose log-odds then only get the curve, and
   n / (n + `prior_models`) for the family-rows average, with n known models.
6. Blend (`fit_stack`). With h = `family_rows_share` and the fade f of a model,

       log-odds = (1 − h (1 − f)) · all-rows + h (1 − f) · family-rows

   f depends on the model's mean loss along a ramp (`StrengthRamp`). It is 0 for a model of usual strength: at or above
   the quantile `ramp_quantile` of the known models' mean losses, however weak the model is. It rises linearly to 1 at
   the lowest mean loss of a known model. A model that is stronger still gets the all-rows average alone. (The `range`
   of a fit is one of capabilities, and has no part in the blend.)

`salience` is the same with other settings: non-negative candidates only, validation models as the only stronger ones,
one all-rows average with a full line (fraction 1), and no blend. A lower loss never lowers its forecast.

The errors behind a fit's interval are differences of accuracy, one for each row: the forecast that its log-odds without
own set give, minus the observed accuracy. Elsewhere in the package they are called out-of-fold errors.

Axes: M models, N tokens, K groups, R rows, C candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import VIEWS, Dataset, LossView
from benchcast.methods.capability import BlendedLosses, BlendPart, Capability, ChoiceWeights, StrengthRamp, WeightedLoss
from benchcast.methods.disagreement import Disagreement, main_directions
from benchcast.methods.features import keep_on_device
from benchcast.methods.law import SigmoidLaw, at_share, sigmoid
from benchcast.methods.stack.averaging import (
    Average,
    as_weighted_loss,
    curve_note,
    fit_average,
    mixes,
    named_shares,
    share_notes,
    shared,
)
from benchcast.methods.stack.candidates import Candidates, GroupLosses, Recipe, nonnegative, signed, strength_weighted
from benchcast.methods.stack.hidden_sets import HiddenKind, HiddenRows, HiddenSet, TaskScores, hidden_sets
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.stack.token_groups import group_losses, group_tokens
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Floats
from benchcast.splits import FEWEST_MODELS, Fold, family_balanced, left_out


def stack(dataset: Dataset, folds: Sequence[Fold], *, settings: StackSettings | None = None) -> list[list[TaskFit]]:
    """Signed weights and laws, per fold and task."""
    settings = settings or StackSettings()
    pools = candidate_pools(dataset, folds, settings=settings, of_stack=True)
    return [[fit_stack(pool, settings) for pool in row] for row in pools]


def salience(dataset: Dataset, folds: Sequence[Fold], *, settings: StackSettings | None = None) -> list[list[TaskFit]]:
    """Non-negative weights and a law, per fold and task."""
    settings = settings or StackSettings()
    pools = candidate_pools(dataset, folds, settings=settings, of_stack=False)
    return [[fit_salience(pool, settings) for pool in row] for row in pools]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Groups, hidden sets and candidates of one task (steps 1 to 3)."""

    dataset: Dataset
    losses: GroupLosses
    scores: TaskScores
    sets: list[HiddenSet]
    rows: HiddenRows
    candidates: list[Candidates]

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

    def as_weighted_loss(self, average: Average) -> tuple[npt.NDArray[np.float32], SigmoidLaw]:
        """An average of the pool's candidates as weights of tokens (views × N) and a law."""
        chance = self.scores.task.chance
        return as_weighted_loss(average, self.candidates, self.losses.groups, views=VIEWS, chance=chance)

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
        forecast = np.asarray(at_share(sigmoid(log_odds_without_own_set), scores.task.chance))
        errors = forecast - scores.observed[rows.model]
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


def candidate_pools(
    dataset: Dataset, folds: Sequence[Fold], *, settings: StackSettings, of_stack: bool
) -> Iterator[list[Pool]]:
    """For each fold, the pool of every task.

    With `of_stack` it holds what `stack` needs, which includes all that `salience` needs; else what `salience` needs.
    """
    kept = keep_on_device(dataset)
    groups = group_tokens(kept, settings)
    by_view = group_losses(kept, groups)
    every = GroupLosses(
        groups=groups,
        sources=dataset.reference_tokens.sources,
        by_view=by_view,
        mean_loss=by_view[LossView.NATS][:, groups.grouping == "all"][:, 0],
        device=dataset.device,
    )

    with_choices = ~np.isin(np.array(dataset.models, dtype=object), dataset.choices.left_out)

    def pool(fold: Fold, t: int) -> Pool:
        losses, scores = every, TaskScores.of(dataset, fold, t, among=with_choices)
        accuracies = scores.observed[scores.known]
        own = every.anchor("choice", scores.task).any()
        if not own or len(accuracies) < FEWEST_MODELS or np.ptp(accuracies) == 0:
            losses, scores = every.without_choices(), TaskScores.of(dataset, fold, t)
        sets = hidden_sets(scores, losses.mean_loss, settings, hide_strongest=of_stack)
        recipes = [nonnegative]
        if of_stack:
            n = scores.known.sum()
            if settings.fewest_for_strength_weights <= n <= settings.most_for_strength_weights:
                recipes.append(strength_weighted)
            recipes.append(signed)
        return Pool(
            dataset=dataset,
            losses=losses,
            scores=scores,
            sets=sets,
            rows=HiddenRows.of(sets, scores),
            candidates=[learn(v, losses, scores, sets=sets, settings=settings) for learn in recipes for v in VIEWS],
        )

    return ([pool(fold, t) for t in range(len(dataset.tasks))] for fold in folds)


def fit_stack(pool: Pool, settings: StackSettings) -> TaskFit:
    """Steps 4 to 6 of `stack` for one task: two averages and their blend.

    Notes: `shares` are the candidates' shares in the blend for a model of usual strength, `shares_of_stronger` those of
    the all-rows average; `bend_saves` is the `curve_saving` of the all-rows average alone.
    """
    scores, rows, plain = pool.scores, pool.rows, pool.without_recipes("strength-weighted")
    n, h = int(scores.known.sum()), settings.family_rows_share
    z, line = plain.log_odds_without_own_set, settings.all_rows_line
    all_rows = fit_average(z, rows, settings, use_stronger_rows=True, line_fraction=line)
    z, line = pool.log_odds_without_own_set, n / (n + settings.prior_models)
    family_rows = fit_average(z, rows, settings, use_stronger_rows=False, line_fraction=line)
    all_rows_weights, all_rows_law = plain.as_weighted_loss(all_rows)
    family_rows_weights, family_rows_law = pool.as_weighted_loss(family_rows)
    blend = BlendedLosses.of_parts(
        (
            BlendPart(
                weights=all_rows_weights,
                choices=plain.choice_weights(all_rows),
                law=all_rows_law,
                share=1 - h,
                share_of_stronger=1.0,
            ),
            BlendPart(
                weights=family_rows_weights,
                choices=pool.choice_weights(family_rows),
                law=family_rows_law,
                share=h,
                share_of_stronger=0.0,
            ),
        ),
        StrengthRamp.of(pool.losses.mean_loss[scores.known], settings.ramp_quantile),
        views=VIEWS,
        unit=pool.dataset.characters,
    )
    faded_h = h * (1 - fade_without_own_set(pool, settings))  # share of the family-rows average for each row's model
    all_rows_shares = named_shares(all_rows, plain.candidates)
    family_rows_shares = named_shares(family_rows, pool.candidates)
    usual_shares = {name: (1 - h) * all_rows_shares.get(name, 0.0) + h * p for name, p in family_rows_shares.items()}
    return pool.task_fit(
        method="stack",
        capability=blend,
        law=SigmoidLaw(-1.0, 0.0, scores.task.chance),  # for the sign see `as_weighted_loss`
        log_odds_without_own_set=(1 - faded_h) * all_rows.log_odds_without_own_set
        + faded_h * family_rows.log_odds_without_own_set,
        shares=np.array(list(usual_shares.values())),
        notes={
            "shares": share_notes(usual_shares, settings),
            "shares_of_stronger": share_notes(all_rows_shares, settings),
            "bend_saves": curve_note(all_rows),
        },
    )


def fade_without_own_set(pool: Pool, settings: StackSettings) -> Floats:
    """Fade of each row's model, along the ramp of the known models outside the row's set (R)."""
    mean_loss, known = pool.losses.mean_loss, pool.scores.known
    ramps = [StrengthRamp.of(mean_loss[known & ~hidden.models], settings.ramp_quantile) for hidden in pool.sets]
    return np.concatenate([ramp.fade(mean_loss[hidden.models]) for ramp, hidden in zip(ramps, pool.sets, strict=True)])


def fit_salience(pool: Pool, settings: StackSettings) -> TaskFit:
    """Steps 4 and 5 of `salience` for one task.

    A comparison of methods learns one pool for `stack` and `salience`, so what only `stack` uses is removed here. From
    the pool of `salience` itself nothing is removed. `bend_saves` in the notes is the average's `curve_saving`.
    """
    own = pool.without_recipes("strength-weighted", "signed").without_sets("strongest")
    z, line = own.log_odds_without_own_set, settings.salience_line
    average = fit_average(z, own.rows, settings, use_stronger_rows=True, line_fraction=line)
    weights, law = own.as_weighted_loss(average)
    return own.task_fit(
        method="salience",
        capability=WeightedLoss(
            views=VIEWS, weights=weights, unit=own.dataset.characters, choices=own.choice_weights(average)
        ),
        law=law,
        log_odds_without_own_set=average.log_odds_without_own_set,
        shares=average.shares,
        notes={
            "shares": share_notes(named_shares(average, own.candidates), settings),
            "bend_saves": curve_note(average),
        },
    )
