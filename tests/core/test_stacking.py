"""Averaging and calibrating: the law bends only where left-out families say so, and they are left out indeed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchcast.law import sigmoid
from benchcast.methods.stacking import OutOfFoldLogOdds, stack
from benchcast.records import Bools

FAMILIES, MODELS = 8, 15


def judged(*, floor: float = 0.0, seed: int = 0, validation: int = 0) -> OutOfFoldLogOdds:
    """Three candidates that see the true log-odds with family noise of their own; scores never fall below a floor."""
    rng = np.random.default_rng(seed)
    families = np.repeat([f"f{i}" for i in range(FAMILIES)], MODELS)
    true = rng.uniform(-6, 4, len(families))
    noise = rng.normal(0, 0.3, (FAMILIES, 3)).repeat(MODELS, axis=0) + rng.normal(0, 0.1, (len(families), 3))
    q = floor + (1 - floor) * sigmoid(true) + rng.normal(0, 0.005, len(families))
    kept = np.arange(len(families)) % MODELS < validation
    rows = np.concatenate([np.arange(len(families)), np.flatnonzero(kept)])
    return OutOfFoldLogOdds(
        (true[:, None] + noise)[rows], np.clip(q, 0, 1)[rows], families[rows], np.arange(len(rows)) >= len(families)
    )


def hidden(seen: OutOfFoldLogOdds) -> list[Bools]:
    return [seen.families == f for f in np.unique(seen.families)]


@pytest.mark.parametrize("seed", range(5))
def test_where_a_sigmoid_is_the_truth_nothing_is_bent(seed: int) -> None:
    seen = judged(seed=seed)
    made = stack(seen, hidden(seen))
    assert made.calibration.curve is None
    assert made.calibration.slope == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_where_weak_models_score_by_luck_of_form_the_law_bends(seed: int) -> None:
    seen = judged(floor=0.12, seed=seed)
    made = stack(seen, hidden(seen))
    assert made.calibration.curve is not None
    assert made.saved > 0.1
    assert made.calibration.curve.slopes[0] < -0.5, "level where models are weak"


@pytest.mark.parametrize("validation", [0, 4])
def test_a_hidden_family_has_no_say_in_its_own_nested_forecasts(validation: int) -> None:
    seen = judged(floor=0.12, validation=validation)
    own = seen.families == "f3"
    other = replace(seen, q=np.where(own, np.clip(seen.q + 0.03, 0, 1), seen.q))
    before, after = (stack(x, hidden(x)).nested for x in (seen, other))
    np.testing.assert_array_equal(before[own], after[own])
    assert not np.array_equal(before[~own], after[~own])


def some(seen: OutOfFoldLogOdds, families: list[str]) -> OutOfFoldLogOdds:
    rows = np.isin(seen.families, families)
    return OutOfFoldLogOdds(seen.log_odds[rows], seen.q[rows], seen.families[rows], seen.validation[rows])


@pytest.mark.parametrize("floor", [0.0, 0.12])
def test_two_families_are_enough_for_a_forecast_but_not_for_a_bend(floor: float) -> None:
    two = some(judged(floor=floor), ["f0", "f1"])
    made = stack(two, hidden(two))
    assert made.calibration.curve is None
    assert np.isfinite(made.nested).all()


def test_a_single_family_is_cut_into_handfuls_and_does_not_bend() -> None:
    one = some(judged(floor=0.12), ["f0"])
    sets = [np.arange(MODELS) % 5 == i for i in range(5)]
    made = stack(one, sets)
    assert made.calibration.curve is None
    assert np.isfinite(made.nested).all()


def test_scores_that_are_all_the_same_are_not_bent() -> None:
    flat = replace(judged(), q=np.zeros(FAMILIES * MODELS))
    made = stack(flat, hidden(flat))
    assert np.isfinite(made.share).all()
    assert made.calibration.curve is None


def test_weights_are_one_in_all_where_only_the_hidden_family_has_validation_models() -> None:
    seen = judged(validation=4)
    only = OutOfFoldLogOdds(seen.log_odds, seen.q, np.where(seen.validation, "f3", seen.families), seen.validation)
    assert only.weight(only.families == "f3").sum() == pytest.approx(1.0)
