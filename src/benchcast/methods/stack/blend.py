"""Step 7: averages of a task's candidates, and their blend, with which `stack` forecasts.

Axes: M models, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchcast.losses.dataset import LossView
from benchcast.methods.capability import BlendPart, StrengthRamp
from benchcast.methods.law import log_odds_above
from benchcast.methods.stack.averaging import Average, Calibration, fit_average, named_shares
from benchcast.methods.stack.candidates import Candidates, anchors
from benchcast.methods.stack.pool import Pool
from benchcast.methods.stack.settings import StackSettings
from benchcast.records import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendMember:
    """An average of some candidates, or a candidate alone, and its share in the blend."""

    pool: Pool  # with the candidates that are averaged, and the floor of their law
    average: Average
    share: float  # for a model of usual strength
    share_of_stronger: float  # for a model as strong as the strongest known one or stronger

    def times(self, factor: float, of_stronger: float | None = None) -> BlendMember:
        """The member with multiplied shares; that of a stronger model by a factor of its own if there is one."""
        stronger = factor if of_stronger is None else of_stronger
        return replace(self, share=factor * self.share, share_of_stronger=stronger * self.share_of_stronger)

    def log_odds_without_own_set(self, fade: Floats, floor: float) -> Floats:
        """What the member adds to the blended log-odds above a floor (R); `fade` is that of the rows' models."""
        z = log_odds_above(floor, self.average.log_odds_without_own_set, own=self.pool.scores.floor)
        return (self.share + fade * (self.share_of_stronger - self.share)) * z

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
    """Blend the averages of candidates with single losses, which count by their errors on left-out families."""
    known, floor = pool.scores.known, pool.scores.floor
    fade, averages = _fade_without_own_set(pool, settings), _averages(pool, settings)

    def error(members: Sequence[BlendMember]) -> float:
        return pool.left_out_error(_blended(members, fade, floor)) + settings.least_error

    error_of_averages = error(averages)
    singles = [
        member.times((error([replace(member, share_of_stronger=1.0)]) / error_of_averages) ** power)
        for member, power in _single_losses(pool, settings)
    ]
    total = 1 + sum(member.share for member in singles)
    total_of_stronger = 1 + sum(member.share_of_stronger for member in singles)
    members = tuple(member.times(1 / total, 1 / total_of_stronger) for member in (*averages, *singles))
    return Blend(
        members=members,
        ramp=StrengthRamp.of(pool.losses.mean_loss[known], settings.ramp_quantile),
        log_odds_without_own_set=_blended(members, fade, floor),
    )


def _averages(pool: Pool, settings: StackSettings) -> list[BlendMember]:
    """Averages of the candidates on all rows, on family rows, and of the anchors alone; their shares sum to 1."""
    n, h, simple = int(pool.scores.known.sum()), settings.family_rows_share, _share_of_anchors(pool, settings)
    plain, of_anchors = pool.without_recipes("strength-weighted"), pool.only("anchor")

    def average(of: Pool, *, stronger: bool, line: float) -> Average:
        z = of.log_odds_without_own_set
        return fit_average(z, of.rows, settings, use_stronger_rows=stronger, line_fraction=line)

    all_rows = average(plain, stronger=True, line=settings.all_rows_line)
    family_rows = average(pool, stronger=False, line=n / (n + settings.prior_models))
    anchors_alone = average(of_anchors, stronger=True, line=settings.all_rows_line)
    rest = 1 - simple
    return [
        BlendMember(pool=plain, average=all_rows, share=rest * (1 - h), share_of_stronger=rest),
        BlendMember(pool=pool, average=family_rows, share=rest * h, share_of_stronger=0.0),
        BlendMember(pool=of_anchors, average=anchors_alone, share=simple, share_of_stronger=simple),
    ]


def _share_of_anchors(pool: Pool, settings: StackSettings) -> float:
    families = np.unique(pool.scores.families[pool.scores.known])
    return 1 / (1 + (len(families) / settings.families_for_half) ** 2)


def _single_losses(pool: Pool, settings: StackSettings) -> list[tuple[BlendMember, float]]:
    """The loss of the task's answers alone and its choice loss alone, where the study has them, and the power of each.

    The answers alone do not count for stronger models, and their errors on few families count less. A score follows the
    choice loss from a floor of 0: where all options are alike, the right one is chosen by chance, and where the wrong
    one is preferred, less often.
    """
    found = []
    answers = pool.single(f"{LossView.NATS}: answer")
    if answers is not None:
        power = (1 - _share_of_anchors(pool, settings)) * settings.answers_power
        found.append((_alone(answers, share_of_stronger=0.0), power))
    if pool.losses.anchor("choice", pool.scores.task).any():
        from_zero = pool.with_candidates(replace(pool.scores, floor=0.0), [anchors], settings)
        choices = from_zero.single(f"{LossView.NATS}: choice")
        assert choices is not None  # an anchor, as the condition says
        found.append((_alone(choices, share_of_stronger=1.0), settings.choices_power))
    return found


def _alone(pool: Pool, *, share_of_stronger: float) -> BlendMember:
    """The only candidate of a pool as a member of the share 1."""
    average = Average(
        shares=np.ones(1),
        calibration=Calibration(1.0, 0.0),
        curve_saving=np.nan,
        log_odds_without_own_set=pool.log_odds_without_own_set[:, 0],
    )
    return BlendMember(pool=pool, average=average, share=1.0, share_of_stronger=share_of_stronger)


def _blended(members: Sequence[BlendMember], fade: Floats, floor: float) -> Floats:
    """Blended log-odds of the rows above a floor, without their own set (R); `fade` is that of the rows' models."""
    return np.sum([member.log_odds_without_own_set(fade, floor) for member in members], axis=0)


def _fade_without_own_set(pool: Pool, settings: StackSettings) -> Floats:
    """Fade of each row's model, along the ramp of the known models outside the row's set (R)."""
    mean_loss, known = pool.losses.mean_loss, pool.scores.known
    ramps = [StrengthRamp.of(mean_loss[known & ~hidden.models], settings.ramp_quantile) for hidden in pool.sets]
    return np.concatenate([ramp.fade(mean_loss[hidden.models]) for ramp, hidden in zip(ramps, pool.sets, strict=True)])
