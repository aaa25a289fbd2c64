"""Fit a decreasing power law with an irreducible term, and the covariance of its parameters.

L = E + Σ_j A_j / x_j^a_j, with x = (params, tokens) as in Chinchilla's law, or x = (FLOPs,). The fit minimises a robust
loss of relative errors (differences of logs), from starting points on a grid of exponents: for fixed exponents the
amplitudes solve a non-negative least-squares problem. Weak priors determine what few points leave open. Pure.
Axes: P points, J inputs, 1 + 2J parameters (log E, then log A_j and log a_j of each input, at the points' centre).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from scipy.optimize import least_squares, nnls

from benchcast.records import Floats

EXPONENTS = np.geomspace(0.05, 2.0, 8)  # grid of starting points
STARTS = 2
USUAL_EXPONENT, EXPONENT_SPREAD = 0.35, 1.0  # prior, in logs: a factor of e either way
FLOOR_BELOW, FLOOR_SPREAD = 1.0, 3.0  # prior of log E: distance below the least log loss, and a wide spread
SIZE_SPREAD = 5.0  # prior of log A, around the mean log loss
ERROR, ERROR_WEIGHT = 0.05, 2.0  # prior of the scatter: 5%, with the weight of two points


@dataclass(frozen=True)
class PowerLaw:
    """A fitted law; `x` below always holds logs of inputs (points × inputs)."""

    centre: Floats  # mean of the points' log inputs (J)
    parameters: Floats
    covariance: Floats  # of the parameters
    scatter: float  # standard deviation of a point around the law, in logs
    freedom: float  # degrees of freedom behind the scatter

    def log_loss(self, x: Floats) -> Floats:
        """Log loss that the law predicts; it never increases with an input."""
        return np.asarray(np.logaddexp.reduce(_terms(self.parameters, x - self.centre), axis=0))

    def spread(self, x: Floats) -> Floats:
        """Standard deviation of a new point: parameter uncertainty (delta method) plus scatter around the law."""
        slopes = _slopes(self.parameters, x - self.centre)
        of_parameters = np.einsum("pi,ij,pj->p", slopes, self.covariance, slopes)
        return np.sqrt(of_parameters + self.scatter**2)

    @cached_property
    def floor(self) -> float:
        """E, the irreducible loss."""
        return float(np.exp(self.parameters[0]))

    @cached_property
    def exponents(self) -> Floats:
        """Exponent a_j of each input."""
        return np.exp(self.parameters[2::2])


def fit_power_law(x: Floats, log_loss: Floats) -> PowerLaw:
    """Fit the law to points.

    Parameters
    ----------
    x : logs of the inputs (P × J)
    log_loss : log of the loss of each point (P)

    Returns
    -------
    the law with the covariance of its parameters
    """
    centre = x.mean(axis=0)
    z = x - centre
    means = np.array([log_loss.min() - FLOOR_BELOW, *([log_loss.mean(), np.log(USUAL_EXPONENT)] * x.shape[1])])
    spreads = np.array([FLOOR_SPREAD, *([SIZE_SPREAD, EXPONENT_SPREAD] * x.shape[1])])

    def residuals(p: Floats) -> Floats:
        misfit = (np.logaddexp.reduce(_terms(p, z), axis=0) - log_loss) / ERROR
        return np.concatenate([misfit, (p - means) / spreads])

    def slopes(p: Floats) -> Floats:
        return np.concatenate([_slopes(p, z) / ERROR, np.diag(1 / spreads)])

    solutions = [least_squares(residuals, p, jac=slopes, loss="soft_l1", max_nfev=200) for p in _starts(z, log_loss)]
    best = min(solutions, key=lambda solution: solution.cost).x
    misfit = np.logaddexp.reduce(_terms(best, z), axis=0) - log_loss
    free = max(len(misfit) - len(best), 0)
    variance = (float(misfit @ misfit) + ERROR_WEIGHT * ERROR**2) / (free + ERROR_WEIGHT)
    jacobian = _slopes(best, z)
    covariance = np.linalg.inv(jacobian.T @ jacobian / variance + np.diag(spreads**-2.0))
    return PowerLaw(
        centre=centre,
        parameters=best,
        covariance=np.asarray(covariance, np.float64),
        scatter=float(np.sqrt(variance)),
        freedom=free + ERROR_WEIGHT,
    )


def _terms(parameters: Floats, z: Floats) -> Floats:
    """Logs of E and of each power-law term ((1 + J) × P)."""
    falling = parameters[1::2, None] - np.exp(parameters[2::2, None]) * z.T
    return np.concatenate([np.full((1, len(z)), parameters[0]), falling])


def _slopes(parameters: Floats, z: Floats) -> Floats:
    """Derivative of the log loss with respect to each parameter (P × parameters)."""
    terms = _terms(parameters, z)
    share = np.exp(terms - np.logaddexp.reduce(terms, axis=0))
    out = np.empty((len(z), len(parameters)))
    out[:, 0] = share[0]
    out[:, 1::2] = share[1:].T
    out[:, 2::2] = -share[1:].T * np.exp(parameters[2::2]) * z
    return out


def _starts(z: Floats, log_loss: Floats) -> list[Floats]:
    """The best few exponents of the grid, each with its least-squares amplitudes."""
    loss = np.exp(log_loss)
    tried = []
    for exponents in product(EXPONENTS, repeat=z.shape[1]):
        columns = np.column_stack([np.ones(len(z)), np.exp(-z * exponents)]) / loss[:, None]
        amplitudes, misfit = nnls(columns, np.ones(len(z)))
        tried.append((misfit, exponents, amplitudes))
    tried.sort(key=lambda start: start[0])
    least = 1e-3 * loss.min()
    starts = []
    for _, exponents, amplitudes in tried[:STARTS]:
        logs = np.log(np.maximum(amplitudes, least))
        starts.append(np.concatenate([logs[:1], np.column_stack([logs[1:], np.log(exponents)]).ravel()]))
    return starts
