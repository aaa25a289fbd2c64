"""The sigmoid law against known answers, scipy's solver and the other array library."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import least_squares, minimize

from benchcast.methods.law import (
    Laws,
    MonotoneCalibration,
    SigmoidLaw,
    _best_of,
    _starts,
    fit_law,
    fit_laws,
    fit_monotone_calibrations,
    ramps,
    sigmoid,
)
from benchcast.methods.solvers import LeastSquares


def fit_monotone_calibration(log_odds, q, weight):
    return fit_monotone_calibrations(log_odds[None], q, weight[None])[0]


def curve(c, slope, midpoint, chance):
    return chance + (1 - chance) / (1 + np.exp(-slope * (c - midpoint)))


@given(
    slope=st.floats(0.5, 40) | st.floats(-40, -0.5),
    midpoint=st.floats(-1, 3),
    chance=st.sampled_from([0.0, 0.25, 0.5]),
    seed=st.integers(0, 99),
)
def test_a_law_without_noise_is_recovered(slope, midpoint, chance, seed):
    reach = 3 / abs(slope)  # models on both sides of the midpoint, from 5% to 95% of the way
    c = midpoint + np.random.default_rng(seed).uniform(-reach, reach, 25)
    law = fit_law(c, curve(c, slope, midpoint, chance), chance)
    assert law.failure == ""
    assert_allclose([law.slope, law.midpoint], [slope, midpoint], rtol=1e-4, atol=1e-4)


def scipy_error(c, a, chance):
    """The least mean squared error that scipy finds from many starts."""
    z = (c - c.mean()) / c.std()
    starts = [(u, -u * at) for u in (-8.0, -3.0, -1.0, 1.0, 3.0, 8.0) for at in (-1.5, 0.0, 1.5)]
    fits = [
        least_squares(lambda p: chance + (1 - chance) * sigmoid(p[0] * z + p[1]) - a, s, method="lm") for s in starts
    ]
    return min(2 * f.cost for f in fits) / len(c)


@pytest.mark.parametrize("seed", range(12))
def test_the_fit_is_no_worse_than_scipys_from_many_starts(seed):
    rng = np.random.default_rng(seed)
    chance = (0.0, 0.25, 0.5)[seed % 3]
    c = rng.normal(2, 0.5, 18)
    a = curve(c, rng.choice([-1, 1]) * rng.uniform(0.5, 9), rng.normal(2, 0.8), chance)
    a = np.clip(a + rng.normal(0, 0.05, 18), 0, 1)
    law = fit_law(c, a, chance)
    mine = np.mean((law.accuracy(c) - a) ** 2)
    assert mine <= scipy_error(c, a, chance) * (1 + 1e-5) + 1e-12


def test_both_solvers_find_the_same_parameters_where_the_data_fix_them():
    rng = np.random.default_rng(5)
    c = np.linspace(0, 4, 60)
    a = curve(c, -2.5, 1.7, 0.25) + rng.normal(0, 0.01, 60)
    law = fit_law(c, a, 0.25)
    reference = least_squares(lambda p: curve(c, p[0], p[1], 0.25) - a, (-1.0, 2.0), method="lm")
    assert_allclose([law.slope, law.midpoint], reference.x, rtol=1e-4)


def test_tasks_that_improve_and_tasks_that_worsen_with_loss_both_fit():
    c = np.linspace(0, 1, 12)
    falling = fit_law(c, curve(c, -6, 0.5, 0.0), 0.0)
    rising = fit_law(c, curve(c, 6, 0.5, 0.0), 0.0)
    assert falling.slope < 0 < rising.slope


def test_scores_at_or_below_chance_are_data_not_errors():
    c = np.linspace(0, 1, 20)
    a = np.maximum(curve(c, -14, 0.3, 0.25) - 0.04 * (c > 0.6), 0)
    assert (a < 0.25).sum() > 5
    law = fit_law(c, a, 0.25)
    assert law.failure == ""
    assert (law.accuracy(c) >= 0.25).all()
    assert np.abs(law.accuracy(c) - a).max() < 0.06


def test_scores_that_are_all_chance_give_a_law_that_says_chance():
    c = np.linspace(0, 1, 10)
    law = fit_law(c, np.full(10, 0.25), 0.25)
    assert law.failure == ""
    assert_allclose(law.accuracy(c), 0.25, atol=1e-3)


@pytest.mark.parametrize("scores", [np.linspace(0, 0.2, 12), np.linspace(0.2, 0, 12), np.full(12, 0.1), np.zeros(12)])
def test_scores_that_are_all_below_chance_give_a_law_that_says_chance(scores):
    c = np.linspace(0, 1, 12)
    law = fit_law(c, scores, 0.25)
    assert law.failure == ""
    assert_allclose(law.accuracy(c), 0.25, atol=1e-3)


@given(
    scores=st.lists(st.floats(0, 1) | st.sampled_from([0.0, 0.25, 1.0]), min_size=4, max_size=15),
    chance=st.sampled_from([0.0, 0.25, 0.5]),
    seed=st.integers(0, 99),
)
def test_any_scores_have_a_law_that_is_at_least_as_good_as_their_mean(scores, chance, seed):
    c, a = np.random.default_rng(seed).normal(size=len(scores)), np.array(scores)
    law = fit_law(c, a, chance)
    assert law.failure == ""
    flat = max(a.mean(), chance)
    assert np.mean((law.accuracy(c) - a) ** 2) <= np.mean((flat - a) ** 2) * (1 + 1e-6) + 1e-9


def test_a_perfect_step_is_fitted_with_a_finite_slope():
    c = np.linspace(0, 1, 20)
    law = fit_law(c, (c < 0.5).astype(float), 0.0)
    assert law.failure == ""
    assert np.isfinite([law.slope, law.offset]).all()
    assert abs(law.slope) * c.std() <= 60 * (1 + 1e-9)
    assert np.abs(law.accuracy(c) - (c < 0.5)).max() < 0.05


def test_two_models_are_enough_for_a_law():
    law = fit_law([1.0, 2.0], [0.7, 0.4], 0.25)
    assert_allclose(law.accuracy([1.0, 2.0]), [0.7, 0.4], atol=1e-4)


@pytest.mark.parametrize("capability", [[1.0] * 8, [0.0] * 8, [1e6 + 1e-9] * 8])
def test_equal_capabilities_give_a_reason_and_no_exception(capability):
    law = fit_law(capability, np.linspace(0.2, 0.8, 8), 0.0)
    assert law.failure == "all capabilities are equal"
    assert np.isnan(law.accuracy([0.0, 1.0])).all()
    assert np.isnan(law.midpoint)


def test_one_usable_model_gives_a_reason_and_no_exception():
    law = fit_law([1.0, np.nan, 2.0], [0.5, 0.6, np.nan], 0.0)
    assert law.failure == "1 usable models, a law has two parameters"


def test_models_without_capability_or_accuracy_do_not_count():
    c = np.linspace(0, 1, 12)
    a = curve(c, -5, 0.4, 0.25)
    holed = np.concatenate([c, [np.nan, 0.5]]), np.concatenate([a, [0.9, np.nan]])
    assert fit_law(*holed, 0.25) == fit_law(c, a, 0.25)


@given(st.permutations(range(14)))
def test_the_order_of_models_changes_nothing(order):
    rng = np.random.default_rng(1)
    c = rng.normal(size=14)
    a = np.clip(curve(c, -2, 0, 0.25) + rng.normal(0, 0.05, 14), 0, 1)
    law, other = fit_law(c, a, 0.25), fit_law(c[list(order)], a[list(order)], 0.25)
    assert_allclose([other.slope, other.offset], [law.slope, law.offset], rtol=1e-4, atol=1e-5)


@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-50, 50))
def test_the_unit_of_capability_changes_no_forecast(scale, shift):
    rng = np.random.default_rng(2)
    c = rng.normal(size=14)
    a = np.clip(curve(c, -2, 0, 0.0) + rng.normal(0, 0.05, 14), 0, 1)
    moved = c * scale + shift
    assert_allclose(fit_law(moved, a, 0.0).accuracy(moved), fit_law(c, a, 0.0).accuracy(c), atol=1e-4)


def batch(n_problems: int = 9, n_models: int = 15):
    rng = np.random.default_rng(3)
    c = rng.normal(size=(n_problems, n_models))
    chance = rng.choice([0.0, 0.25], n_problems)
    a = np.clip(curve(c, -2.0, 0.3, chance[:, None]) + rng.normal(0, 0.03, c.shape), 0, 1)
    weight = (rng.random(c.shape) > 0.2).astype(float)
    return c, np.where(weight > 0, a, np.nan), chance, weight


def test_many_laws_at_once_are_each_law_alone():
    c, a, chance, weight = batch()
    laws = fit_laws(c, a, chance, weight=weight)
    for i in range(len(c)):
        on = weight[i] > 0
        alone = fit_law(c[i, on], a[i, on], chance[i])
        assert_allclose([laws.slope[i], laws.offset[i]], [alone.slope, alone.offset], rtol=1e-4, atol=1e-5)


def test_numpy_and_torch_fit_the_same_laws():
    arrays = batch()
    laws = fit_laws(*arrays[:3], weight=arrays[3])
    tensors = [torch.from_numpy(x) for x in arrays]
    same = fit_laws(*tensors[:3], weight=tensors[3])
    assert isinstance(same.slope, torch.Tensor)
    assert_allclose(same.slope.numpy(), laws.slope, rtol=1e-5)
    assert_allclose(same.offset.numpy(), laws.offset, rtol=1e-5, atol=1e-7)
    assert_allclose(same.mse.numpy(), laws.mse, rtol=1e-7)


def test_a_law_followed_from_a_near_start_ends_where_a_fresh_fit_does():
    c, a, chance, weight = batch()
    fresh = fit_laws(c, a, chance, weight=weight)
    nearby = Laws(fresh.slope * 1.1, fresh.offset + 0.05, fresh.mse, fresh.converged)
    followed = fit_laws(c, a, chance, weight=weight, start=nearby)
    assert_allclose(followed.mse, fresh.mse, rtol=1e-6)


def test_the_first_start_is_the_law_itself_where_scores_have_no_noise():
    z = np.linspace(-1.5, 1.5, 12)
    z /= z.std()
    starts = _starts(z, curve(z, -1.2, 0.3, 0.25), np.array([0.25]), np.full(12, 1 / 12))
    assert_allclose(starts[:2], [[-1.2, 0.36], [-3.6, 1.08]], rtol=1e-9)
    assert sorted((u, -v / u) for u, v in starts[2:].tolist()) == [
        (slope, at) for slope in (-3.0, 3.0) for at in (-1.5, 0.0, 1.5)
    ]


def test_the_first_start_is_a_regression_of_log_odds_that_are_clipped_two_percent_from_the_ends():
    rng = np.random.default_rng(0)
    z = rng.normal(size=20)
    z = (z - z.mean()) / z.std()
    share = np.clip(curve(z, -2.0, 0.3, 0.0) + rng.normal(0, 0.1, 20), 0, 1)
    assert share.min() == 0
    clipped = share.clip(0.02, 0.98)
    slope, offset = np.polyfit(z, np.log(clipped / (1 - clipped)), 1)
    starts = _starts(z, 0.25 + 0.75 * share, np.array([0.25]), np.full(20, 1 / 20))
    assert_allclose(starts[0], [slope, offset], rtol=1e-9)


def test_models_of_weight_0_take_no_part():
    c, a = np.linspace(0, 1, 12), curve(np.linspace(0, 1, 12), -5, 0.4, 0.25)
    weight = np.array([1.0] * 12 + [0.0])
    law = fit_laws(np.array([*c, 9.0]), np.array([*a, np.nan]), np.array(0.25), weight=weight)
    alone = fit_law(c, a, 0.25)
    assert_allclose([law.slope, law.offset], [alone.slope, alone.offset], rtol=1e-9)
    x = np.array([-2.0, -1.0, 0.5, 1.0, 7.0, -7.0])
    fitted = fit_monotone_calibration(x, sigmoid(x), np.array([0.25] * 4 + [0.0] * 2))
    assert (fitted.low, fitted.high) == (-2.0, 1.0)


@pytest.mark.parametrize("best", range(3))
def test_of_several_ends_the_one_of_least_error_is_taken_whole(best):
    error = np.full((3, 2), 0.5)
    error[best, 0], error[(best + 1) % 3, 1] = 0.1, 0.2
    numbers = np.arange(6.0).reshape(3, 2)
    lowest = _best_of(LeastSquares(np.stack([numbers, 10 + numbers], axis=-1), error, numbers > 2))
    expected = np.array([2.0 * best, 2.0 * ((best + 1) % 3) + 1])
    assert_allclose(lowest.theta, np.stack([expected, 10 + expected], axis=-1))
    assert_allclose(lowest.error, [0.1, 0.2])
    assert lowest.converged.tolist() == (expected > 2).tolist()
    equal = _best_of(LeastSquares(numbers[..., None], np.full((3, 2), 0.5), numbers > 2))
    assert equal.theta[..., 0].tolist() == [0.0, 1.0], "of equal errors the first"


def test_accuracy_lies_between_chance_and_one_at_any_capability():
    law = SigmoidLaw(-3.0, 2.0, 0.25)
    assert law.accuracy([-1e9, 1e9]).tolist() == [1.0, 0.25]
    assert law.midpoint == pytest.approx(2 / 3)
    assert law.accuracy(law.midpoint) == pytest.approx(0.625)


def test_ramps_add_up_to_the_log_odds():
    x = np.linspace(-9, 9, 50)
    assert_allclose(ramps(x).sum(axis=1), x, atol=1e-12)
    plain = MonotoneCalibration(0.0, (0.0,) * ramps(x).shape[1], -2.0, 2.0)
    assert_allclose(plain(x), x, atol=1e-12)


def test_a_ramp_is_half_as_steep_at_each_end_of_its_stretch():
    knots = np.array([-3.0, -1.5, 0.0, 1.5, 3.0])
    steep = (ramps(knots + 1e-6) - ramps(knots - 1e-6)) / 2e-6
    for i in range(5):
        assert_allclose(steep[i, i : i + 2], [0.5, 0.5], atol=0.05)
    assert_allclose((ramps([-6.0, 6.0]) - ramps([-7.0, 7.0]))[[0, 1], [0, 5]], [1, -1], atol=0.01)


@given(st.lists(st.floats(-6, 4), min_size=7, max_size=7))
def test_a_calibrated_law_still_falls_with_capability(parameters):
    law = SigmoidLaw(-2.0, 1.0, 0.25, calibration=MonotoneCalibration(parameters[0], tuple(parameters[1:]), -4.0, 4.0))
    accuracy = law.accuracy(np.linspace(-6, 6, 200))
    assert (np.diff(accuracy) <= 0).all()
    assert accuracy.min() >= 0.25


def test_a_known_calibration_is_found():
    rng = np.random.default_rng(0)
    x = rng.uniform(-5, 5, 400)
    known = MonotoneCalibration(0.1, (-1.0, 0.0, 0.4, 0.0, -0.4, -1.0), -9.0, 9.0)
    q = sigmoid(known(x)) + 0.003 * rng.normal(size=len(x))
    weight = np.full(len(x), 1 / len(x))
    curve = fit_monotone_calibration(x, q, weight)
    grid = np.linspace(-4.5, 4.5, 50)
    assert_allclose(sigmoid(curve(grid)), sigmoid(known(grid)), atol=0.03)
    assert np.mean((sigmoid(x) - q) ** 2) > 5 * np.mean((sigmoid(curve(x)) - q) ** 2)


@pytest.mark.parametrize("seed", range(6))
def test_a_calibration_curve_has_the_least_penalised_error(seed):
    rng = np.random.default_rng(seed)
    x, weight = rng.uniform(-4, 4, 30), rng.dirichlet(np.ones(30))
    q = np.clip(sigmoid(1.5 * x - 0.5) + rng.normal(0, 0.05, 30), 0, 1)
    shrink = weight @ (sigmoid(x) - q) ** 2 / 30

    def penalised(theta):
        error = weight @ (sigmoid(theta[0] + ramps(x) @ np.exp(theta[1:])) - q) ** 2
        return error + shrink * (theta[1:] @ theta[1:])

    curve = fit_monotone_calibration(x, q, weight)
    least = minimize(penalised, np.zeros(7), options={"gtol": 1e-10}).fun
    assert penalised(np.array([curve.shift, *curve.slopes])) <= least * (1 + 1e-4)
    assert least < 0.9 * penalised(np.zeros(7)), "there is something to calibrate"


def test_beyond_the_models_that_were_seen_the_line_goes_on():
    calibration = MonotoneCalibration(0.1, (-1.0, 0.0, 0.4, 0.0, -0.4, -1.0), -4.0, 2.0)
    assert_allclose(calibration([-7.0, 7.0]) - calibration([-4.0, 2.0]), [-3.0, 5.0], atol=1e-12)


def test_where_a_sigmoid_is_right_the_calibration_curve_is_the_identity():
    x = np.linspace(-4, 4, 40)
    curve = fit_monotone_calibration(x, sigmoid(x), np.full(40, 1 / 40))
    assert_allclose([curve.shift, *curve.slopes], 0.0, atol=1e-6)
    assert (curve.low, curve.high) == (-4.0, 4.0)
