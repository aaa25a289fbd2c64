"""Iterative solvers of many problems at once, on numpy arrays or torch tensors: least squares, main directions; ranks.

Axes: … problems, M residuals, K parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from benchcast.devices import Array, on_host
from benchcast.records import Floats

Evaluate = Callable[[Array], tuple[Array, Array]]  # parameters (… × K) → residuals (… × M), jacobian (… × K × M)


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """The solution of every problem."""

    theta: Array  # … × K
    error: Array  # …, sum of squared residuals
    converged: Array  # …


def gauss_newton(start: Array, evaluate: Evaluate, limit: Callable[[Array], Array], *, steps: int) -> LeastSquares:
    """Minimise sums of squares by damped Gauss–Newton steps (Levenberg–Marquardt), with one damping per problem.

    On a GPU all steps are made: a test for convergence would wait for the device.

    Parameters
    ----------
    start : parameters to start from (… × K)
    evaluate : residuals and their derivatives by the parameters
    limit : moves parameters into their bounds
    steps : most steps
    """
    xp = array_namespace(start)
    theta = start
    residual, jacobian = evaluate(theta)
    error = halfway = xp.sum(residual**2, axis=-1)
    damping = 1e-2 * xp.ones_like(error)
    settled = error < 0
    for step in range(steps):
        halfway = error if step == steps // 2 else halfway
        gradient = (jacobian @ residual[..., None])[..., 0]
        moved = limit(theta - _damped_step(jacobian @ xp.matrix_transpose(jacobian), gradient, damping))
        residual_new, jacobian_new = evaluate(moved)
        error_new = xp.sum(residual_new**2, axis=-1)
        better = (error_new <= error) & ~settled  # a problem that has settled stays, whatever the others do
        flat = better & (error - error_new <= 1e-10 * error + 1e-18) & (damping < 1e3)
        level = xp.sum(xp.abs(gradient), axis=-1) <= 1e-13  # no parameter matters, as for scores below chance
        small = xp.sum(xp.abs(moved - theta), axis=-1) <= 1e-9 * (1 + xp.sum(xp.abs(theta), axis=-1))
        settled = settled | flat | level | small
        if on_host(better) and bool(xp.all(better)):
            theta, residual, jacobian, error = moved, residual_new, jacobian_new, error_new
        else:
            theta = xp.where(better[..., None], moved, theta)
            residual = xp.where(better[..., None], residual_new, residual)
            jacobian = xp.where(better[..., None, None], jacobian_new, jacobian)
            error = xp.where(better, error_new, error)
        damping = xp.where(better, damping / 8, damping * 6).clip(1e-12, 1e12)
        if on_host(settled) and bool(xp.all(settled)):
            break
    # At a bound, or if the optimum is at infinity, steps continue without reducing the error.
    steady = halfway - error <= 1e-3 * error + 1e-18
    return LeastSquares(theta, error, (settled | steady) & xp.isfinite(error))


def _damped_step(curvature: Array, gradient: Array, damping: Array) -> Array:
    """The step of every problem; two parameters in closed form, because a solver would wait for a GPU."""
    xp = array_namespace(curvature)
    more = damping[..., None] * xp.linalg.diagonal(curvature) + 1e-15
    if gradient.shape[-1] != 2:
        damped = curvature + more[..., None] * xp.eye(gradient.shape[-1])
        return xp.linalg.solve(damped, gradient[..., None])[..., 0]
    first, second, both = curvature[..., 0, 0] + more[..., 0], curvature[..., 1, 1] + more[..., 1], curvature[..., 0, 1]
    a, b = gradient[..., 0], gradient[..., 1]
    return xp.stack([second * a - both * b, first * b - both * a], axis=-1) / (first * second - both**2)[..., None]


def ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs. As in scipy.stats, which takes a second to load."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[group])
