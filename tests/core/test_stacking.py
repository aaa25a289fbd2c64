"""Averaging and calibrating: the law gets a calibration curve only where it saves error on left-out families."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchcast.law import sigmoid
from benchcast.methods import stacking
from benchcast.methods.stacking import OutOfFoldLogOdds, choose_shares, stack

FAMILIES, MODELS = 8, 15


def out_of_fold_rows(*, floor: float = 0.0, seed: int = 0, validation: int = 0) -> OutOfFoldLogOdds:
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
    return OutOfFoldLogOdds(
        (true[:, None] + noise)[rows], np.clip(q, 0, 1)[rows], families[rows], rows, hidden_set, FAMILIES
    )


@pytest.mark.parametrize("seed", range(5))
def test_where_a_sigmoid_is_the_truth_nothing_is_bent(seed: int) -> None:
    seen = out_of_fold_rows(seed=seed)
    averaged = stack(seen, line=True)
    assert averaged.calibration.curve is None
    assert averaged.calibration.slope == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_where_weak_models_plateau_above_chance_the_law_gets_a_calibration_curve(seed: int) -> None:
    seen = out_of_fold_rows(floor=0.12, seed=seed)
    averaged = stack(seen, line=True)
    assert averaged.calibration.curve is not None
    assert averaged.saved > 0.1
    assert averaged.calibration.curve.slopes[0] < -0.5, "level where models are weak"


@pytest.mark.parametrize("validation", [0, 4])
def test_a_hidden_family_has_no_say_in_its_own_nested_forecasts(validation: int) -> None:
    seen = out_of_fold_rows(floor=0.12, validation=validation)
    hidden_family = seen.families == "f3"
    other = replace(seen, q=np.where(hidden_family, np.clip(seen.q + 0.03, 0, 1), seen.q))
    before, after = (stack(x, line=True).nested for x in (seen, other))
    hidden_family &= (
        seen.of_families
    )  # among stronger models, a model is forecast without these models, not without its family
    np.testing.assert_array_equal(before[hidden_family], after[hidden_family])
    assert not np.array_equal(before[~hidden_family], after[~hidden_family])


def some(seen: OutOfFoldLogOdds, families: list[str]) -> OutOfFoldLogOdds:
    rows = np.isin(seen.families, families)
    sets = np.unique(seen.hidden_set[rows], return_inverse=True)[1]
    parts = (seen.log_odds[rows], seen.q[rows], seen.families[rows], seen.model[rows])
    return OutOfFoldLogOdds(*parts, sets, len(families))


@pytest.mark.parametrize("floor", [0.0, 0.12])
def test_two_families_are_enough_for_a_forecast_but_not_for_a_calibration_curve(floor: float) -> None:
    two = some(out_of_fold_rows(floor=floor), ["f0", "f1"])
    averaged = stack(two, line=True)
    assert averaged.calibration.curve is None
    assert np.isfinite(averaged.nested).all()


@pytest.mark.parametrize(("count", "own_say"), [(2, True), (3, False)])
def test_of_two_families_each_has_a_say_in_its_nested_forecast_and_of_three_none(count: int, own_say: bool) -> None:
    seen = some(out_of_fold_rows(), [f"f{i}" for i in range(count)])
    hidden_family = seen.families == "f0"
    other = replace(seen, q=np.where(hidden_family, np.clip(seen.q + 0.03, 0, 1), seen.q))
    before, after = (stack(x, line=True).nested[hidden_family] for x in (seen, other))
    assert np.array_equal(before, after) != own_say


def test_shares_start_with_the_inverse_square_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "SHARE_STEPS", 0)
    seen = out_of_fold_rows()
    error = seen.weight() @ (sigmoid(seen.log_odds) - seen.q[:, None]) ** 2
    assert choose_shares(seen, seen.weight()[None])[0] == pytest.approx(error**-2 / (error**-2).sum())


def test_shares_balance_a_candidate_that_is_too_high_with_one_that_is_too_low() -> None:
    seen = out_of_fold_rows()
    true = np.log(np.clip(seen.q, 0.01, 0.99) / (1 - np.clip(seen.q, 0.01, 0.99)))
    seen = replace(seen, q=sigmoid(true), log_odds=np.stack([true + 0.5, true - 1.5], axis=1))
    assert choose_shares(seen, seen.weight()[None])[0] == pytest.approx([0.75, 0.25], abs=0.04)


def test_a_single_family_is_cut_into_handfuls_and_gets_no_calibration_curve() -> None:
    one = replace(some(out_of_fold_rows(floor=0.12), ["f0"]), hidden_set=np.arange(MODELS) % 5, family_sets=5)
    averaged = stack(one, line=True)
    assert averaged.calibration.curve is None
    assert np.isfinite(averaged.nested).all()


def test_scores_that_are_all_the_same_are_not_bent() -> None:
    flat = replace(out_of_fold_rows(), q=np.zeros(FAMILIES * MODELS))
    averaged = stack(flat, line=True)
    assert np.isfinite(averaged.share).all()
    assert averaged.calibration.curve is None


def test_weights_are_one_in_all_where_only_the_hidden_family_has_validation_models() -> None:
    seen = out_of_fold_rows(validation=4)
    only = replace(seen, families=np.where(seen.of_families, seen.families, "f3"))
    assert only.weight(only.families == "f3").sum() == pytest.approx(1.0)


def test_families_and_stronger_models_weigh_half_each_however_many_sets_are_stronger() -> None:
    seen = out_of_fold_rows(validation=6)
    stronger = np.flatnonzero(~seen.of_families)
    hidden_set = seen.hidden_set.copy()
    hidden_set[stronger[::3]] = FAMILIES + 1  # a second set, half as large as the first
    weight = replace(seen, hidden_set=hidden_set).weight()
    assert weight[seen.of_families].sum() == pytest.approx(0.5)
    assert weight[hidden_set == FAMILIES].sum() == pytest.approx(0.25)
    assert weight[hidden_set == FAMILIES + 1].sum() == pytest.approx(0.25)


def test_a_hidden_model_is_hidden_in_every_set_it_belongs_to() -> None:
    seen = out_of_fold_rows(validation=4)
    rows = seen.of_models_in(3)
    assert set(seen.model[rows]) == set(seen.model[seen.hidden_set == 3])
    assert (rows & ~seen.of_families).sum() == 4


def test_without_a_line_only_a_curve_that_pays_changes_the_average() -> None:
    plain = stack(out_of_fold_rows(), line=False)
    assert (plain.calibration.slope, plain.calibration.offset, plain.calibration.curve) == (1.0, 0.0, None)
    assert stack(out_of_fold_rows(floor=0.12), line=False).calibration.curve is not None


def test_a_line_is_fitted_only_if_asked_for() -> None:
    plain = stack(out_of_fold_rows())
    assert (plain.calibration.slope, plain.calibration.offset) == (1.0, 0.0)


def test_an_average_that_orders_models_the_wrong_way_is_not_calibrated() -> None:
    seen = out_of_fold_rows(floor=0.12)
    against = replace(seen, log_odds=-3 * seen.log_odds)  # a line through it has a slope of about -1/3
    averaged = stack(against, line=True)
    assert (averaged.calibration.slope, averaged.calibration.offset, averaged.calibration.curve) == (1.0, 0.0, None)


def test_what_a_curve_saves_is_measured_with_the_shares_of_all_models() -> None:
    seen = out_of_fold_rows(floor=0.12)
    averaged = stack(seen)
    mixed = seen.log_odds @ averaged.share
    assert averaged.saved == pytest.approx(stacking._curve_saves(seen, mixed, seen.weight(), 0.0), rel=1e-9)
