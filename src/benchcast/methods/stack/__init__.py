"""The methods `stack`, the default, and `salience`: averages of weighted losses by their errors on hidden models.

1. Groups (`token_groups`). Tokens are grouped by source, answer and hidden state. x are a model's losses on the groups.
2. Hidden models (`hidden_sets`). Training families are hidden in turn, and so are models stronger than all others: the
   validation models where there are any, else the strongest known models.
3. Candidates (`candidates`). Many combinations of groups are learned from all known models, and again without each
   hidden set: log-odds = offset − x · mix.
4. Averages (`averaging`). Shares p of the candidates minimise the weighted squared error of Σ_c p_c log-odds_c on the
   hidden models.
5. Calibration (`averaging`). A line and, where it saves error, a monotone curve correct the averaged log-odds.
6. Blend. `stack` makes two averages. The first is chosen on left-out families and stronger models, with half of the
   weight on each. The second is chosen on left-out families alone; only this one has candidates with more weight on
   stronger models, because they did not help beyond the range (lab/LOG.md). With h = `families_share` and the fade f
   of a model, which is 0 inside the range of the known models and 1 for a model stronger than all of them,

       log-odds = (1 − h (1 − f)) · first + h (1 − f) · second

   so a model beyond the range gets the first average alone.

`salience` is the same with other settings: non-negative candidates only, the validation models as the only stronger
ones, one average of all rows with a full line, and no blend. A lower loss never lowers its forecast.

The errors behind a fit's interval are those of the log-odds of each hidden model without its own set (`averaging`).

Axes: M models, N tokens, K groups, R rows of hidden models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.losses.dataset import VIEWS, Dataset, LossView
from benchcast.methods.capability import BlendedLosses, BlendPart, Capability, StrengthRamp, WeightedLoss
from benchcast.methods.features import keep_on_device
from benchcast.methods.law import SigmoidLaw, at_share, sigmoid
from benchcast.methods.stack.averaging import (
    Average,
    as_weighted_loss,
    fit_average,
    gain_note,
    named_shares,
    share_notes,
)
from benchcast.methods.stack.candidates import (
    CandidateKind,
    Candidates,
    GroupLosses,
    nonnegative,
    signed,
    strength_weighted,
)
from benchcast.methods.stack.hidden_sets import HiddenKind, HiddenRows, HiddenSet, TaskScores, hidden_sets
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.stack.token_groups import group_losses, group_tokens
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Floats
from benchcast.splits import Fold, left_out


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
    """Groups, hidden models and candidates of one task (steps 1 to 3)."""

    dataset: Dataset
    losses: GroupLosses
    scores: TaskScores
    sets: list[HiddenSet]
    rows: HiddenRows
    candidates: list[Candidates]

    def without(self, *kinds: CandidateKind) -> Pool:
        """The pool without some kinds of candidates."""
        return replace(self, candidates=[c for c in self.candidates if c.kind not in kinds])

    def without_sets(self, kind: HiddenKind) -> Pool:
        """The pool without the hidden sets of one kind, which are the last ones, and their rows."""
        sets = [hidden for hidden in self.sets if hidden.kind != kind]
        kept = self.rows.kind != kind
        return replace(
            self,
            sets=sets,
            rows=HiddenRows.of(sets, self.scores),
            candidates=[replace(c, held_out=c.held_out[kept]) for c in self.candidates],
        )

    @property
    def held_out(self) -> Floats:
        """Log-odds of the rows under all candidates (R × C)."""
        return np.concatenate([c.held_out for c in self.candidates], axis=1)

    def as_weighted_loss(self, average: Average) -> tuple[npt.NDArray[np.float32], SigmoidLaw]:
        """An average of the pool's candidates as weights of tokens (views × N) and a law."""
        chance = self.scores.task.chance
        return as_weighted_loss(average, self.candidates, self.losses.groups, views=VIEWS, chance=chance)

    def task_fit(
        self,
        *,
        method: str,
        capability: Capability,
        law: SigmoidLaw,
        log_odds_without_own_set: Floats,
        notes: dict[str, Any],
    ) -> TaskFit:
        """The fit, with the errors of the rows' log-odds without their own set (R)."""
        dataset, scores, rows = self.dataset, self.scores, self.rows
        forecast = np.asarray(at_share(sigmoid(log_odds_without_own_set), scores.task.chance))
        errors = forecast - scores.observed[rows.model]
        families = [hidden.models for hidden in self.sets if hidden.kind == "family"]
        stronger = [hidden.models for hidden in self.sets if hidden.kind != "family"]
        of_known = capability.of(dataset.nats, dataset.metadata)[scores.known]
        kind = left_out(dataset.groups, scores.known)
        return TaskFit(
            task=scores.task,
            method=method,
            capability=capability,
            law=law,
            out_of_fold=OutOfFoldErrors.of(dataset, families, errors[rows.of_families], kind=kind),
            stronger=OutOfFoldErrors.of(dataset, stronger, errors[~rows.of_families], kind="stronger models"),
            range=(float(of_known.min()), float(of_known.max())),
            notes=notes,
        )


def candidate_pools(
    dataset: Dataset, folds: Sequence[Fold], *, settings: StackSettings, of_stack: bool
) -> Iterator[list[Pool]]:
    """For each fold, the pool of every task: what `salience` needs, or with `of_stack` what both methods need."""
    kept = keep_on_device(dataset)
    groups = group_tokens(kept, settings)
    by_view = group_losses(kept, groups)
    losses = GroupLosses(
        groups=groups,
        sources=dataset.reference_tokens.sources,
        by_view=by_view,
        mean_loss=by_view[LossView.NATS][:, groups.kinds == "all"][:, 0],
        device=dataset.device,
    )

    def pool(fold: Fold, t: int) -> Pool:
        scores = TaskScores.of(dataset, fold, t)
        sets = hidden_sets(scores, settings, mean_loss=losses.mean_loss if of_stack else None)
        kinds = [nonnegative]
        if of_stack:
            n = scores.known.sum()
            if settings.fewest_for_strength_weights <= n <= settings.most_for_strength_weights:
                kinds.append(strength_weighted)
            kinds.append(signed)
        return Pool(
            dataset=dataset,
            losses=losses,
            scores=scores,
            sets=sets,
            rows=HiddenRows.of(sets, scores),
            candidates=[learn(view, losses, scores, sets=sets, settings=settings) for learn in kinds for view in VIEWS],
        )

    return ([pool(fold, t) for t in range(len(dataset.tasks))] for fold in folds)


def fit_stack(pool: Pool, settings: StackSettings) -> TaskFit:
    """Steps 4 to 6 of `stack` for one task: two averages and their blend."""
    scores, rows, plain = pool.scores, pool.rows, pool.without("strength-weighted")
    n, h = int(scores.known.sum()), settings.families_share
    # Slope and offset that correct left-out families are wrong for stronger models, so the first average has no line.
    both = fit_average(plain.held_out, rows, use_stronger_rows=True, line=0.0, settings=settings)
    line = n / (n + settings.prior_models)
    families = fit_average(pool.held_out, rows, use_stronger_rows=False, line=line, settings=settings)
    weights_on_both, law_on_both = plain.as_weighted_loss(both)
    weights_on_families, law_on_families = pool.as_weighted_loss(families)
    mean_loss = pool.losses.mean_loss
    blend = BlendedLosses.of_parts(
        (
            BlendPart(weights=weights_on_both, law=law_on_both, share=1 - h, share_of_stronger=1.0),
            BlendPart(weights=weights_on_families, law=law_on_families, share=h, share_of_stronger=0.0),
        ),
        StrengthRamp.of(mean_loss[scores.known], settings.ramp),
        views=VIEWS,
        unit=pool.dataset.characters,
    )
    families_share = h * (1 - fade_without_own_set(pool, settings))
    shares_on_both = named_shares(both, plain.candidates)
    shares_on_families = named_shares(families, pool.candidates)
    shares = {name: (1 - h) * shares_on_both.get(name, 0.0) + h * share for name, share in shares_on_families.items()}
    return pool.task_fit(
        method="stack",
        capability=blend,
        law=SigmoidLaw(-1.0, 0.0, scores.task.chance),  # the capability of a blend is minus its log-odds
        log_odds_without_own_set=(1 - families_share) * both.log_odds_without_own_set
        + families_share * families.log_odds_without_own_set,
        notes={
            "shares": share_notes(shares, settings),
            "shares_of_stronger": share_notes(shares_on_both, settings),
            "bend_saves": gain_note(both),
        },
    )


def fade_without_own_set(pool: Pool, settings: StackSettings) -> Floats:
    """Fade of each row's model, by its strength relative to the known models outside the row's set (R)."""
    mean_loss, known = pool.losses.mean_loss, pool.scores.known
    ramps = [StrengthRamp.of(mean_loss[known & ~hidden.models], settings.ramp) for hidden in pool.sets]
    return np.concatenate([ramp.fade(mean_loss[hidden.models]) for ramp, hidden in zip(ramps, pool.sets, strict=True)])


def fit_salience(pool: Pool, settings: StackSettings) -> TaskFit:
    """Steps 4 and 5 of `salience` for one task; its own candidates and hidden sets of a pool that has more."""
    pool = pool.without("strength-weighted", "signed").without_sets("strongest")
    average = fit_average(pool.held_out, pool.rows, use_stronger_rows=True, line=1.0, settings=settings)
    weights, law = pool.as_weighted_loss(average)
    return pool.task_fit(
        method="salience",
        capability=WeightedLoss(views=VIEWS, weights=weights, unit=pool.dataset.characters),
        law=law,
        log_odds_without_own_set=average.log_odds_without_own_set,
        notes={
            "shares": share_notes(named_shares(average, pool.candidates), settings),
            "bend_saves": gain_note(average),
        },
    )
