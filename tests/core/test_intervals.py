"""Prediction intervals on hand numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchcast.intervals import distance, has_range, interval, out_of_fold_coverage, spread_of
from benchcast.law import SigmoidLaw
from benchcast.records import Task
from benchcast.task_fit import OutOfFoldErrors, TaskFit


def errors(values: list[float], families: list[str]) -> OutOfFoldErrors:
    return OutOfFoldErrors(np.array(values), np.array(families, dtype=str), "by hand")


def fit_with(out_of_fold: OutOfFoldErrors, *, span: tuple[float, float] = (1.0, 3.0)) -> TaskFit:
    law = SigmoidLaw(-1.0, 0.0, 0.0)
    return TaskFit(Task("t"), "salience", "nats", np.ones(1, np.float32), 1.0, law, out_of_fold, span)


THREE = errors([0.03, -0.05, 0.04, 0.0], ["a", "a", "b", "c"])


def test_the_interval_is_students_t_over_families():
    spread = spread_of(THREE)
    scale = np.sqrt(((0.0009 + 0.0025) / 2 + 0.0016 + 0.0) / 3)  # mean over families of their mean square
    assert spread.families == 3
    assert spread.scale == pytest.approx(scale)
    # Student's t at 95% with 2 degrees of freedom is 2.919986
    assert spread.half_width == pytest.approx(scale * 2.9199856 * np.sqrt(2 / 3), rel=1e-6)


def test_many_checkpoints_of_one_family_do_not_narrow_the_interval():
    doubled = errors([*THREE.errors, *THREE.errors], [*THREE.families, *THREE.families])
    assert spread_of(doubled).half_width == pytest.approx(spread_of(THREE).half_width)


def test_with_one_family_its_models_stand_in():
    spread = spread_of(errors([0.1, -0.1], ["a", "a"]))
    assert spread.families == 1
    assert spread.half_width == pytest.approx(0.1 * 6.313752 * np.sqrt(0.5), rel=1e-6)  # t, 1 degree of freedom


@pytest.mark.parametrize("out_of_fold", [errors([], []), errors([0.1], ["a"])])
def test_what_cannot_be_said_is_nan(out_of_fold):
    assert np.isnan(spread_of(out_of_fold).half_width)
    assert np.isnan(interval(fit_with(out_of_fold), [2.0], [0.5])).all()


def test_inside_the_training_range_the_interval_is_forecast_plus_minus_half():
    half = spread_of(THREE).half_width
    low, high = interval(fit_with(THREE), [1.0, 2.0, 3.0], [0.5, 0.5, 0.5])
    assert_allclose(low, 0.5 - half)
    assert_allclose(high, 0.5 + half)


def test_outside_the_training_range_it_widens_with_the_distance_on_both_sides():
    fit = fit_with(THREE)
    assert distance(fit, [0.0, 1.0, 2.0, 3.0, 5.0]).tolist() == [0.5, 0.0, 0.0, 0.0, 1.0]
    half = spread_of(THREE).half_width
    low, high = interval(fit, [0.0, 2.0, 5.0], [0.5, 0.5, 0.5])
    assert_allclose((high - low) / 2, [1.5 * half, half, 2 * half])


def test_intervals_stay_inside_zero_and_one():
    low, high = interval(fit_with(THREE), [2.0, 2.0], [0.01, 0.99])
    assert low.min() == 0.0
    assert high.max() == 1.0


def test_every_other_capability_is_infinitely_far_from_a_single_one():
    assert distance(fit_with(THREE, span=(2.0, 2.0)), [0.0, 2.0, 4.0]).tolist() == [np.inf, 0.0, np.inf]


@pytest.mark.parametrize(
    ("span", "apart"), [((0.0, 0.0), False), ((1e3, 1e3 + 1e-4), False), ((1e3, 1e3 + 1e-2), True), ((0.0, 1e-9), True)]
)
def test_capabilities_are_apart_by_more_than_rounding(span, apart):
    assert has_range(fit_with(THREE, span=span)) is apart


def test_coverage_counts_errors_inside_the_interval_of_the_other_families():
    """Of b and c alone an interval reaches 0.44, of a and c and of a and b much further than any error."""
    wide = errors([0.9, 0.1, 0.1], ["a", "b", "c"])
    assert spread_of(errors([0.1, 0.1], ["b", "c"])).half_width == pytest.approx(
        0.1 * 6.313752 * np.sqrt(0.5), rel=1e-6
    )
    assert out_of_fold_coverage(wide) == pytest.approx(2 / 3)


def test_coverage_of_two_families_is_not_known():
    assert np.isnan(out_of_fold_coverage(errors([0.1, 0.2, 0.3], ["a", "b", "b"])))


def test_near_chance_the_interval_is_wider_and_elsewhere_it_is_not():
    _, high = interval(fit_with(THREE), [2.0, 2.0, 2.0, 2.0], [0.0, 0.05, 0.1, 0.5])
    half = spread_of(THREE).half_width
    assert_allclose((high - [0.0, 0.05, 0.1, 0.5]) / half, [1.25, 1.125, 1.0, 1.0])
