"""What the width of an interval depends on: chosen on left-out families, checked on simulated errors of new ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchcast.forecasts.intervals import Position, score_distribution, spread_of
from benchcast.losses.dataset import LossView
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.disagreement import Disagreement, main_directions
from benchcast.methods.interval_width import AS_BEFORE, angle, from_angle, squared_slope, with_width
from benchcast.methods.law import SigmoidLaw, sigmoid
from benchcast.methods.task_fit import IntervalWidth, OutOfFoldErrors, TaskFit
from benchcast.records import Task

PER_FAMILY = 12
CHANCE = 0.25
LEVEL = 0.9


def a_fit(errors: OutOfFoldErrors, *, method: str = "stack", width: IntervalWidth | None = None) -> TaskFit:
    return TaskFit(
        task=Task("t", CHANCE),
        method=method,
        capability=WeightedLoss(views=(LossView.NATS,), weights=np.ones((1, 2), np.float32), unit=2.0),
        law=SigmoidLaw(-1.0, 0.0, CHANCE),
        out_of_fold=errors,
        range=(1.0, 3.0),
        width=width,
    )


class World:
    """Models of families: their errors are as large as the law is steep, the candidates disagree, and they are far."""

    def __init__(self, seed: int, *, steep: float = 0.0, apart: float = 0.0, far: float = 0.0) -> None:
        self.rng, self.steep, self.apart, self.far = np.random.default_rng(seed), steep, apart, far
        self.law = SigmoidLaw(-1.0, 0.0, CHANCE)

    def draw(self, families: int, *, learned: int = 0) -> tuple[OutOfFoldErrors, np.ndarray]:
        """Errors of all models of some families, and their forecasts; a fit on `learned` families errs less."""
        size = families * PER_FAMILY
        family = np.repeat(np.arange(families), PER_FAMILY)
        forecast = CHANCE + (1 - CHANCE) * sigmoid(self.rng.normal(0, 2, size))
        disagreement = self.rng.gamma(1.0, 1.0, families)[family] * self.rng.gamma(4.0, 0.25, size)
        distance = 1 + 3 * self.rng.random(families)[family]
        slope = squared_slope(self.law, forecast)
        g = 1 - self.steep - self.apart + self.steep * slope + self.apart * slope * disagreement / 0.4
        noise = 0.9 * self.rng.normal(size=families)[family] + 0.4 * self.rng.normal(size=size)
        scale = 0.06 * np.sqrt(1 - 1 / learned if learned else 1.0)
        observed = from_angle(angle(forecast) - scale * np.sqrt(g * distance**self.far) * noise)
        errors = OutOfFoldErrors(
            errors=forecast - observed,
            families=np.array([f"f{k}" for k in family]),
            kind="simulated",
            models=tuple(f"m{i}" for i in range(size)),
            hidden_set=family,
            observed=observed,
            distance=distance,
            disagreement=disagreement,
        )
        return errors, forecast


def measure(world: World, families: int, worlds: int) -> dict[str, np.ndarray]:
    """Coverage and interval score of a new family, worlds × (chosen width, width by distance alone)."""
    covered, score = np.zeros((worlds, 2)), np.zeros((worlds, 2))
    for k in range(worlds):
        fit = with_width(a_fit(world.draw(families)[0]))
        new, forecast = world.draw(1, learned=families)
        nobody = np.zeros(len(forecast), bool)
        position = Position(new.distance, nobody, nobody, new.disagreement)
        for i, width in enumerate((fit.width, AS_BEFORE)):
            low, high = score_distribution(replace(fit, width=width), forecast, position).interval(LEVEL)
            outside = np.maximum(low - new.observed, 0) + np.maximum(new.observed - high, 0)
            covered[k, i] = np.mean(outside == 0)
            score[k, i] = np.mean(high - low + 2 / (1 - LEVEL) * outside)
    return {"covered": covered.mean(axis=0), "score": score.mean(axis=0)}


@pytest.mark.parametrize("families", [3, 5, 10])
@pytest.mark.parametrize("cause", [{}, {"steep": 0.9}, {"apart": 0.9}, {"steep": 0.5, "apart": 0.4, "far": 1.0}])
def test_intervals_cover_new_families_at_their_level(families, cause):
    found = measure(World(7, **cause), families, 200)
    assert 0.87 <= found["covered"][0] <= (0.93 if families > 3 else 0.95)
    assert found["score"][0] <= 1.02 * found["score"][1]


@pytest.mark.parametrize(("cause", "gain"), [({"steep": 0.9}, 0.93), ({"apart": 0.9}, 0.85)])
def test_intervals_are_sharper_where_errors_follow_the_slope_or_the_disagreement(cause, gain):
    found = measure(World(3, **cause), 10, 200)
    assert found["score"][0] < gain * found["score"][1]


def test_flat_and_steep_regions_are_covered_alike():
    """By distance alone, flat regions are covered by intervals that are too wide, steep ones by too narrow ones."""
    world = World(11, steep=0.9)
    shares = {width: [[], []] for width in ("chosen", "before")}
    for _ in range(300):
        fit = with_width(a_fit(world.draw(8)[0]))
        new, forecast = world.draw(1, learned=8)
        nobody, steep = np.zeros(len(forecast), bool), squared_slope(fit.law, forecast) > 0.3
        for name, width in (("chosen", fit.width), ("before", AS_BEFORE)):
            scores = score_distribution(
                replace(fit, width=width), forecast, Position(new.distance, nobody, nobody, new.disagreement)
            )
            low, high = scores.interval(LEVEL)
            inside = (low <= new.observed) & (new.observed <= high)
            shares[name][0] += [*inside[~steep]]
            shares[name][1] += [*inside[steep]]
    gap = {name: np.mean(flat) - np.mean(steep) for name, (flat, steep) in shares.items()}
    assert gap["before"] > 0.1
    assert abs(gap["chosen"]) < gap["before"] / 2


def test_probabilities_come_out():
    """Of needs whose stated probability is about 80%, about 80% are reached."""
    world = World(5, steep=0.5, apart=0.4)
    stated, reached = [], []
    for _ in range(400):
        fit = with_width(a_fit(world.draw(6)[0]))
        new, forecast = world.draw(1, learned=6)
        nobody = np.zeros(len(forecast), bool)
        scores = score_distribution(fit, forecast, Position(new.distance, nobody, nobody, new.disagreement))
        need = forecast + world.rng.normal(0, 0.05, len(forecast))
        stated += [*scores.probability_above(need)]
        reached += [*(new.observed >= need)]
    stated, reached = np.array(stated), np.array(reached)
    for low, high in ((0.02, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 0.98)):
        here = (stated > low) & (stated < high)
        assert reached[here].mean() == pytest.approx(stated[here].mean(), abs=0.07)


def one(fit: TaskFit, *, accuracy: float = 0.6, far: float = 1.0, stronger: bool = False, apart: float | None = 1.0):
    """Half the width of an interval, as an angle."""
    position = Position(np.array([far]), np.array([stronger]), np.array([False]), apart and np.array([apart]))
    scores = score_distribution(fit, [accuracy], position)
    return float(scores.below[0])


def by_hand(width: IntervalWidth | None, **given: object) -> TaskFit:
    return a_fit(World(1).draw(5)[0], width=width, **given)


def test_a_model_that_the_candidates_disagree_about_has_a_wider_interval():
    fit = by_hand(IntervalWidth(steepness=0.0, disagreement=0.6, distance=0.0))
    assert one(fit, apart=0.1) < one(fit, apart=1.0) < one(fit, apart=4.0)
    assert one(fit, apart=0.1) < one(fit, apart=None) < one(fit, apart=4.0), "unknown: as usual"


def test_where_the_law_is_flat_the_interval_is_narrower():
    fit = by_hand(IntervalWidth(steepness=0.9, disagreement=0.0, distance=0.0))
    assert one(fit, accuracy=CHANCE + 0.01) < one(fit, accuracy=0.4) < one(fit, accuracy=0.6)


def test_beyond_all_held_out_models_the_width_grows_with_the_distance():
    fit = by_hand(IntervalWidth(steepness=0.0, disagreement=0.3, distance=0.0))
    farthest = fit.out_of_fold.distance.max()
    assert one(fit, far=farthest) == pytest.approx(one(fit))
    assert one(fit, far=9 * farthest) == pytest.approx(3 * one(fit))
    assert one(fit, far=np.inf) == np.inf


def test_a_stronger_model_keeps_the_width_by_distance_alone():
    chosen = by_hand(IntervalWidth(steepness=0.6, disagreement=0.3, distance=0.0))
    before = replace(chosen, width=AS_BEFORE)
    assert one(chosen, far=4.0, stronger=True) == one(before, far=4.0, stronger=True)
    assert one(chosen, far=4.0) != one(before, far=4.0)


def test_only_methods_that_learn_weights_err_less_with_one_family_more():
    wide, learned = (one(by_hand(AS_BEFORE, method=m)) for m in ("label-token", "pls"))
    assert learned == pytest.approx(wide * np.sqrt(1 - 1 / 5))
    assert one(by_hand(None, method="label-token")) == pytest.approx(learned), "a fit of an older version keeps it"


def test_two_families_choose_no_width():
    assert with_width(a_fit(World(2, steep=0.9).draw(2)[0])).width == AS_BEFORE
    without = replace(World(2).draw(6)[0], disagreement=np.zeros(0))
    assert with_width(a_fit(without)).width == AS_BEFORE


def test_the_spread_is_the_mean_width_of_held_out_models():
    fit = by_hand(IntervalWidth(steepness=0.3, disagreement=0.3, distance=0.5))
    assert spread_of(fit).half_width == pytest.approx(spread_of(replace(fit, width=AS_BEFORE)).half_width, rel=0.5)


def test_directions_hold_the_variance_of_the_candidates():
    """With no more directions than needed, sums of squares are the variance of log-odds over shares."""
    rng = np.random.default_rng(0)
    rows, shares = 1.5 + rng.normal(size=(40, 4)), rng.dirichlet(np.ones(4))
    found = ((rows @ main_directions(rows, shares, np.full(40, 1 / 40)).T) ** 2).sum(axis=1)
    mean = rows @ shares
    np.testing.assert_allclose(found, (rows - mean[:, None]) ** 2 @ shares, rtol=1e-9)


def test_half_precision_is_enough_for_the_directions():
    rng = np.random.default_rng(1)
    weights = (rng.normal(size=(3, 1, 500)) * 1e-5).astype(np.float32)
    nats = rng.gamma(2.0, 1.0, (6, 500)).astype(np.float32)
    exact = ((weights[:, 0].astype(float) @ nats.T / 3.0 + 0.1) ** 2).sum(axis=0)
    directions = Disagreement.of_directions(weights, np.zeros((3, 1, 0), np.float32), np.full(3, 0.1))
    found = directions.of(nats, None, WeightedLoss(views=(LossView.NATS,), weights=weights[0], unit=3.0))
    np.testing.assert_allclose(found, exact, rtol=1e-3)
