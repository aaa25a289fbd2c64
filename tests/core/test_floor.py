"""The floor of a task, which `stack` and `salience` learn where scores lie below nominal chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import benchcast as bc
from benchcast.losses.dataset import Dataset
from benchcast.methods import METHODS
from benchcast.methods.stack.floor import possible_floors
from benchcast.methods.stack.hidden_sets import TaskScores
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.task_fit import TaskFit
from benchcast.splits import Fold
from synthetic import Plan, make_world
from worlds import make_dataset


def world(floor: float, *, seed: int = 0) -> Dataset:
    """Six families; chance is 0.25, and models that know nothing score `floor`."""
    drawn = make_world(Plan(seed=seed, families=6, sizes=4, checkpoints=3, tasks=1, texts_per_source=15, floor=floor))
    return make_dataset(drawn)


def fit(dataset: Dataset, method: str = "stack") -> TaskFit:
    return METHODS[method].learn(dataset, [Fold.of_all(len(dataset.models))])[0][0]


def scores_of(dataset: Dataset) -> TaskScores:
    return TaskScores.of(dataset, Fold.of_all(len(dataset.models)), 0)


@pytest.mark.parametrize("method", ["stack", "salience"])
def test_a_floor_below_chance_is_learned_and_chance_stays_nominal(method) -> None:
    learned = fit(world(0.05), method)
    assert learned.law.chance < 0.2
    assert learned.task.chance == 0.25


@pytest.mark.parametrize("seed", range(4))
def test_chance_is_the_floor_where_scores_do_not_say_otherwise(seed) -> None:
    assert fit(world(0.25, seed=seed)).law.chance == 0.25


def test_a_learned_floor_forecasts_an_unseen_family_better_than_nominal_chance() -> None:
    dataset = world(0.05)
    test = dataset.families == dataset.families[-1]
    fold = Fold(~test, np.zeros_like(test), test)

    def error(of: Dataset) -> float:
        forecast = METHODS["stack"].learn(of, [fold])[0][0].forecast(of.nats, of.metadata)
        return float(((forecast - dataset.accuracy[0])[test] ** 2).mean())

    clipped = replace(dataset, accuracy=np.maximum(dataset.accuracy, 0.25))
    assert error(dataset) < 0.5 * error(clipped)


def test_a_forecast_may_lie_below_chance() -> None:
    dataset = world(0.05)
    weakest = np.argsort(dataset.accuracy[0])[:3]
    learned = fit(dataset)
    assert learned.forecast(dataset.nats[weakest], dataset.metadata.take(weakest)).max() < 0.2


def test_scores_below_the_floor_are_not_clipped() -> None:
    dataset = world(0.05)
    scores = scores_of(dataset)
    assert scores.q.min() == pytest.approx((dataset.accuracy[0].min() - 0.25) / 0.75)
    assert scores.q.min() < 0


def test_floors_lie_between_chance_and_zero() -> None:
    floors = possible_floors(scores_of(world(0.05)), StackSettings())
    assert floors == sorted(floors, reverse=True)
    assert (floors[0], floors[-1]) == (0.25, 0.0)


def test_no_lower_floor_is_tried_where_the_weakest_models_are_clearly_above_chance() -> None:
    dataset = world(0.25)
    weakest = np.sort(dataset.accuracy[0])[: len(dataset.models) // 5].mean()
    for mean, lower in ((0.28, False), (0.26, True)):  # 500 items: one standard error is 0.019
        shifted = replace(dataset, accuracy=dataset.accuracy + mean - weakest)
        assert (len(possible_floors(scores_of(shifted), StackSettings())) > 1) is lower


def test_an_open_task_has_floors_below_zero_only_if_scores_are() -> None:
    dataset = world(0.25)
    task = replace(dataset.tasks[0], chance=0.0)
    open_ended = replace(dataset, tasks=(task,))
    assert possible_floors(scores_of(open_ended), StackSettings()) == [0.0]
    centred = replace(open_ended, accuracy=dataset.accuracy - dataset.accuracy.min() - 0.1)
    assert possible_floors(scores_of(centred), StackSettings())[-1] == pytest.approx(-0.2)


def test_methods_without_a_floor_of_their_own_keep_nominal_chance() -> None:
    dataset = world(0.05)
    for name, method in METHODS.items():
        if name not in ("stack", "salience", "logistic-4", "two-step", "constant") and not method.needs_features:
            law = method.learn(dataset, [Fold.of_all(len(dataset.models))])[0][0].law
            assert law.failure or law.chance == 0.25, name


def test_a_stored_fit_keeps_its_floor(study, tmp_path) -> None:
    made = bc.fit(study, "task0")
    blend = made.task_fit.capability
    parts = tuple(replace(part, law=replace(part.law, chance=0.125)) for part in blend.parts)
    law = replace(made.task_fit.law, chance=0.125)
    lowered = replace(made.task_fit, law=law, capability=replace(blend, parts=parts))
    again = bc.load(replace(made, task_fit=lowered).save(tmp_path / "fit"))
    assert again.task_fit.law.chance == 0.125
    assert again.task_fit.task.chance == made.task_fit.task.chance
