"""Step 7: averages of a task's candidates, and their blend, with which `stack` forecasts.

Axes: M models, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.methods.capability import BlendPart, StrengthRamp
from benchcast.methods.stack.averaging import Average, fit_average, named_shares
from benchcast.methods.stack.candidates import Candidates
from benchcast.methods.stack.pool import Pool
from benchcast.methods.stack.settings import StackSettings
from benchcast.records import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendMember:
    """An average of some candidates, and its share in the blend."""

    pool: Pool  # with the candidates that are averaged
    average: Average
    share: float  # for a model of usual strength
    share_of_stronger: float  # for a model as strong as the strongest known one or stronger

    def as_part(self) -> BlendPart:
        """The member as a weighted loss."""
        weights, law = self.pool.as_weighted_loss(self.average)
        return BlendPart(
            weights=weights,
            choices=self.pool.choice_weights(self.average),
            law=law,
            share=self.share,
            share_of_stronger=self.share_of_stronger,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """Averages, the ramp along which their shares change, and the blended log-odds of the rows."""

    members: tuple[BlendMember, ...]
    ramp: StrengthRamp
    log_odds_without_own_set: Floats  # R

    def shares(self, candidates: Sequence[Candidates]) -> Floats:
        """The share of each candidate (C), in their order, for a model of usual strength."""
        named = self.named_shares(of_stronger=False)
        return np.array([named[name] for c in candidates for name in c.names])

    def named_shares(self, *, of_stronger: bool) -> dict[str, float]:
        """The share of each candidate in the blend, for a model of usual strength or for a stronger one."""
        total: dict[str, float] = {}
        for member in self.members:
            share = member.share_of_stronger if of_stronger else member.share
            for name, p in named_shares(member.average, member.pool.candidates).items():
                total[name] = total.get(name, 0.0) + share * p
        return total


def fit_blend(pool: Pool, settings: StackSettings) -> Blend:
    """Average the candidates on all rows, on family rows, and the anchors alone; and blend the three."""
    known, families = pool.scores.known, pool.scores.families
    n, h = int(known.sum()), settings.family_rows_share
    simple = 1 / (1 + (len(np.unique(families[known])) / settings.families_for_half) ** 2)
    plain, anchors = pool.without_recipes("strength-weighted"), pool.only("anchor")
    all_rows, of_anchors = (
        fit_average(
            p.log_odds_without_own_set, p.rows, settings, use_stronger_rows=True, line_fraction=settings.all_rows_line
        )
        for p in (plain, anchors)
    )
    z, line = pool.log_odds_without_own_set, n / (n + settings.prior_models)
    family_rows = fit_average(z, pool.rows, settings, use_stronger_rows=False, line_fraction=line)
    faded_h = h * (1 - _fade_without_own_set(pool, settings))
    learned = (1 - faded_h) * all_rows.log_odds_without_own_set + faded_h * family_rows.log_odds_without_own_set
    rest = 1 - simple
    return Blend(
        members=(
            BlendMember(pool=plain, average=all_rows, share=rest * (1 - h), share_of_stronger=rest),
            BlendMember(pool=pool, average=family_rows, share=rest * h, share_of_stronger=0.0),
            BlendMember(pool=anchors, average=of_anchors, share=simple, share_of_stronger=simple),
        ),
        ramp=StrengthRamp.of(pool.losses.mean_loss[known], settings.ramp_quantile),
        log_odds_without_own_set=rest * learned + simple * of_anchors.log_odds_without_own_set,
    )


def _fade_without_own_set(pool: Pool, settings: StackSettings) -> Floats:
    """Fade of each row's model, along the ramp of the known models outside the row's set (R)."""
    mean_loss, known = pool.losses.mean_loss, pool.scores.known
    ramps = [StrengthRamp.of(mean_loss[known & ~hidden.models], settings.ramp_quantile) for hidden in pool.sets]
    return np.concatenate([ramp.fade(mean_loss[hidden.models]) for ramp, hidden in zip(ramps, pool.sets, strict=True)])
