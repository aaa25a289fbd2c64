"""Algorithm 2: its gradient against finite differences, and that how the work is laid out changes nothing."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from operator import add

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from benchcast.losses import dataset as dataset_module
from benchcast.methods.features import Inputs, prepare_inputs
from benchcast.methods.head import ACTIVATIONS, Head, map_arrays, new_head, on_raw_features, on_standardised_features
from benchcast.methods.law import fit_laws, sigmoid
from benchcast.methods.paper import (
    DescentSettings,
    DescentState,
    HistoryRow,
    Problems,
    descend,
    epoch,
    paper,
    start,
    token_weights,
)
from benchcast.methods.products import RowBlock, TokenBlock
from benchcast.splits import make_folds

N, D, M = 40, 5, 14
LEVEL = np.random.default_rng(4).permutation(np.linspace(0.5, 1.5, M))  # of each model's losses
NATS = np.random.default_rng(6).gamma(2.0, 1.0, (M, N)) * LEVEL[:, None]
SHAPES = list(product(sorted(ACTIVATIONS), (0, 3), (True, False)))
QUICK = DescentSettings(steps=6, rates=(1e-2,))
# What leaves the forecast as it is (all weights a little larger, say) has a gradient of rounding errors, and Adam
# makes full steps of those: heads are compared under SGD, under Adam only what they forecast.
SGD_RATE = 300.0

ARRAYS = ("accuracy", "chance", "train", "validation", "rate")  # of a Problems


def make_inputs(*, block: int = N, standardise: bool = True, dims: int = D) -> Inputs:
    rng = np.random.default_rng(0)
    features = rng.normal(2.0, 3.0, (N, dims))
    blocks = [
        TokenBlock(a, RowBlock(features[a : a + block]), RowBlock(NATS[:, a : a + block].T)) for a in range(0, N, block)
    ]
    mean, spread = (features.mean(axis=0), features.std(axis=0)) if standardise else (np.zeros(dims), np.ones(dims))
    return Inputs(blocks, 100.0, mean, spread)


def make_problems(count: int = 3, *, faster: float = 1.0) -> Problems:
    rng = np.random.default_rng(1)
    chance = np.resize([0.25, 0.0, 0.5], count)
    share = sigmoid(4 * (1 - LEVEL) + rng.normal(0, 0.4, (count, M)))
    accuracy = chance[:, None] + (1 - chance[:, None]) * share
    train = np.ones((count, M))
    train[:, ::4] = 0
    rate = faster * np.resize([1e-2, 3e-2, 1e-3], count)
    return Problems(accuracy, chance, train, 1 - train, rate)


def random_head(inputs: Inputs, settings: DescentSettings) -> Head:
    rng = np.random.default_rng(2)
    head = new_head(inputs.mean, 3, activation=settings.activation, hidden=settings.hidden, seed=0)
    return map_arrays(lambda x: rng.normal(0.0, 0.7, x.shape), head)


def capability_of(inputs: Inputs, head: Head, settings: DescentSettings) -> np.ndarray:
    return (NATS @ token_weights(inputs, head, settings)).T / inputs.characters


def numeric(function, head: Head, step: float) -> Head:
    """Central differences of a scalar function of a head."""
    gradient = map_arrays(np.zeros_like, head)
    for name, x in head._asdict().items():
        for at in np.ndindex(x.shape):
            moved = [head._replace(**{name: x.copy()}) for _ in range(2)]
            getattr(moved[0], name)[at] += step
            getattr(moved[1], name)[at] -= step
            getattr(gradient, name)[at] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return gradient


@pytest.mark.parametrize(("activation", "hidden", "standardise"), SHAPES)
def test_the_way_back_is_the_derivative_of_the_way_forward(activation, hidden, standardise):
    settings = DescentSettings(activation=activation, hidden=hidden, standardise=standardise)
    inputs = make_inputs(standardise=standardise, block=16)
    head = random_head(inputs, settings)
    pull = np.random.default_rng(3).normal(size=(3, M))
    raw, parts = on_raw_features(head, inputs.mean, inputs.spread), []
    for block in inputs.blocks:
        _, back = raw.forward(block.features, ACTIVATIONS[activation])
        parts.append(raw.backward(block.features, back, block.losses.project(pull / inputs.characters)))
    gradient = on_standardised_features(reduce(partial(map_arrays, add), parts), inputs.mean, inputs.spread)
    expected = numeric(lambda h: float(np.sum(pull * capability_of(inputs, h, settings))), head, 1e-6)
    for mine, theirs in zip(gradient, expected, strict=True):
        scale = np.abs(theirs).max()
        assert scale > 0
        assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize("hidden", [0, 3])
def test_with_the_law_refitted_its_own_derivative_drops_out(hidden):
    """A step of SGD follows the gradient of the error with the law fitted again, which finite differences give."""
    settings = DescentSettings(hidden=hidden, optimizer="sgd")
    inputs, problems = make_inputs(block=16), make_problems()
    head = random_head(inputs, settings)

    def best_laws(h: Head):
        c = capability_of(inputs, h, settings)
        return fit_laws(c, problems.accuracy, problems.chance, weight=problems.train, steps=2000)

    def error(h: Head) -> float:
        forecast = best_laws(h).accuracy(capability_of(inputs, h, settings), problems.chance)
        return float(np.sum(problems.train * (forecast - problems.accuracy) ** 2))

    state = start(inputs, problems, settings)._replace(head=head, laws=best_laws(head))
    after, _ = epoch(inputs, problems, settings, state)
    expected = numeric(error, head, 1e-4)
    for x, moved, rate, gradient in zip(head, after.head, head.per_problem(problems.rate), expected, strict=True):
        assert_allclose((x - moved) / rate, gradient, rtol=1e-2, atol=2e-3 * np.abs(gradient).max())


@pytest.mark.parametrize(("activation", "hidden"), list(product(sorted(ACTIVATIONS), (0, 3))))
def test_standardising_is_folded_into_the_head(activation, hidden):
    settings = DescentSettings(activation=activation, hidden=hidden)
    inputs = make_inputs()
    head = random_head(inputs, settings)
    ready = [replace(b, features=RowBlock((b.features.values - inputs.mean) / inputs.spread)) for b in inputs.blocks]
    plain = replace(inputs, blocks=ready, mean=np.zeros(D), spread=np.ones(D))
    assert_allclose(token_weights(inputs, head, settings), token_weights(plain, head, settings), rtol=1e-10, atol=1e-10)


def as_torch(record):
    changed = {
        n: torch.from_numpy(getattr(record, n)) for n in record.__slots__ if isinstance(getattr(record, n), np.ndarray)
    }
    if isinstance(record, Inputs):
        changed["blocks"] = [
            TokenBlock(b.start, *(RowBlock(torch.from_numpy(part.values)) for part in (b.features, b.losses)))
            for b in record.blocks
        ]
    return replace(record, **changed)


Run = tuple[DescentState, list[HistoryRow]]


def assert_alike(one: Run, two: Run, optimizer: str) -> None:
    """Two runs of the same problems came to the same."""
    tight = optimizer == "sgd"
    for a, b in zip(one[1], two[1], strict=True):
        assert_allclose(b.validation_mse, a.validation_mse, rtol=1e-4 if tight else 2e-2)
    if tight:
        assert np.asarray(two[0].best_step).tolist() == np.asarray(one[0].best_step).tolist()
        for x, y in zip(one[0].best, two[0].best, strict=True):
            assert_allclose(y, x, rtol=1e-4, atol=1e-5)


def problems_for(optimizer: str) -> Problems:
    return make_problems(faster=SGD_RATE if optimizer == "sgd" else 1.0)


@pytest.mark.parametrize(("optimizer", "hidden"), list(product(("adam", "sgd"), (0, 3))))
def test_numpy_and_torch_descend_alike(optimizer, hidden):
    settings = replace(QUICK, optimizer=optimizer, hidden=hidden)
    inputs, problems = make_inputs(block=16), problems_for(optimizer)
    mine = descend(inputs, problems, settings)
    other = descend(as_torch(inputs), as_torch(problems), settings)
    assert isinstance(other[0].best.weight, torch.Tensor)
    history = mine[1]
    assert not np.allclose(history[-1].capability, history[0].capability, rtol=1e-3), "heads moved"
    assert_alike(mine, other, optimizer)


@pytest.mark.parametrize(
    ("optimizer", "hidden", "dims"),
    [
        ("adam", 0, 5),
        ("sgd", 0, 5),
        ("sgd", 0, 3),
        ("adam", 2, 5),
        ("sgd", 2, 5),
        ("sgd", 1, 5),
        ("sgd", 2, 3),
    ],
)
def test_problems_side_by_side_are_each_problem_alone(optimizer, hidden, dims):
    settings = replace(QUICK, optimizer=optimizer, hidden=hidden)
    inputs, problems = make_inputs(dims=dims), problems_for(optimizer)
    _, together = descend(inputs, problems, settings)
    for p in range(3):
        _, alone = descend(inputs, Problems(*(getattr(problems, n)[p : p + 1] for n in ARRAYS)), settings)
        for a, b in zip(alone, together, strict=True):
            assert_allclose(b.validation_mse[p], a.validation_mse[0], rtol=1e-4 if optimizer == "sgd" else 2e-2)
            if optimizer == "sgd":
                assert_allclose(b.capability[p], a.capability[0], rtol=1e-4)


@pytest.mark.parametrize("block", [1, 7, 16])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_blocks_of_any_size_give_the_same_head(optimizer, block):
    settings = replace(QUICK, optimizer=optimizer)
    whole, parts = (descend(make_inputs(block=b), problems_for(optimizer), settings) for b in (N, block))
    assert_alike(whole, parts, optimizer)


def test_every_step_is_kept():
    _, history = descend(make_inputs(), make_problems(), QUICK)
    assert len(history) == QUICK.steps + 1
    for step in range(QUICK.steps + 1):
        _, until = descend(make_inputs(), make_problems(), replace(QUICK, steps=step))
        assert len(until) == step + 1
        assert until[-1].capability.tolist() == history[step].capability.tolist()


@pytest.mark.parametrize(
    "activation",
    ["sigmoid", "softplus", "identity", "relu"],
)
def test_the_first_step_weighs_all_tokens_alike(activation):
    inputs = make_inputs()
    _, history = descend(inputs, make_problems(), replace(QUICK, activation=activation))
    per_token = history[0].capability / (NATS.sum(axis=1) / inputs.characters)
    assert_allclose(per_token, per_token[0, 0], rtol=1e-9)
    assert per_token[0, 0] > 0


def test_the_step_kept_is_the_best_on_the_validation_models():
    inputs, problems = make_inputs(), make_problems()
    settings = replace(QUICK, steps=40)
    state, history = descend(inputs, problems, settings)
    validation = np.stack([row.validation_mse for row in history])
    train = np.stack([row.train_mse for row in history])
    assert state.best_step.tolist() == validation.argmin(axis=0).tolist()
    assert_allclose(state.best_error, validation.min(axis=0))
    assert (train.argmin(axis=0) != state.best_step).any(), "training error would have chosen otherwise"
    weights = token_weights(inputs, state.best, settings)
    for p, step in enumerate(state.best_step):
        kept = history[int(step)].capability[p]
        assert_allclose(NATS @ weights[:, p] / inputs.characters, kept, rtol=1e-9)


def test_descent_lowers_the_training_error():
    _, history = descend(make_inputs(), make_problems(), replace(QUICK, steps=60))
    assert (history[-1].train_mse < history[0].train_mse).all()


def test_models_outside_both_masks_are_not_looked_at():
    problems = make_problems()
    hidden = np.zeros_like(problems.train)
    hidden[:, 1] = 1
    masked = replace(problems, train=problems.train * (1 - hidden), validation=problems.validation * (1 - hidden))
    changed = replace(masked, accuracy=np.where(hidden > 0, 0.123, masked.accuracy))
    one, two = (descend(make_inputs(), p, QUICK)[0] for p in (masked, changed))
    assert_allclose(one.best.weight, two.best.weight, rtol=1e-12)


# ---- on a study's dataset


def test_how_features_are_read_changes_no_forecast(dataset, world, monkeypatch):
    folds = make_folds(world.models, "size")[1]
    before = paper(dataset, folds, settings=QUICK)[0][0]
    monkeypatch.setattr(dataset_module, "BLOCK_BYTES", 4 * 24 * 50)
    monkeypatch.setattr(sys.modules["benchcast.methods.features"], "KEEP_IN_MEMORY", 0)
    assert not isinstance(prepare_inputs(dataset, standardise=True).blocks, list)
    assert len(list(dataset.features.blocks())) > 5
    after = paper(dataset, folds, settings=QUICK)[0][0]
    assert_allclose(after.capability.weights, before.capability.weights, rtol=2e-3, atol=1e-4)


def test_features_are_standardised_by_their_own_mean_and_spread(dataset):
    inputs = prepare_inputs(dataset, standardise=True)
    values = np.asarray(dataset.features.values, np.float64)
    assert_allclose(inputs.mean, values.mean(axis=0), atol=1e-5)
    assert_allclose(inputs.spread, values.std(axis=0), rtol=1e-4)
    plain = prepare_inputs(dataset, standardise=False)
    assert not plain.mean.any()
    assert (plain.spread == 1).all()


def test_a_feature_that_never_varies_does_no_harm(dataset, world):
    values = np.hstack([dataset.features.values, np.full((len(dataset.features.values), 1), 7.0, np.float32)])
    flat = replace(dataset, features=replace(dataset.features, values=values))
    fit = paper(flat, make_folds(world.models, "size")[1], settings=QUICK)[0][0]
    assert np.isfinite(fit.capability.weights).all()


def test_paper_keeps_the_history_that_figure_6_needs(dataset, world):
    fit = paper(dataset, make_folds(world.models, "size")[1], settings=QUICK)[0][1]
    assert fit.history["step"].tolist() == [0, 1, 2, 5, 6]
    assert fit.history["capability"].shape == (5, len(dataset.models))
    assert len(fit.history["validation_mse"]) == QUICK.steps + 1
    assert fit.notes["best_step"] == fit.history["validation_mse"].argmin()


def test_without_validation_models_a_training_family_validates(dataset, world):
    fold = make_folds(world.models, "family")[1][0]
    assert not fold.validation.any()
    fit = paper(dataset, [fold], settings=QUICK)[0][0]
    (validating,) = np.unique(fit.out_of_fold.families)
    assert validating in dataset.families[fold.train]
    assert len(fit.out_of_fold.errors) == (dataset.families == validating).sum()
