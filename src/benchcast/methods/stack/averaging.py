"""Average the log-odds of candidates by their errors on hidden models, and calibrate the average on the same models.

Everything works on the log-odds scale, where an average of weighted losses is again a weighted loss. In symbols, for
rows r of hidden models with scores q_r, log-odds z_r of all candidates, and weights w_r:

shares       min_p Σ_r w_r (σ(z_r·p) − q_r)²   over p ≥ 0, Σ p = 1: stacked generalization (Wolpert 1992) with a convex
             combination, as in the super learner (van der Laan, Polley and Hubbard 2007), by exponentiated gradient
             steps (Kivinen and Warmuth 1997)
calibration  curve(slope · z_r·p + offset): slope and offset by least squares in accuracy, applied in part (averages of
             penalised fits are slightly too flat), and then a monotone curve

What enters the interval are errors of log-odds without the row's own set: shares, slope, offset and curve are learned
again from the rows of all models that are not in this set. Not learned again are

- whether the curve is kept, which is decided once from all rows;
- anything, where fewer than `fewest_sets_to_refit` sets are hidden, or where no row with weight would be left.

Axes: R rows of hidden models, C candidates, S sets of weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchcast.messages import nan_to_none
from benchcast.methods.law import MonotoneCalibration, SigmoidLaw, fit_laws, fit_monotone_calibrations, sigmoid
from benchcast.methods.stack.candidates import Candidates
from benchcast.methods.stack.hidden_sets import HiddenRows
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.stack.token_groups import TokenGroups
from benchcast.records import Bools, Floats
from benchcast.splits import family_balanced


@dataclass(frozen=True, slots=True)
class Calibration:
    """A line, and a monotone curve or none, that calibrate averaged log-odds on hidden models."""

    slope: float
    offset: float
    curve: MonotoneCalibration | None = None

    def straight(self, log_odds: Floats) -> Floats:
        """Log-odds calibrated by the line alone."""
        return self.slope * log_odds + self.offset

    def curved(self, log_odds: Floats) -> Floats:
        """Log-odds calibrated by the line and the curve."""
        return self.curve(self.straight(log_odds)) if self.curve else self.straight(log_odds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """A calibrated average of candidates."""

    shares: Floats  # C
    calibration: Calibration  # with a curve only if it saves enough error
    curve_gain: float  # share of the error that a curve saves, kept or not (see `curve_gain`)
    log_odds_without_own_set: Floats  # R: of the rows; see the module


def fit_average(
    held_out: Floats, rows: HiddenRows, *, use_stronger_rows: bool, line: float, settings: StackSettings
) -> Average:
    """Average and calibrate on all rows, and once more without the models of each hidden set.

    Parameters
    ----------
    held_out : log-odds of the rows under candidates that did not see the row's set (R × C)
    rows : the hidden models
    use_stronger_rows : whether rows of stronger models have weight, or those of left-out families alone
    line : share of the fitted slope and offset that is applied, 0 to 1
    """
    sets = np.unique(rows.hidden_set)
    of_all = row_weights(rows, use_stronger_rows=use_stronger_rows)
    without_set = [of_all for _ in sets]
    if len(sets) >= settings.fewest_sets_to_refit:
        others = [~rows.of_models_in(k) for k in sets]
        refits = [row_weights(rows, use_stronger_rows=use_stronger_rows, shown=shown) for shown in others]
        without_set = [w if w.any() else of_all for w in refits]
    weights = np.stack([of_all, *without_set])
    shares = choose_shares(held_out, rows.q, weights=weights, settings=settings)
    mixed = shares @ held_out.T
    calibration, *refitted = calibrate(mixed, rows.q, weights=weights, line=line)
    gain = curve_gain(mixed[0], rows, weights=of_all, line=line, settings=settings)
    families = len(np.unique(rows.family[rows.of_families]))
    keep_curve = families >= settings.fewest_families_for_curve and gain > settings.least_curve_gain / families
    log_odds = np.full(len(rows.q), np.nan)
    for k, without, mixed_without in zip(sets, refitted, mixed[1:], strict=True):
        own = rows.hidden_set == k
        log_odds[own] = without.curved(mixed_without[own]) if keep_curve else without.straight(mixed_without[own])
    return Average(
        shares=shares[0],
        calibration=calibration if keep_curve else replace(calibration, curve=None),
        curve_gain=gain,
        log_odds_without_own_set=log_odds,
    )


def row_weights(rows: HiddenRows, *, use_stronger_rows: bool, shown: Bools | None = None) -> Floats:
    """Weight of each row (R); the sum is 1.

    Left-out families and stronger models have half of the weight each; within each half, all sets of stronger models
    and all families have equal weight. Rows that are not in `shown` (R; None: all are) have no weight.
    """
    seen = np.ones(len(rows.q), bool) if shown is None else shown
    stronger_sets = np.unique(rows.hidden_set[~rows.of_families & use_stronger_rows])
    halves = [[seen & rows.of_families], [seen & (rows.hidden_set == k) for k in stronger_sets]]
    filled = [[part for part in half if part.any()] for half in halves]
    filled = [half for half in filled if half]
    out = np.zeros(len(rows.q))
    for half in filled:
        for part in half:
            out[part] = family_balanced(rows.family[part]) / len(half) / len(filled)
    return out


def choose_shares(held_out: Floats, q: Floats, *, weights: Floats, settings: StackSettings) -> Floats:
    """Shares of the candidates that minimise the error of the averaged log-odds (S × C), for each set of row weights.

    Exponentiated gradient steps start from shares that favour candidates with small errors. Stopping early keeps the
    shares of candidates with similar errors similar. `weights` is S × R.
    """
    error = np.maximum(weights @ (sigmoid(held_out) - q[:, None]) ** 2, settings.least_error)
    share = (error / error.min(axis=1, keepdims=True)) ** settings.first_shares_power
    share /= share.sum(axis=1, keepdims=True)
    for _ in range(settings.share_steps):
        s = sigmoid(share @ held_out.T)
        slope = (weights * (s - q) * s * (1 - s)) @ held_out
        step = slope - (slope * share).sum(axis=1, keepdims=True)
        share = share * np.exp(-settings.share_rate * step / (np.abs(step).max(axis=1, keepdims=True) + 1e-300))
        share /= share.sum(axis=1, keepdims=True)
    return share


def calibrate(mixed: Floats, q: Floats, *, weights: Floats, line: float) -> list[Calibration]:
    """Line and monotone curve for each set of row weights, from the rows with weight; `mixed` and `weights` are S × R.

    The curve is needed because scores may plateau above chance and below 1. Without a usable line there is no curve.
    """
    slope, offset, usable = np.ones(len(mixed)), np.zeros(len(mixed)), np.ones(len(mixed), bool)
    if line:
        laws = fit_laws(mixed, np.broadcast_to(q, mixed.shape), np.zeros(len(mixed)), weight=weights)
        usable = laws.converged & (laws.slope > 0) & np.isfinite(laws.slope)
        slope = np.where(usable, 1 + line * (laws.slope - 1), 1.0)
        offset = np.where(usable, line * laws.offset, 0.0)
    curves = fit_monotone_calibrations(slope[:, None] * mixed + offset[:, None], q, weights)
    kept = [curve if on else None for curve, on in zip(curves, usable, strict=True)]
    return [Calibration(*parts) for parts in zip(slope.tolist(), offset.tolist(), kept, strict=True)]


def curve_gain(mixed: Floats, rows: HiddenRows, *, weights: Floats, line: float, settings: StackSettings) -> float:
    """Share of the squared error of all rows with weight that a curve saves on sets that it was not learned from.

    The rows are those of left-out families and, if they have weight, of stronger models. NaN without an error, or with
    a single set. Shares are those of all sets (`mixed`), because shares without a set would change the error by more
    than a curve does. Only the rows of the set itself are left out, so that its models still count in other sets: a
    curve learned without any stronger model would not cover their range.
    """
    sets = np.unique(rows.hidden_set[weights > 0])
    without_set = np.stack([np.where(rows.hidden_set == k, 0.0, weights) for k in sets])
    if not without_set.any(axis=1).all():
        return np.nan
    without_set /= without_set.sum(axis=1, keepdims=True)
    straight, curved = (np.zeros(len(mixed)) for _ in range(2))
    calibrations = calibrate(np.broadcast_to(mixed, without_set.shape), rows.q, weights=without_set, line=line)
    for k, without in zip(sets, calibrations, strict=True):
        own = rows.hidden_set == k
        straight[own], curved[own] = without.straight(mixed[own]), without.curved(mixed[own])
    plain, with_curve = (float(weights @ (sigmoid(x) - rows.q) ** 2) for x in (straight, curved))
    return 1 - with_curve / plain if plain > settings.least_error else np.nan


def as_weighted_loss(
    average: Average, candidates: Sequence[Candidates], groups: TokenGroups, *, views: Sequence[str], chance: float
) -> tuple[npt.NDArray[np.float32], SigmoidLaw]:
    """Weights of tokens (views × N) whose weighted loss is Σ_c p_c x·mix_c, and its law.

    Averaged log-odds are Σ_c p_c offset_c minus this loss, so the slope of the law is minus that of the calibration:
    with a positive weight, a lower loss gives a higher forecast.
    """
    parts = np.split(average.shares, np.cumsum([len(c.names) for c in candidates])[:-1])
    shared = list(zip(candidates, parts, strict=True))
    nothing = np.zeros(len(groups.kinds))
    mixes = [sum((c.mix @ part for c, part in shared if c.view == view), nothing) for view in views]
    calibration = average.calibration
    offset = calibration.offset + calibration.slope * sum(float(c.offset @ part) for c, part in shared)
    law = SigmoidLaw(-calibration.slope, offset, chance, calibration=calibration.curve)
    return np.stack([groups.token_weights(mix) for mix in mixes]), law


def named_shares(average: Average, candidates: Sequence[Candidates]) -> dict[str, float]:
    """The share of each candidate by its name."""
    names = [name for c in candidates for name in c.names]
    return dict(zip(names, average.shares.tolist(), strict=True))


def share_notes(shares: Mapping[str, float], settings: StackSettings) -> dict[str, float]:
    """The larger shares by candidate, for the notes of a fit."""
    return {name: round(share, 4) for name, share in shares.items() if share > settings.smallest_noted_share}


def gain_note(average: Average) -> float | None:
    """Share of the error that a curve saves, for the notes of a fit; None if it cannot be said."""
    return nan_to_none(round(average.curve_gain, 4))
