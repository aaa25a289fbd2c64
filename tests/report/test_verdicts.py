"""Sentences on worlds and forecasts whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchcast.evaluation.compare import compare
from benchcast.evaluation.comparison import Comparison, HeldOutForecasts
from benchcast.evaluation.ranking import points, verdict_on
from synthetic import Plan, make_world, write_study


@pytest.fixture(scope="module")
def comparison(synthetic_folder) -> Comparison:
    from benchcast.study.study import Study

    return compare(Study.open(synthetic_folder), methods=("salience", "label-token", "all-token", "constant"))


def with_errors(comparison: Comparison, task: str, errors: dict[str, np.ndarray], half: float = 0.1) -> Comparison:
    """The comparison with other forecasts: observed plus these errors, in an interval of this half width."""
    held = dict(comparison.held_out)
    for method, error in errors.items():
        old = held[task, method]
        forecast = old.observed + error
        held[task, method] = replace(old, forecast=forecast, low=forecast - half, high=forecast + half)
    return replace(comparison, held_out=held, noise=dict.fromkeys(comparison.tasks, math.nan))


def spread(comparison: Comparison, task: str, size: float) -> np.ndarray:
    """Errors of one size, first up, then down, so that no family leans."""
    held = comparison.held_out[task, "salience"]
    order = np.argsort(held.families, kind="stable")
    error = np.empty(len(order))
    error[order] = size * np.where(np.arange(len(order)) % 2, -1, 1)
    return error


OVER_FAMILIES = "90% interval over families"


def test_a_better_method_is_said_to_be_better_by_how_much(comparison):
    even = {"salience": 0.01, "label-token": 0.02, "all-token": 0.04, "constant": 0.1}
    changed = with_errors(comparison, "task0", {m: spread(comparison, "task0", s) for m, s in even.items()})
    said = verdict_on(changed, "task0")
    n = len(changed.held_out["task0", "salience"].observed)
    assert said.good == f"Mean absolute error 1.0 point over {n} unseen models"
    ratio = f"0.25 ({OVER_FAMILIES} 0.25 – 0.25)"
    assert said.against == f"squared error ÷ that of label-token, the best baseline: {ratio}"
    assert "the 90% intervals contain 100% of the scores" in said.trust
    assert said.sentence.endswith(".")


def test_a_worse_method_is_said_to_be_worse_and_the_best_is_named(comparison):
    sizes = {"salience": 0.01, "label-token": 0.02, "all-token": 0.03, "constant": 0.1}
    changed = with_errors(comparison, "task0", {m: spread(comparison, "task0", s) for m, s in sizes.items()})
    said = verdict_on(changed, "task0", "all-token").against
    assert said.startswith(f"squared error ÷ that of label-token, the best baseline: 2.25 ({OVER_FAMILIES} 2.25 –")
    assert f"; salience is clearly better: 9.00 ({OVER_FAMILIES} 9.00 – 9.00)" in said
    assert "salience is clearly better" in verdict_on(changed, "task0", "label-token").against


def test_a_lead_that_depends_on_the_families_drawn_is_no_clear_difference(comparison):
    error = spread(comparison, "task0", 0.02)
    other = error.copy()
    other[::2] *= 2
    other[1::2] /= 2
    changed = with_errors(comparison, "task0", {"salience": error, "label-token": other, "all-token": 5 * error})
    said = verdict_on(changed, "task0").against
    assert said.endswith(", no clear difference")
    assert "clearly better" not in verdict_on(changed, "task0", "label-token").against


def test_few_families_have_no_interval_and_no_claim(comparison):
    held = {
        k: replace(h, families=np.array(["a", "b"])[np.arange(len(h.models)) % 2])
        for k, h in comparison.held_out.items()
    }
    said = verdict_on(replace(comparison, held_out=held), "task0").against
    assert "(2 held-out families are too few for an interval)" in said
    assert "clear" not in said


def test_a_family_that_leans_is_named_with_its_side(comparison):
    error = spread(comparison, "task0", 0.01)
    families = comparison.held_out["task0", "salience"].families
    error[families == "family2"] = -0.08
    said = verdict_on(with_errors(comparison, "task0", {"salience": error}), "task0").trust
    assert "largest bias: family2, 8.0 points too low on its only model" in said


def test_intervals_that_fail_are_called_out(comparison):
    changed = with_errors(comparison, "task0", {"salience": spread(comparison, "task0", 0.05)}, half=0.01)
    assert (
        "the intervals are too narrow: the 90% intervals contain 0% of the scores" in verdict_on(changed, "task0").trust
    )


def test_intervals_of_stated_coverage_are_rarely_called_too_narrow(comparison):
    """Families of ten models whose errors are correlated; 90% of them are inside their interval."""
    rng = np.random.default_rng(3)
    for families in (3, 5, 9, 20):
        said = 0
        for _ in range(200):
            shared, own = np.repeat(rng.normal(size=families), 10), rng.normal(size=10 * families)
            error = 0.1 * (math.sqrt(0.7) * shared + math.sqrt(0.3) * own)
            said += "too narrow" in trust_in(comparison, error, half=0.1645)
        assert said / 200 <= 0.03, f"{families} families"


def test_intervals_of_half_their_width_are_mostly_called_too_narrow(comparison):
    rng = np.random.default_rng(4)
    errors = [0.1 * np.repeat(rng.normal(size=12), 10) + 0.05 * rng.normal(size=120) for _ in range(100)]
    assert sum("too narrow" in trust_in(comparison, error, half=0.08) for error in errors) >= 90


def trust_in(comparison: Comparison, error: np.ndarray, *, half: float) -> str:
    """What is said of intervals of this half width around forecasts with these errors."""
    return verdict_on(held_with(comparison, error, half=half), "task0").trust


def held_with(comparison: Comparison, error: np.ndarray, *, half: float) -> Comparison:
    """The comparison with these errors on all tasks, ten models to a family."""
    models, nothing = tuple(f"m{i}" for i in range(len(error))), np.zeros(len(error))
    families = np.repeat([f"family{i}" for i in range(len(error) // 10)], 10)
    held = HeldOutForecasts(
        models, families, nothing + 0.5, error + 0.5, error + 0.5 - half, error + 0.5 + half, nothing
    )
    return replace(comparison, held_out=dict.fromkeys(comparison.held_out, held))


def test_errors_at_the_noise_floor_are_said_to_be_as_small_as_scores_allow(comparison):
    changed = with_errors(comparison, "task0", {"salience": spread(comparison, "task0", 0.02)})
    assert "noise" not in verdict_on(changed, "task0").good
    noisy = replace(changed, noise=dict.fromkeys(changed.tasks, 0.02**2))
    assert "close to the noise of the scores" in verdict_on(noisy, "task0").good


def test_errors_of_twice_the_noise_are_not_close_to_it(comparison):
    """Items of different difficulty, the same for all models: 0.62 of the binomial variance is a score's own noise."""
    rng = np.random.default_rng(6)
    difficulty, ability = rng.normal(0, 1.9, size=4000), rng.normal(0, 0.7, size=(30, 1))
    right = 1 / (1 + np.exp(difficulty - ability))
    score = right.mean(axis=1)
    own = float((right * (1 - right)).mean())
    binomial = float((score * (1 - score)).mean())
    assert own / binomial == pytest.approx(0.62, abs=0.05), "the world is as planned"
    for size, close in ((1.0, True), (2.2, False)):
        error = np.tile([1.0, -1.0], 15) * math.sqrt(size * own / 4000)
        held = held_with(comparison, error, half=0.1)
        noise = dict.fromkeys(comparison.tasks, binomial / 4000)
        said = verdict_on(replace(held, noise=noise), "task0").good
        assert ("close to the noise" in said) == close, f"{size} times the noise of a score"


def test_few_models_carry_no_claims(comparison):
    def first_three(held: HeldOutForecasts) -> HeldOutForecasts:
        cut = {k: getattr(held, k)[:3] for k in ("families", "observed", "forecast", "low", "high", "capability")}
        return HeldOutForecasts(held.models[:3], **cut)

    changed = replace(comparison, held_out={k: first_three(h) for k, h in comparison.held_out.items()})
    assert "fewer than 5 unseen models" in verdict_on(changed, "task0").trust
    assert "largest bias" not in verdict_on(changed, "task0").trust


def test_no_forecast_is_said_plainly(comparison):
    changed = with_errors(
        comparison, "task0", {"salience": np.full(len(comparison.held_out["task0", "salience"].observed), np.nan)}
    )
    assert verdict_on(changed, "task0").sentence == "salience gives no forecast of this task."


def test_models_beyond_the_training_range_are_counted(tmp_path):
    """By size, the strongest models are held out: in an easy world some lie past everything learned from."""
    world = make_world(Plan(seed=5, families=6, sizes=3, checkpoints=1, tasks=1, texts_per_source=6, mixture=0.0))
    comparison = compare(write_study(world, tmp_path / "study"), methods=("all-token",))
    fit, dataset = comparison.fits["task0", "all-token"][0], comparison.dataset
    beyond = (
        fit.capability.of(dataset.nats[comparison.folds[0].test], dataset.metadata.take(comparison.folds[0].test))
        < fit.range[0]
    )
    assert beyond.sum() > 1, "the world is as planned"
    assert f"{beyond.sum()} of the {len(beyond)} are outside" in verdict_on(comparison, "task0", "all-token").trust


def test_points_count_in_hundredths():
    assert points(0.0123) == "1.2 points"
    assert points(0.0101) == "1.0 point"
