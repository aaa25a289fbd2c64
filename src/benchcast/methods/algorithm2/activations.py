"""Activations that turn a head's output into a weight, with their derivatives; numpy or torch."""

from __future__ import annotations

from array_api_compat import array_namespace

from benchcast.devices import Array
from benchcast.law import sigmoid


def _sigmoid(z: Array) -> tuple[Array, Array]:
    s = sigmoid(z)
    return s, s * (1 - s)


def _softplus(z: Array) -> tuple[Array, Array]:
    xp = array_namespace(z)
    return xp.maximum(z, xp.zeros_like(z)) + xp.log1p(xp.exp(-xp.abs(z))), sigmoid(z)


def _relu(z: Array) -> tuple[Array, Array]:
    on = array_namespace(z).astype(z > 0, z.dtype)
    return z * on, on


def _identity(z: Array) -> tuple[Array, Array]:
    return z, array_namespace(z).ones_like(z)


# Name → function giving the activation and its derivative.
ACTIVATIONS = {"sigmoid": _sigmoid, "softplus": _softplus, "relu": _relu, "identity": _identity}
