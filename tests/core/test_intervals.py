"""Prediction intervals on hand numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchcast.forecasts.forecast import caution_on
from benchcast.forecasts.intervals import (
    NEAR_CHANCE,
    OF_OTHER_FAMILIES,
    RISE_FROM_CHANCE,
    USUAL_FAMILY_ERROR,
    Position,
    Predictions,
    angle,
    between,
    distance,
    from_angle,
    locate,
    out_of_fold_coverage,
    score_distribution,
    spread_of,
)
from benchcast.losses.dataset import LossView
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.profile import LossProfile
from benchcast.methods.task_fit import NO_ERRORS, OutOfFoldErrors, TaskFit
from benchcast.records import ModelInfo, ModelMetadata, Task

T_90_WITH_2 = 2.9199856  # Student's t at 95%, two degrees of freedom


def errors(angles: list[float], families: list[str], *, far: list[float] | None = None) -> OutOfFoldErrors:
    """Errors of models that score 0.5, given as angles."""
    observed = np.full(len(angles), 0.5)
    misses = from_angle(angle(observed) + np.array(angles)) - observed
    groups = np.unique(families, return_inverse=True)[1]
    names = tuple(f"m{i}" for i in range(len(angles)))
    squared = np.ones(len(angles)) if far is None else np.array(far)
    return OutOfFoldErrors(misses, np.array(families, dtype=str), "by hand", names, groups, observed, squared)


def fit_with(out_of_fold: OutOfFoldErrors, stronger: OutOfFoldErrors = NO_ERRORS, *, chance: float = 0.0) -> TaskFit:
    return TaskFit(
        task=Task("t", chance),
        method="stack",
        capability=WeightedLoss(views=(LossView.NATS,), weights=np.ones((1, 2), np.float32), unit=2.0),
        law=SigmoidLaw(-1.0, 0.0, chance),
        out_of_fold=out_of_fold,
        range=(1.0, 3.0),
        stronger=stronger,
    )


def interval(fit: TaskFit, accuracy: list[float], position: Position) -> tuple[np.ndarray, np.ndarray]:
    """The 90% intervals of forecasts."""
    return score_distribution(fit, accuracy, position).interval(0.9)


def ends(fit: TaskFit, accuracy: float = 0.5, *, far: float = 1.0, stronger: bool = False) -> tuple[float, float]:
    """Distance of both ends of an interval from the forecast, as angles."""
    position = Position(np.array([far]), np.array([stronger]), np.array([False]))
    low, high = interval(fit, [accuracy], position)
    return float(angle(accuracy) - angle(low)[0]), float(angle(high)[0] - angle(accuracy))


THREE = errors([0.03, -0.05, 0.04, 0.0], ["a", "a", "b", "c"])
SCALE = np.sqrt(((0.0009 + 0.0025) / 2 + 0.0016 + 0.0) / 3)  # mean over families of their mean square
HALF = SCALE * T_90_WITH_2 * np.sqrt(2 / 3)


def test_the_interval_is_students_t_over_families():
    assert ends(fit_with(THREE)) == pytest.approx((HALF, HALF))


def test_many_checkpoints_of_one_family_do_not_narrow_the_interval():
    doubled = errors([0.03, -0.05, 0.04, 0.0] * 2, ["a", "a", "b", "c"] * 2)
    assert ends(fit_with(doubled)) == pytest.approx((HALF, HALF))


def test_with_one_family_its_models_stand_in():
    one = errors([0.1, -0.1], ["a", "a"])
    reach = 0.1 * 6.313752 * np.sqrt(0.5)  # t with one degree of freedom
    assert ends(fit_with(one)) == pytest.approx((reach, reach), rel=1e-6)
    assert spread_of(fit_with(one)).families == 1


@pytest.mark.parametrize("out_of_fold", [errors([], []), errors([0.1], ["a"])])
def test_what_cannot_be_said_is_nan(out_of_fold):
    fit = fit_with(out_of_fold)
    assert np.isnan(spread_of(fit).half_width)
    assert np.isnan(interval(fit, [0.5], locate(fit, [2.0]))).all()


def test_an_interval_is_narrower_and_leans_inwards_near_the_ends_of_the_scale():
    fit = fit_with(THREE)
    low, high = interval(fit, [0.5, 0.95, 0.999], Position(np.ones(3), np.zeros(3, bool), np.zeros(3, bool)))
    assert (np.diff(high - low) < 0).all()
    assert (0.95 - low[1]) > (high[1] - 0.95)
    assert high[2] == 1.0
    assert (low >= 0).all()


def test_errors_of_distant_models_count_by_their_distance_and_distant_models_get_wider_intervals():
    """Family b was four times as far away (in squares) and missed by twice as much: that is the usual error."""
    inside = fit_with(errors([0.04, 0.04, 0.04], ["a", "b", "c"]))
    far = fit_with(errors([0.04, 0.08, 0.04], ["a", "b", "c"], far=[1.0, 4.0, 1.0]))
    assert ends(far) == pytest.approx(ends(inside))
    assert ends(far, far=9.0)[0] == pytest.approx(3 * ends(inside)[0])


def test_hidden_models_nearer_than_usual_do_not_count_for_more():
    assert ends(fit_with(errors([0.04] * 3, ["a", "b", "c"], far=[0.1] * 3))) == pytest.approx(
        ends(fit_with(errors([0.04] * 3, ["a", "b", "c"])))
    )


def test_only_stronger_models_get_the_errors_of_hidden_stronger_models():
    stronger = errors([0.2, 0.2, 0.3], ["a", "b", "a"])
    stronger = replace(stronger, hidden_set=np.array([0, 0, 1]))
    fit = fit_with(THREE, stronger)
    assert ends(fit) == pytest.approx((HALF, HALF))
    pooled = np.sqrt((3 * SCALE**2 + 0.04 + 0.09) / 5)  # each hidden set counts as one more family
    assert ends(fit, stronger=True)[0] == pytest.approx(pooled * T_90_WITH_2 * np.sqrt(2 / 3))


def test_an_interval_for_a_stronger_model_is_never_narrower_than_for_an_unseen_family():
    fit = fit_with(THREE, errors([0.001, 0.001], ["a", "b"]))
    assert ends(fit, stronger=True) == pytest.approx((HALF, HALF))


def test_a_stronger_model_at_chance_may_take_off():
    fit = fit_with(THREE, chance=0.25)
    below, above = ends(fit, 0.25, far=4.0, stronger=True)
    assert above == pytest.approx(below + RISE_FROM_CHANCE)
    assert ends(fit, 0.25, far=4.0)[1] == pytest.approx(below), "inside the range it may not"
    assert ends(fit, 0.5, far=4.0, stronger=True)[1] == pytest.approx(below), "well above chance it already has"
    halfway = 0.25 + 0.75 * NEAR_CHANCE / 2
    assert ends(fit, halfway, far=4.0, stronger=True)[1] == pytest.approx(below + RISE_FROM_CHANCE / 2)


def test_outside_the_training_range_the_distance_grows_on_both_sides():
    fit = fit_with(THREE)
    assert distance(fit, [0.0, 1.0, 2.0, 3.0, 5.0]).tolist() == [0.5, 0.0, 0.0, 0.0, 1.0]
    position = locate(fit, [0.0, 2.0, 5.0])
    assert position.distance.tolist() == [2.25, 1.0, 4.0]
    assert position.stronger.tolist() == [True, False, False], "a lower capability is a lower loss"
    compute = replace(fit, law=SigmoidLaw(0.5, 0.0, 0.0))
    assert locate(compute, [0.0, 2.0, 5.0]).stronger.tolist() == [False, False, True], "more compute is stronger"


def test_each_of_several_models_gets_the_caution_of_its_own_position():
    fit = fit_with(errors([0.03, -0.05, 0.04], ["a", "a", "a"]))
    capability = np.array([2.0, 0.5, 5.0, 2.0])
    position = Position(np.ones(4), np.array([False, True, False, True]), np.array([False, False, False, True]))
    accuracy = capability / 10
    distribution = score_distribution(fit, accuracy, position)
    predicted = Predictions(capability, accuracy, *distribution.interval(0.9), position, distribution)
    assert [caution_on(fit, predicted, i) for i in range(4)] == [
        "",
        "extrapolation: stronger than every training model, by 25% of their range",
        "extrapolation: weaker than every training model, by 100% of their range",
        "extrapolation: a lower mean loss than every training model; "
        "all training models are of family a, this one is not: the interval is a guess",
    ]


def test_an_accuracy_outside_0_to_1_has_the_angle_of_the_end():
    assert_allclose(angle([-0.1, 0.0, 1.0, 1.2]), [0.0, 0.0, np.pi / 2, np.pi / 2])


def test_a_model_is_located_by_its_profile_as_well():
    """Two tokens; the training models lie along e^(0, 0), with unit covariance, and their best mean loss is 1."""
    profile = LossProfile(np.array([0, 1]), np.zeros(2), np.eye(2), typical=2.0, usual=1.5, strongest=1.0)
    fit = replace(fit_with(THREE), profile=profile)
    nats = np.exp(np.array([[0.0, 0.0], [2.0, -2.0], [-1.0, -1.0]])).astype(np.float32)
    position = locate(fit, fit.capability.of(nats, ModelMetadata.of([ModelInfo(m) for m in "abc"], [])), nats)
    assert_allclose(position.distance, [1.0, 4.0, (1 + (1 - np.exp(-1)) / 2) ** 2], rtol=1e-6)
    assert position.stronger.tolist() == [False, False, True]


def test_every_other_capability_is_infinitely_far_from_a_single_one():
    fit = replace(fit_with(THREE), range=(2.0, 2.0))
    assert distance(fit, [0.0, 2.0, 4.0]).tolist() == [np.inf, 0.0, np.inf]
    low, high = interval(fit, [0.5, 0.5], locate(fit, [0.0, 4.0]))
    assert low.tolist() == [0.0, 0.0]
    assert high.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("span", "apart"), [((0.0, 0.0), False), ((1e3, 1e3 + 1e-4), False), ((1e3, 1e3 + 1e-2), True), ((0.0, 1e-9), True)]
)
def test_capabilities_are_apart_by_more_than_rounding(span, apart):
    assert replace(fit_with(THREE), range=span).has_range is apart


def test_coverage_counts_errors_inside_the_interval_of_the_other_families():
    """Of b and c alone an interval reaches 0.44, of a and c and of a and b much further than any error."""
    assert out_of_fold_coverage(fit_with(errors([0.7, 0.1, 0.1], ["a", "b", "c"]))) == pytest.approx(2 / 3)


def test_coverage_of_two_families_is_not_known():
    assert np.isnan(out_of_fold_coverage(fit_with(errors([0.1, 0.2, 0.3], ["a", "b", "b"]))))


def test_the_spread_is_in_accuracy():
    spread = spread_of(fit_with(THREE))
    squares = THREE.errors**2
    assert spread.scale == pytest.approx(np.sqrt(((squares[0] + squares[1]) / 2 + squares[2] + squares[3]) / 3))
    assert spread.half_width == pytest.approx(HALF, rel=0.02), "at 0.5 an angle is as large as the accuracy"
    assert spread.families == 3
    assert np.isfinite(spread_of(fit_with(errors([0.1, 0.2], ["a", "b"]))).half_width), "two families are enough"


def test_errors_of_version_0_1_0_have_no_accuracies_and_count_as_around_one_half():
    old = OutOfFoldErrors(THREE.errors, THREE.families, "by hand")
    assert ends(fit_with(old))[0] == pytest.approx(HALF, rel=0.01)


def test_without_errors_there_is_no_spread_and_no_family():
    spread = spread_of(fit_with(NO_ERRORS))
    assert np.isnan([spread.scale, spread.half_width]).all()
    assert spread.families == 0


def of_families(*names: str) -> ModelMetadata:
    """Metadata of models, one of each family."""
    return ModelMetadata.of([ModelInfo(f"model of {name}", name) for name in names], [])


def test_one_family_says_little_about_a_model_of_another():
    fit = fit_with(errors([0.03, -0.05, 0.04, 0.0], ["a"] * 4))
    same, other = (locate(fit, [2.0], metadata=of_families(name)) for name in ("a", "b"))
    narrow, wide = (angle(interval(fit, [0.5], position)[1])[0] - angle(0.5) for position in (same, other))
    reach = narrow / np.sqrt(0.00125)  # the mean square of the errors
    assert wide == pytest.approx(reach * np.sqrt(OF_OTHER_FAMILIES**2 * 0.00125 + USUAL_FAMILY_ERROR**2))
    joined = fit_with(errors([0.03, -0.05], ["a + b"] * 2))
    assert locate(joined, [2.0] * 3, metadata=of_families("a", "b", "c")).other_family.tolist() == [False, False, True]
    two = fit_with(THREE)
    assert not np.any(locate(two, [2.0], metadata=of_families("elsewhere")).other_family)


def test_interval_and_probability_are_of_one_distribution():
    """At the ends of a 90% interval the probability of at least that score is 95% and 5%, also near chance."""
    for fit, accuracy, position in (
        (fit_with(THREE), 0.4, Position(np.ones(1), np.zeros(1, bool), np.zeros(1, bool))),
        (fit_with(THREE, chance=0.25), 0.25, Position(np.full(1, 4.0), np.ones(1, bool), np.zeros(1, bool))),
    ):
        scores = score_distribution(fit, [accuracy], position)
        for level in (0.9, 0.5):
            low, high = scores.interval(level)
            assert scores.probability_above(low) == pytest.approx(0.5 + level / 2)
            assert scores.probability_above(high) == pytest.approx(0.5 - level / 2)
        assert scores.probability_above(accuracy) == pytest.approx(0.5)
        falling = [float(scores.probability_above(score)[0]) for score in np.linspace(0, 1, 101)]
        assert (np.diff(falling) <= 0).all()
        assert scores.probability_above(0.0) == 1.0
        assert scores.probability_above(1.01) == 0.0


def test_without_errors_no_probability_is_known():
    fit = fit_with(errors([], []))
    assert np.isnan(score_distribution(fit, [0.5], locate(fit, [2.0])).probability_above(0.6)).all()


@pytest.mark.parametrize(("low", "high"), [(0.3, 0.6), (-0.05, 0.6), (0.3, 1.1)])
def test_a_distribution_between_given_ends_has_them_as_its_interval(low, high):
    """An end below 0 is that of a distribution which is cut off there, so the scale is not that of the end at 0."""
    scores = between(np.array([0.45]), np.array([low]), np.array([high]), level=0.8, freedom=4)
    assert np.concatenate(scores.interval(0.8)) == pytest.approx(np.clip([low, high], 0, 1))
    assert np.concatenate(scores.moved(0.1, 2.0).interval(0.8)).tolist() != pytest.approx([low, high])
    if low < 0:
        assert scores.below > angle(0.45) / 1.6
