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
3. Floor (`floor`). Log-odds are those of a score's share of the range from a floor to 1. The floor is nominal chance,
   or a lower one if forecasts of left-out families clearly favour it.
4. Candidates (`candidates`). Many combinations of the groups' losses are learned from all known models, and again
   without each hidden set.
5. Averages (`averaging`). Shares of the candidates minimise the weighted squared error of the averaged log-odds on the
   rows. `stack` makes three averages. The all-rows average is chosen on family rows and stronger rows. The family-rows
   average is chosen on family rows alone; only this one has strength-weighted candidates, because with them in both
   averages the forecasts of models stronger than all known ones got worse (gain on the OLMo ladder 2.70 → 2.37). The
   average of anchors is chosen on all rows from candidates that read a single mean loss.
6. Calibration (`averaging`). A fraction of a fitted line, and where it saves error a monotone curve, correct the
   averaged log-odds. The fraction is 0 for the averages on all rows, whose log-odds then only get the curve, and
   n / (n + `prior_models`) for the family-rows average, with n known models.
7. Blend (`blend`). With h = `family_rows_share`, the fade f of a model, and e = 1 / (1 + (F / `families_for_half`)²)
   for F known families,

       averages = (1 − e) · [(1 − h (1 − f)) · all-rows + h (1 − f) · family-rows] + e · anchors
       log-odds = (averages + (1 − f) · A · answers + C · choices) / (1 + (1 − f) · A + C)

   `answers` is the candidate that reads the loss of the task's answers alone, `choices` the one that reads its choice
   loss alone; A and C are 0 where the study has none. A is (squared error of `answers` on family rows ÷ that of the
   averages) ** ((1 − e) · `answers_power`), C is the same ratio for `choices` ** `choices_power`. The reason for both:
   shares of many candidates that are chosen on some families may not hold for another, which these errors show. The
   law of `choices` has the floor 0: a score falls below chance where models prefer a wrong option, and its log-odds are
   linear in the choice loss, while those of the share above chance bend. Its log-odds are converted to those above the
   floor of the task.
   (For f between 0 and 1 the shares are interpolated between those of f = 0 and of f = 1.)
   f depends on the model's mean loss along a ramp (`StrengthRamp`). It is 0 for a model of usual strength: at or above
   the quantile `ramp_quantile` of the known models' mean losses, however weak the model is. It rises linearly to 1 at
   the lowest mean loss of a known model. (The `range` of a fit is one of capabilities, and has no part in the blend.)
   e is the weight of the anchors, for the same reason where families are few.

`salience` is the same with other settings: anchors and non-negative candidates only, validation models as the only
stronger ones, one all-rows average with a full line (fraction 1), and no blend. A lower loss never lowers its forecast.

The errors behind a fit's interval are differences of accuracy, one for each row: the forecast that its log-odds without
own set give, minus the observed accuracy. Elsewhere in the package they are called out-of-fold errors.

Axes: M models, N tokens, K groups, R rows, C candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from benchcast.losses.dataset import VIEWS, Dataset, LossView
from benchcast.methods.capability import BlendedLosses, WeightedLoss
from benchcast.methods.features import keep_on_device
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.stack.averaging import curve_note, fit_average, named_shares, share_notes
from benchcast.methods.stack.blend import fit_blend
from benchcast.methods.stack.candidates import GroupLosses, anchors, nonnegative, signed, strength_weighted
from benchcast.methods.stack.floor import with_learned_floor
from benchcast.methods.stack.hidden_sets import HiddenRows, TaskScores, hidden_sets
from benchcast.methods.stack.pool import Pool
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.stack.token_groups import group_losses, group_tokens
from benchcast.methods.task_fit import TaskFit
from benchcast.splits import FEWEST_MODELS, Fold
from benchcast.steps import steps


def stack(dataset: Dataset, folds: Sequence[Fold], *, settings: StackSettings | None = None) -> list[list[TaskFit]]:
    """Signed weights and laws, per fold and task."""
    settings = settings or StackSettings()
    pools = candidate_pools(dataset, folds, settings)
    return [[fit_stack(pool, settings) for pool in row] for row in pools]


def salience(dataset: Dataset, folds: Sequence[Fold], *, settings: StackSettings | None = None) -> list[list[TaskFit]]:
    """Non-negative weights and a law, per fold and task."""
    settings = settings or StackSettings()
    pools = candidate_pools(dataset, folds, settings)
    return [[fit_salience(pool, settings) for pool in row] for row in pools]


def candidate_pools(dataset: Dataset, folds: Sequence[Fold], settings: StackSettings) -> Iterator[Iterator[Pool]]:
    """For each fold, the pool of every task in turn, with what `stack` needs; `salience` needs less."""
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
        sets = hidden_sets(scores, losses.mean_loss, settings)
        rows = HiddenRows.of(sets, scores)
        task = Pool(dataset=dataset, losses=losses, scores=scores, sets=sets, rows=rows, candidates=[])
        recipes = [anchors, nonnegative, signed]
        if settings.fewest_for_strength_weights <= scores.known.sum() <= settings.most_for_strength_weights:
            recipes.append(strength_weighted)
        return with_learned_floor(task, recipes, settings)

    return (map(pool, repeat(fold), steps(range(len(dataset.tasks)), "tasks")) for fold in steps(folds, "folds"))


def fit_stack(pool: Pool, settings: StackSettings) -> TaskFit:
    """Steps 5 to 7 of `stack` for one task: three averages and their blend.

    Notes: `shares` are the candidates' shares in the blend for a model of usual strength, `shares_of_stronger` those
    for a stronger model; `bend_saves` is the `curve_saving` of the all-rows average alone.
    """
    blend = fit_blend(pool, settings)
    parts = tuple(member.as_part() for member in blend.members)
    return pool.task_fit(
        method="stack",
        capability=BlendedLosses.of_parts(parts, blend.ramp, views=VIEWS, unit=pool.dataset.characters),
        law=SigmoidLaw(-1.0, 0.0, pool.scores.floor),  # for the sign see `as_weighted_loss`
        log_odds_without_own_set=blend.log_odds_without_own_set,
        shares=blend.shares(pool.candidates),
        notes={
            "shares": share_notes(blend.named_shares(of_stronger=False), settings),
            "shares_of_stronger": share_notes(blend.named_shares(of_stronger=True), settings),
            "bend_saves": curve_note(blend.members[0].average),
        },
    )


def fit_salience(pool: Pool, settings: StackSettings) -> TaskFit:
    """Steps 5 and 6 of `salience` for one task.

    Both methods learn the same pools, so what only `stack` uses is removed here. `bend_saves` in the notes is the
    average's `curve_saving`.
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
