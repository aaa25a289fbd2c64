"""The two closed or convex solvers against slow references."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from benchcast.methods.features import measure
from benchcast.methods.law import sigmoid
from benchcast.methods.ridge import STRENGTHS, loss_features, ridge, solve, token_weights
from benchcast.methods.stack.nonnegative import fit_nonnegative
from benchcast.splits import make_folds


@pytest.mark.parametrize(("models", "dims"), [(12, 5), (8, 30)])
def test_ridge_equals_a_dense_solve_at_every_strength(models, dims):
    rng = np.random.default_rng(0)
    G, target = rng.normal(3, 1, (models, dims)), rng.normal(size=models)
    learn = np.arange(models) < models - 2
    theta, log_odds = solve(G, target, learn)
    rows = G[learn] - G[learn].mean(axis=0)
    unit = np.trace(rows @ rows.T) / len(rows)
    for r, strength in enumerate(STRENGTHS):
        dense = np.linalg.solve(
            rows.T @ rows + strength * unit * np.eye(dims), rows.T @ (target[learn] - target[learn].mean())
        )
        assert_allclose(theta[:, r], dense, rtol=1e-5, atol=1e-7 * np.abs(dense).max())
        assert_allclose(
            log_odds[:, r], target[learn].mean() + (G - G[learn].mean(axis=0)) @ dense, rtol=1e-5, atol=1e-6
        )


def test_loss_features_are_the_losses_times_standardised_features(dataset):
    moments = measure(dataset, weigh=True)
    H = (np.asarray(dataset.features.values, np.float64) - moments.mean) / moments.spread
    naive = np.hstack([dataset.nats @ H, dataset.nats.sum(axis=1, keepdims=True)]) / dataset.characters
    assert_allclose(loss_features(dataset, moments), naive, rtol=1e-3, atol=1e-4)


def test_token_weights_reproduce_the_log_odds(dataset):
    moments = measure(dataset, weigh=True)
    G = loss_features(dataset, moments)
    theta = np.random.default_rng(1).normal(size=G.shape[1])
    capability = dataset.nats @ token_weights(dataset, moments, theta[:, None])[:, 0].astype(float) / dataset.characters
    assert_allclose(capability, G @ theta, rtol=1e-3, atol=1e-3)


def test_a_ridge_fit_chooses_the_strength_that_errs_least_on_validation_models(dataset, world):
    fold = make_folds(world.models, "size")[1][0]
    fit = ridge(dataset, [fold])[0][0]
    G, a = loss_features(dataset, measure(dataset, weigh=True)), dataset.accuracy[0]
    q = np.clip((a - 0.25) / 0.75, 0.01, 0.99)
    log_odds = solve(G, np.log(q / (1 - q)), fold.train)[1][fold.validation]
    errors = ((0.25 + 0.75 * sigmoid(log_odds) - a[fold.validation][:, None]) ** 2).mean(axis=0)
    assert fit.notes["strength"] == STRENGTHS[errors.argmin()]
    assert_allclose((fit.out_of_fold.errors**2).mean(), errors.min(), rtol=1e-6)


def test_ridge_never_looks_at_the_test_models(dataset, world):
    from dataclasses import replace

    fold = make_folds(world.models, "size")[1][0]
    blind = replace(dataset, accuracy=np.where(fold.test, 0.5, dataset.accuracy))
    assert_allclose(ridge(blind, [fold])[0][0].capability.weights, ridge(dataset, [fold])[0][0].capability.weights)


# ---- non-negative regression


def objective(params, x, q, omega, penalty):
    theta, b = params[:-1], params[-1]
    return 0.5 * np.sum(omega * (sigmoid(b - x @ theta) - q) ** 2) + 0.5 * np.sum(penalty * theta**2)


def slow(x, q, omega, penalty):
    """The least objective that L-BFGS-B finds from several starts; unusable columns are fixed at 0."""
    usable = np.isfinite(penalty)
    p = np.where(usable, penalty, 0.0)
    bounds = [(0, None if on else 0) for on in usable] + [(None, None)]
    starts = [np.append(np.where(usable, s, 0.0), b) for s in (0.0, 0.3, 2.0) for b in (0.0, 1.0, 4.0)]
    options = {"maxiter": 5000, "ftol": 1e-14, "gtol": 1e-10}
    fits = [minimize(objective, s, (x, q, omega, p), "L-BFGS-B", bounds=bounds, options=options) for s in starts]
    return min(fits, key=lambda f: f.fun)


def problem(seed: int, models: int = 20, columns: int = 4, problems: int = 3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(models, columns))
    truth = rng.uniform(0, 1.5, columns) * (rng.random(columns) > 0.4)
    q = np.clip(sigmoid(0.3 - x @ truth) + rng.normal(0, 0.05, models), 0, 1)
    omega = rng.random((problems, models)) * (rng.random((problems, models)) > 0.15)
    penalty = 10.0 ** rng.uniform(-4, -1, (problems, columns))
    penalty[0, 0], penalty[1, 1] = 0.0, np.inf
    return x, np.tile(q, (problems, 1)), omega / omega.sum(axis=1, keepdims=True), penalty


@pytest.mark.parametrize("seed", range(6))
def test_nonnegative_fits_agree_with_a_bounded_quasi_newton(seed):
    x, q, omega, penalty = problem(seed)
    theta, b = fit_nonnegative(x, q, omega, penalty=penalty)
    for i in range(3):
        p = np.where(np.isfinite(penalty[i]), penalty[i], 0.0)
        reference = slow(x, q[i], omega[i], penalty[i])
        mine = objective(np.append(theta[i], b[i]), x, q[i], omega[i], p)
        assert mine <= reference.fun * 1.002 + 1e-7
        assert_allclose(theta[i], reference.x[:-1], atol=0.05)


@pytest.mark.parametrize("seed", range(6))
def test_no_weight_is_ever_negative_and_an_infinite_penalty_means_unused(seed):
    x, q, omega, penalty = problem(seed)
    theta, _ = fit_nonnegative(-x, q, omega, penalty=penalty)  # turned round: most columns would like to be negative
    assert (theta >= 0).all()
    assert theta[1, 1] == 0.0
    unused = np.full_like(penalty, np.inf)
    theta, b = fit_nonnegative(x, q, omega, penalty=unused)
    assert not theta.any()
    assert np.isfinite(b).all()


def test_a_stronger_penalty_never_gives_larger_weights():
    x, q, omega, _ = problem(1)
    sizes = [
        np.sum(fit_nonnegative(x, q, omega, penalty=np.full((3, 4), p))[0] ** 2, axis=1) for p in (1e-4, 1e-2, 1.0)
    ]
    assert (sizes[0] > sizes[1]).all()
    assert (sizes[1] > sizes[2]).all()


def test_nonnegative_is_the_same_in_numpy_and_torch():
    *arrays, penalty = problem(2)
    mine = fit_nonnegative(*arrays, penalty=penalty)
    other = fit_nonnegative(*map(torch.from_numpy, arrays), penalty=torch.from_numpy(penalty))
    for a, b in zip(mine, other, strict=True):
        assert_allclose(b.numpy(), a, rtol=1e-6, atol=1e-8)


def test_models_of_weight_zero_do_not_count():
    x, q, omega, penalty = problem(3)
    off = omega[0] == 0
    assert off.any()
    x2 = x.copy()
    x2[off] += 5
    one, two = (fit_nonnegative(v, q[:1], omega[:1], penalty=penalty[:1]) for v in (x, x2))
    assert_allclose(one[0], two[0], rtol=1e-9)


def test_a_problem_is_solved_alike_alone_and_among_others():
    x, q, omega, penalty = problem(4, models=30, columns=12, problems=150)
    penalty[::3, 6:] = np.inf  # fewer columns than the others
    theta, b = fit_nonnegative(x, q, omega, penalty=penalty)
    for i in (0, 1, 75, 149):
        alone, offset = fit_nonnegative(x, q[i : i + 1], omega[i : i + 1], penalty=penalty[i : i + 1])
        assert_allclose(alone[0], theta[i], rtol=1e-6, atol=1e-9)
        assert_allclose(offset[0], b[i], rtol=1e-6)
