"""`stack`: which models it is compared on, and that it follows signed truths that `salience` cannot."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchcast.assemble import AssemblyOptions, assemble
from benchcast.dataset import Features, Fold
from benchcast.law import sigmoid
from benchcast.methods import METHODS
from benchcast.methods.problem import STRONGEST, Problem, strongest_models
from lab.synthetic import Plan, plant


def everything(models: int) -> Fold:
    nobody = np.zeros(models, bool)
    return Fold(~nobody, nobody, nobody)


def test_the_strongest_models_are_those_of_the_lowest_loss_in_nested_sets() -> None:
    loss = np.random.default_rng(0).permutation(40).astype(float)
    known = loss != 0  # the very strongest has no score
    sets = strongest_models(loss, known)
    assert [rows.sum() for rows in sets] == [round(share * 39) for share in STRONGEST]
    for rows in sets:
        assert loss[rows].max() < loss[known & ~rows].min()
    assert all((small <= large).all() for large, small in pairwise(sets))


def test_with_few_models_no_stronger_ones_are_hidden() -> None:
    assert strongest_models(np.arange(4.0), np.ones(4, bool)) == []


def test_validation_models_take_the_place_of_the_strongest(dataset) -> None:
    fold = everything(len(dataset.models))
    validation = np.arange(len(dataset.models)) % 4 == 3
    loss = dataset.nats.mean(axis=1)
    named = Problem.of(dataset, Fold(~validation, validation, fold.test), 0, mean_loss=loss)
    assert [rows.tolist() for rows in named.stronger] == [validation.tolist()]
    assert len(Problem.of(dataset, fold, 0, mean_loss=loss).stronger) == len(STRONGEST)
    assert Problem.of(dataset, fold, 0).stronger == []


def test_it_learns_a_difference_of_losses_which_no_weights_above_zero_can_express() -> None:
    """A score that rises with the loss on one source and falls with that on another."""
    drawn = plant(Plan(seed=3, families=8, sizes=5, checkpoints=3, tasks=2, texts_per_source=8))
    features = Features(drawn.features, drawn.edges, "planted")
    world = assemble(drawn.texts, drawn.losses, drawn.models, drawn.scores, drawn.tasks, AssemblyOptions(features))
    source = world.reference_tokens.source
    apart = world.nats[:, source == 0].mean(axis=1) - world.nats[:, source == 1].mean(axis=1)
    score = sigmoid(2 * (apart - apart.mean()) / apart.std())
    task = replace(world.tasks[0], chance=0.0)
    signed = replace(world, tasks=(task,), accuracy=score[None], n_items=world.n_items[:1])
    test = np.isin(signed.families, np.unique(signed.families)[:2])
    fold = Fold(~test, np.zeros(len(score), bool), test)

    def error(method: str) -> float:
        forecast = METHODS[method](signed, [fold])[0][0].forecast(signed.nats, signed.metadata)
        return float(((forecast - score)[test] ** 2).mean())

    assert error("stack") < 0.3 * error("salience")


def test_the_fit_is_one_weighted_loss_with_one_law(dataset) -> None:
    fit = METHODS["stack"](dataset, [everything(len(dataset.models))])[0][0]
    assert fit.reads == ("nats", "saturated")
    assert fit.law.calibration is None or fit.law.slope == pytest.approx(-1.0)
    assert sum(fit.notes["shares"].values()) == pytest.approx(1.0, abs=0.2)
