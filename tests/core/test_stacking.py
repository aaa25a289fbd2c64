"""Averaging and calibrating: the law gets a calibration curve only where it saves error on left-out families."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from benchcast.methods.law import sigmoid
from benchcast.methods.stack.averaging import Average, choose_shares, fit_average, measure_curve_saving, row_weights
from benchcast.methods.stack.hidden_sets import HiddenRows
from benchcast.methods.stack.settings import StackSettings
from benchcast.records import Bools, Floats

FAMILIES, MODELS = 8, 15
SETTINGS = StackSettings()


@dataclass(frozen=True)
class Hidden:
    """Rows of hidden models, and their log-odds under the candidates."""

    z: Floats
    rows: HiddenRows

    def with_rows(self, **changes) -> Hidden:
        return replace(self, rows=replace(self.rows, **changes))

    def average(self, *, line_fraction: float = 0.0) -> Average:
        return fit_average(self.z, self.rows, SETTINGS, use_stronger_rows=True, line_fraction=line_fraction)

    def weights(self, among: Bools | None = None, settings: StackSettings = SETTINGS) -> Floats:
        return row_weights(self.rows, settings, use_stronger_rows=True, among=among)

    def shares(self, settings: StackSettings = SETTINGS) -> Floats:
        return choose_shares(self.z, self.rows.q, weights=self.weights()[None], settings=settings)[0]


def out_of_fold_rows(*, floor: float = 0.0, seed: int = 0, validation: int = 0) -> Hidden:
    """Three candidates that see the true log-odds with family noise of their own; scores never fall below a floor."""
    rng = np.random.default_rng(seed)
    families = np.repeat([f"f{i}" for i in range(FAMILIES)], MODELS)
    true = rng.uniform(-6, 4, len(families))
    noise = rng.normal(0, 0.3, (FAMILIES, 3)).repeat(MODELS, axis=0) + rng.normal(0, 0.1, (len(families), 3))
    q = floor + (1 - floor) * sigmoid(true) + rng.normal(0, 0.005, len(families))
    kept = np.arange(len(families)) % MODELS < validation
    rows = np.concatenate([np.arange(len(families)), np.flatnonzero(kept)])
    family = np.repeat(np.arange(FAMILIES), MODELS)[rows]
    hidden_set = np.where(np.arange(len(rows)) < len(families), family, FAMILIES)
    return Hidden(
        (true[:, None] + noise)[rows],
        HiddenRows(
            model=rows,
            family=families[rows],
            hidden_set=hidden_set,
            kind=np.where(hidden_set < FAMILIES, "family", "validation"),
            q=np.clip(q, 0, 1)[rows],
        ),
    )


@pytest.mark.parametrize("seed", range(5))
def test_where_a_sigmoid_is_the_truth_nothing_is_bent(seed: int) -> None:
    seen = out_of_fold_rows(seed=seed)
    averaged = seen.average(line_fraction=1.0)
    assert averaged.calibration.curve is None
    assert averaged.calibration.slope == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_where_weak_models_plateau_above_chance_the_law_gets_a_calibration_curve(seed: int) -> None:
    seen = out_of_fold_rows(floor=0.12, seed=seed)
    averaged = seen.average(line_fraction=1.0)
    assert averaged.calibration.curve is not None
    assert averaged.curve_saving > 0.1
    assert averaged.calibration.curve.slopes[0] < -0.5, "level where models are weak"


@pytest.mark.parametrize("validation", [0, 4])
def test_a_hidden_family_has_no_say_in_its_own_nested_forecasts(validation: int) -> None:
    seen = out_of_fold_rows(floor=0.12, validation=validation)
    hidden_family = seen.rows.family == "f3"
    other = seen.with_rows(q=np.where(hidden_family, np.clip(seen.rows.q + 0.03, 0, 1), seen.rows.q))
    before, after = (x.average(line_fraction=1.0).log_odds_without_own_set for x in (seen, other))
    hidden_family &= seen.rows.of_families  # a stronger row is without the stronger models, not without its family
    np.testing.assert_array_equal(before[hidden_family], after[hidden_family])
    assert not np.array_equal(before[~hidden_family], after[~hidden_family])


def some(seen: Hidden, families: list[str]) -> Hidden:
    rows = seen.rows
    kept = np.isin(rows.family, families)
    return Hidden(
        seen.z[kept],
        HiddenRows(
            model=rows.model[kept],
            family=rows.family[kept],
            hidden_set=np.unique(rows.hidden_set[kept], return_inverse=True)[1],
            kind=rows.kind[kept],
            q=rows.q[kept],
        ),
    )


@pytest.mark.parametrize("floor", [0.0, 0.12])
def test_two_families_are_enough_for_a_forecast_but_not_for_a_calibration_curve(floor: float) -> None:
    two = some(out_of_fold_rows(floor=floor), ["f0", "f1"])
    averaged = two.average(line_fraction=1.0)
    assert averaged.calibration.curve is None
    assert np.isfinite(averaged.log_odds_without_own_set).all()


@pytest.mark.parametrize(("count", "own_say"), [(2, True), (3, False)])
def test_of_two_families_each_has_a_say_in_its_nested_forecast_and_of_three_none(count: int, own_say: bool) -> None:
    seen = some(out_of_fold_rows(), [f"f{i}" for i in range(count)])
    hidden_family = seen.rows.family == "f0"
    other = seen.with_rows(q=np.where(hidden_family, np.clip(seen.rows.q + 0.03, 0, 1), seen.rows.q))
    before, after = (x.average(line_fraction=1.0).log_odds_without_own_set[hidden_family] for x in (seen, other))
    assert np.array_equal(before, after) != own_say


def test_shares_start_with_the_inverse_square_of_the_error() -> None:
    seen = out_of_fold_rows()
    error = seen.weights() @ (sigmoid(seen.z) - seen.rows.q[:, None]) ** 2
    start = seen.shares(replace(SETTINGS, share_steps=0))
    assert start == pytest.approx(error**-2 / (error**-2).sum())
    assert seen.shares() != pytest.approx(start)


def test_shares_balance_a_candidate_that_is_too_high_with_one_that_is_too_low() -> None:
    seen = out_of_fold_rows()
    q = np.clip(seen.rows.q, 0.01, 0.99)
    true = np.log(q / (1 - q))
    seen = Hidden(np.stack([true + 0.5, true - 1.5], axis=1), replace(seen.rows, q=sigmoid(true)))
    assert seen.shares() == pytest.approx([0.75, 0.25], abs=0.04)


def test_a_single_family_is_cut_into_handfuls_and_gets_no_calibration_curve() -> None:
    one = some(out_of_fold_rows(floor=0.12), ["f0"]).with_rows(hidden_set=np.arange(MODELS) % 5)
    averaged = one.average(line_fraction=1.0)
    assert averaged.calibration.curve is None
    assert np.isfinite(averaged.log_odds_without_own_set).all()


def test_scores_that_are_all_the_same_are_not_bent() -> None:
    flat = out_of_fold_rows().with_rows(q=np.zeros(FAMILIES * MODELS))
    averaged = flat.average(line_fraction=1.0)
    assert np.isfinite(averaged.shares).all()
    assert averaged.calibration.curve is None


def test_weights_are_one_in_all_where_only_the_hidden_family_has_validation_models() -> None:
    seen = out_of_fold_rows(validation=4)
    only = seen.with_rows(family=np.where(seen.rows.of_families, seen.rows.family, "f3"))
    assert only.weights(among=only.rows.family != "f3").sum() == pytest.approx(1.0)


def test_families_and_stronger_models_weigh_half_each_however_many_sets_are_stronger() -> None:
    seen = out_of_fold_rows(validation=6)
    stronger = np.flatnonzero(~seen.rows.of_families)
    hidden_set = seen.rows.hidden_set.copy()
    hidden_set[stronger[::3]] = FAMILIES + 1  # a second set, half as large as the first
    seen = seen.with_rows(hidden_set=hidden_set)
    weight = seen.weights()
    assert weight[seen.rows.of_families].sum() == pytest.approx(0.5)
    assert weight[hidden_set == FAMILIES].sum() == pytest.approx(0.25)
    assert weight[hidden_set == FAMILIES + 1].sum() == pytest.approx(0.25)
    weight = seen.weights(settings=replace(SETTINGS, stronger_rows_weight=0.2))
    assert weight[~seen.rows.of_families].sum() == pytest.approx(0.2)
    assert weight.sum() == pytest.approx(1.0)


def test_a_hidden_model_is_hidden_in_every_set_it_belongs_to() -> None:
    rows = out_of_fold_rows(validation=4).rows
    hidden = rows.of_models_in(3)
    assert set(rows.model[hidden]) == set(rows.model[rows.hidden_set == 3])
    assert (hidden & ~rows.of_families).sum() == 4


def test_without_a_line_only_a_curve_that_pays_changes_the_average() -> None:
    plain = out_of_fold_rows().average(line_fraction=0.0)
    assert (plain.calibration.slope, plain.calibration.offset, plain.calibration.curve) == (1.0, 0.0, None)
    assert out_of_fold_rows(floor=0.12).average(line_fraction=0.0).calibration.curve is not None


def test_a_line_is_fitted_only_if_asked_for() -> None:
    plain = out_of_fold_rows().average()
    assert (plain.calibration.slope, plain.calibration.offset) == (1.0, 0.0)


def test_an_average_that_orders_models_the_wrong_way_is_not_calibrated() -> None:
    seen = out_of_fold_rows(floor=0.12)
    against = replace(seen, z=-3 * seen.z)  # a line through it has a slope of about -1/3
    averaged = against.average(line_fraction=1.0)
    assert (averaged.calibration.slope, averaged.calibration.offset, averaged.calibration.curve) == (1.0, 0.0, None)


def test_what_a_curve_saves_is_measured_with_the_shares_of_all_models() -> None:
    seen = out_of_fold_rows(floor=0.12)
    averaged = seen.average()
    averaged_log_odds = seen.z @ averaged.shares
    saving = measure_curve_saving(
        averaged_log_odds, seen.rows, weights=seen.weights(), line_fraction=0.0, settings=SETTINGS
    )
    assert averaged.curve_saving == pytest.approx(saving, rel=1e-9)
