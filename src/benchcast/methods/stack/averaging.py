"""Steps 4 and 5: average the log-odds of candidates by their errors on the rows, and calibrate on the same rows.

Everything works on the log-odds scale, where an average of weighted losses is again a weighted loss. In symbols, for
rows r with scores q_r, weights w_r, and log-odds z_r of all candidates, each learned without the row's own set:

shares       min_p Σ_r w_r (σ(z_r·p) − q_r)²   over p ≥ 0, Σ p = 1: stacked generalization (Wolpert 1992) with a convex
             combination, as in the super learner (van der Laan, Polley and Hubbard 2007), by exponentiated gradient
             steps (Kivinen and Warmuth 1997)
calibration  curve(slope · z_r·p + offset): slope and offset by least squares in accuracy, of which a fraction is
             applied (averages of penalised fits are slightly too flat), and then a monotone curve

The averaged log-odds of a row, too, are without its own set: shares, slope, offset and curve are learned again from the
rows of all models that are not in this set. Not learned again are

- whether the curve is kept, which is decided once from all rows with weight;
- anything, where fewer than `fewest_sets_to_refit` sets are hidden, or where no row with weight would be left.

How `stack` blends two such averages (step 6) stands in `fit_stack`, in the package's `__init__`.

Axes: R rows, C candidates, S sets of weights: those of all rows, or without one hidden set.
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
    """A line, and a monotone curve or none, that calibrate averaged log-odds."""

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
    curve_saving: float  # fraction of the error that a curve saves, kept or not (see `measure_curve_saving`)
    log_odds_without_own_set: Floats  # R


def fit_average(
    z: Floats, rows: HiddenRows, settings: StackSettings, *, use_stronger_rows: bool, line_fraction: float
) -> Average:
    """Average and calibrate on all rows, and once more without the models of each hidden set.

    Parameters
    ----------
    z : log-odds of the rows under the candidates (R × C)
    rows : the rows
    settings : the numbers of the method
    use_stronger_rows : whether stronger rows have weight, or family rows alone
    line_fraction : of the fitted slope and offset, applied: 0 (no line, and none is fitted) to 1
    """
    weights = weights_of_sets(rows, settings, use_stronger_rows=use_stronger_rows)
    shares = choose_shares(z, rows.q, weights=weights, settings=settings)
    averaged = shares @ z.T
    calibration, *refitted = calibrate(averaged, rows.q, weights=weights, line_fraction=line_fraction)
    saving = measure_curve_saving(averaged[0], rows, weights=weights[0], line_fraction=line_fraction, settings=settings)
    family_count = len(np.unique(rows.family[rows.of_families]))
    enough = family_count >= settings.fewest_families_for_curve
    keep_curve = enough and saving > settings.least_curve_saving / family_count
    calibrated = [c.curved(x) if keep_curve else c.straight(x) for c, x in zip(refitted, averaged[1:], strict=True)]
    return Average(
        shares=shares[0],
        calibration=calibration if keep_curve else replace(calibration, curve=None),
        curve_saving=saving,
        log_odds_without_own_set=of_own_set(np.stack(calibrated), rows),
    )


def average_without_own_set(z: Floats, rows: HiddenRows, settings: StackSettings) -> Floats:
    """Averaged log-odds of the rows without calibration (R), with shares that are chosen on all rows."""
    weights = weights_of_sets(rows, settings, use_stronger_rows=True)[1:]
    return of_own_set(choose_shares(z, rows.q, weights=weights, settings=settings) @ z.T, rows)


def of_own_set(log_odds: Floats, rows: HiddenRows) -> Floats:
    """For each row (R) the log-odds that were learned without its set; `log_odds` are S × R."""
    position = np.searchsorted(np.unique(rows.hidden_set), rows.hidden_set)
    return np.asarray(log_odds[position, np.arange(len(position))])


def weights_of_sets(rows: HiddenRows, settings: StackSettings, *, use_stronger_rows: bool) -> Floats:
    """Weights of the rows, and those without the models of each hidden set ((1 + S) × R)."""
    sets = np.unique(rows.hidden_set)
    full = row_weights(rows, settings, use_stronger_rows=use_stronger_rows)
    without_set = [full for _ in sets]
    if len(sets) >= settings.fewest_sets_to_refit:
        others = [~rows.of_models_in(k) for k in sets]
        refits = [row_weights(rows, settings, use_stronger_rows=use_stronger_rows, among=mask) for mask in others]
        without_set = [w if w.any() else full for w in refits]
    return np.stack([full, *without_set])


def row_weights(
    rows: HiddenRows, settings: StackSettings, *, use_stronger_rows: bool, among: Bools | None = None
) -> Floats:
    """Weight of each row (R); the sum is 1, of which stronger rows have `stronger_rows_weight`, if there are any.

    Among the stronger rows, all sets have equal weight; within a set, and among the family rows, all families. Only
    rows in `among` (R; None: all) have weight.
    """
    allowed = np.ones(len(rows.q), bool) if among is None else among
    stronger_sets = np.unique(rows.hidden_set[~rows.of_families & use_stronger_rows])
    stronger_weight = settings.stronger_rows_weight
    wanted = [
        (1 - stronger_weight, [allowed & rows.of_families]),
        (stronger_weight, [allowed & (rows.hidden_set == k) for k in stronger_sets]),
    ]
    filled = [(weight, [part for part in parts if part.any()]) for weight, parts in wanted]
    filled = [(weight, parts) for weight, parts in filled if parts]
    total = sum(weight for weight, _ in filled)
    out = np.zeros(len(rows.q))
    for weight, parts in filled:
        for part in parts:
            out[part] = family_balanced(rows.family[part]) / len(parts) * (weight / total)
    return out


def choose_shares(z: Floats, q: Floats, *, weights: Floats, settings: StackSettings) -> Floats:
    """Shares of the candidates that minimise the error of the averaged log-odds (S × C), for each set of row weights.

    Exponentiated gradient steps start from shares that favour candidates with small errors, and stop early. `weights`
    is S × R.
    """
    error = np.maximum(weights @ (sigmoid(z) - q[:, None]) ** 2, settings.least_error)
    shares = (error / error.min(axis=1, keepdims=True)) ** settings.starting_shares_power
    shares /= shares.sum(axis=1, keepdims=True)
    for _ in range(settings.share_steps):
        s = sigmoid(shares @ z.T)
        gradient = (weights * (s - q) * s * (1 - s)) @ z
        step = gradient - (gradient * shares).sum(axis=1, keepdims=True)
        shares = shares * np.exp(-settings.share_rate * step / (np.abs(step).max(axis=1, keepdims=True) + 1e-300))
        shares /= shares.sum(axis=1, keepdims=True)
    return shares


def calibrate(averaged: Floats, q: Floats, *, weights: Floats, line_fraction: float) -> list[Calibration]:
    """Line and monotone curve for each set of row weights, from the rows with weight; `averaged` and `weights`: S × R.

    The curve is needed because scores may plateau above chance and below 1. Without a usable line there is no curve.
    """
    slope, offset, usable = np.ones(len(averaged)), np.zeros(len(averaged)), np.ones(len(averaged), bool)
    if line_fraction:
        laws = fit_laws(averaged, np.broadcast_to(q, averaged.shape), np.zeros(len(averaged)), weight=weights)
        usable = laws.converged & (laws.slope > 0) & np.isfinite(laws.slope)
        slope = np.where(usable, 1 + line_fraction * (laws.slope - 1), 1.0)
        offset = np.where(usable, line_fraction * laws.offset, 0.0)
    curves = fit_monotone_calibrations(slope[:, None] * averaged + offset[:, None], q, weights)
    kept = [curve if on else None for curve, on in zip(curves, usable, strict=True)]
    return [Calibration(*parts) for parts in zip(slope.tolist(), offset.tolist(), kept, strict=True)]


def measure_curve_saving(
    averaged: Floats, rows: HiddenRows, *, weights: Floats, line_fraction: float, settings: StackSettings
) -> float:
    """Fraction of the squared error of all rows with weight that a curve saves on sets that it was not learned from.

    The rows are family rows and, if they have weight, stronger rows. NaN without an error, or with a single set. Shares
    are those of all rows (`averaged`, R), because shares without a set would change the error by more than a curve
    does. Only the rows of the set itself are taken out, so that its models still count in other sets: a curve learned
    without any stronger model would not cover their range of log-odds.
    """
    sets = np.unique(rows.hidden_set[weights > 0])
    without_set = np.stack([np.where(rows.hidden_set == k, 0.0, weights) for k in sets])
    if not without_set.any(axis=1).all():
        return np.nan
    without_set /= without_set.sum(axis=1, keepdims=True)
    straight, curved = (np.zeros(len(averaged)) for _ in range(2))
    everywhere = np.broadcast_to(averaged, without_set.shape)
    calibrations = calibrate(everywhere, rows.q, weights=without_set, line_fraction=line_fraction)
    for k, without in zip(sets, calibrations, strict=True):
        own = rows.hidden_set == k
        straight[own], curved[own] = without.straight(averaged[own]), without.curved(averaged[own])
    plain, with_curve = (float(weights @ (sigmoid(x) - rows.q) ** 2) for x in (straight, curved))
    return 1 - with_curve / plain if plain > settings.least_error else np.nan


def as_weighted_loss(
    average: Average, candidates: Sequence[Candidates], groups: TokenGroups, *, views: Sequence[str], floor: float
) -> tuple[npt.NDArray[np.float32], SigmoidLaw]:
    """Weights of tokens (views × N) whose weighted loss is Σ_c p_c x·mix_c, and its law; see `mixes` for choice losses.

    The signs, once for all files. A better model has lower losses and higher log-odds, and a positive weight shall
    mean that a lower loss is better. Therefore candidates subtract x · mix (partial least squares adds, so its
    coefficients change sign), and the slope of a law by its weighted loss is minus that of the calibration. A
    capability, too, is lower for a better model, so that of a blend is minus its log-odds, with a law of slope −1.
    """
    calibration = average.calibration
    offset = sum(float(c.offset @ part) for c, part in shared(average.shares, candidates))
    offset = calibration.offset + calibration.slope * offset
    law = SigmoidLaw(-calibration.slope, offset, floor, calibration=calibration.curve)
    return np.stack([groups.token_weights(mix) for mix in mixes(average.shares, candidates, views=views)]), law


def mixes(shares: Floats, candidates: Sequence[Candidates], *, views: Sequence[str]) -> list[Floats]:
    """The combination of groups (K) for each view, with these shares (C) of the candidates or other factors."""
    nothing = np.zeros(len(candidates[0].mix))
    parts = shared(shares, candidates)
    return [sum((c.mix @ part for c, part in parts if c.view == view), nothing) for view in views]


def shared(shares: Floats, candidates: Sequence[Candidates]) -> list[tuple[Candidates, Floats]]:
    """Candidates with their shares (C)."""
    parts = np.split(shares, np.cumsum([len(c.names) for c in candidates])[:-1])
    return list(zip(candidates, parts, strict=True))


def named_shares(average: Average, candidates: Sequence[Candidates]) -> dict[str, float]:
    """The share of each candidate by its name."""
    names = [name for c in candidates for name in c.names]
    return dict(zip(names, average.shares.tolist(), strict=True))


def share_notes(shares: Mapping[str, float], settings: StackSettings) -> dict[str, float]:
    """The larger shares by candidate, for the notes of a fit."""
    return {name: round(share, 4) for name, share in shares.items() if share > settings.smallest_noted_share}


def curve_note(average: Average) -> float | None:
    """The average's `curve_saving`, for the note `bend_saves` of a fit; None if it cannot be said."""
    return nan_to_none(round(average.curve_saving, 4))
