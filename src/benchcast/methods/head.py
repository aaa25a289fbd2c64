"""The scoring head f_θ of equation 3: token weights from hidden states, their gradient, Adam and SGD; numpy or torch.

    linear head            z = x · weight + bias
    with a hidden layer    z = Σ_k out_k · max(x · weight_k + bias_k, 0) + out_bias
    token weight           w = activation(z)

x = (h − mean) / spread is a token's hidden state, standardised. The standardisation is folded into the first layer, so
that stored features are multiplied as they are.
Axes: n tokens of a block, D features, P problems, K hidden units of a problem.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from benchcast.devices import Array
from benchcast.methods.law import sigmoid
from benchcast.methods.products import FeatureBlock

FIRST, SECOND = 0.9, 0.999  # Adam's β₁ and β₂
NOISE = 1e-5  # relative to a column's largest gradient; smaller entries may be rounding errors and are damped
TINY = 1e-30  # avoids division by zero

Activation = Callable[[Array], tuple[Array, Array]]  # z → w and dw/dz
Back = tuple[Array, Array]  # kept of a block for its gradient: dw/dz (P × n), hidden layer (P × K × n) or None


class LinearHead(NamedTuple):
    """The paper's head: one column for each problem."""

    weight: Array  # D × P
    bias: Array  # P

    def forward(self, features: FeatureBlock, activate: Activation) -> tuple[Array, Back]:
        """Weights of the tokens (P × n), and what `backward` needs."""
        w, rise = activate(features.project(self.weight.T) + self.bias[:, None])
        return w, (rise, None)

    def backward(self, features: FeatureBlock, back: Back, dw: Array) -> LinearHead:
        """Derivative of an error by the head, from its derivative `dw` by the weights of the tokens (P × n)."""
        dz = back[0] * dw
        return LinearHead(weight=features.gather(dz).T, bias=array_namespace(dz).sum(dz, axis=-1))

    def per_problem(self, values: Array) -> LinearHead:
        """One value per problem, shaped to be combined with each array of the head."""
        return LinearHead(weight=values, bias=values)


class HiddenHead(NamedTuple):
    """K columns for each problem, rectified and summed."""

    weight: Array  # D × P·K
    bias: Array  # P·K
    out: Array  # P × K
    out_bias: Array  # P

    def forward(self, features: FeatureBlock, activate: Activation) -> tuple[Array, Back]:
        """Weights of the tokens (P × n), and what `backward` needs."""
        first = features.project(self.weight.T) + self.bias[:, None]
        xp = array_namespace(first)
        layer = xp.reshape(xp.maximum(first, xp.zeros_like(first)), (-1, self.out.shape[1], first.shape[-1]))
        w, rise = activate(xp.sum(layer * self.out[..., None], axis=1) + self.out_bias[:, None])
        return w, (rise, layer)

    def backward(self, features: FeatureBlock, back: Back, dw: Array) -> HiddenHead:
        """Derivative of an error by the head, from its derivative `dw` by the weights of the tokens (P × n)."""
        xp = array_namespace(dw)
        rise, layer = back
        dz = rise * dw
        through = dz[:, None] * self.out[..., None] * xp.astype(layer > 0, dz.dtype)
        first = xp.reshape(through, (-1, dz.shape[-1]))
        return HiddenHead(
            weight=features.gather(first).T,
            bias=xp.sum(first, axis=-1),
            out=xp.sum(layer * dz[:, None], axis=-1),
            out_bias=xp.sum(dz, axis=-1),
        )

    def per_problem(self, values: Array) -> HiddenHead:
        """One value per problem, shaped to be combined with each array of the head."""
        wide = array_namespace(values).repeat(values, self.out.shape[1])
        return HiddenHead(weight=wide, bias=wide, out=values[:, None], out_bias=values)


Head = LinearHead | HiddenHead  # θ; also its gradient, and Adam's running means


def new_head(like: Array, problems: int, *, activation: str, hidden: int, seed: int) -> Head:
    """A head that gives all tokens equal weight; with a hidden layer, nearly equal weight.

    `like` is an array of D features with the head's type and device, `hidden` the width of the hidden layer or 0.
    """
    xp, d = array_namespace(like), like.shape[0]

    def array(values: Any) -> Array:
        return xp.asarray(values, dtype=like.dtype, device=getattr(like, "device", None))

    level = array(np.full(problems, 1.0 if activation in ("relu", "identity") else 0.0))  # where weights are positive
    if not hidden:
        return LinearHead(weight=array(np.zeros((d, problems))), bias=level)
    rng = np.random.default_rng(seed)
    weight, out = rng.normal(0, d**-0.5, (d, hidden)), rng.normal(0, 0.1 * hidden**-0.5, (1, hidden))
    return HiddenHead(
        weight=array(np.tile(weight, (1, problems))),
        bias=array(np.zeros(hidden * problems)),
        out=array(np.tile(out, (problems, 1))),
        out_bias=level,
    )


def on_raw_features(head: Head, mean: Array, spread: Array) -> Head:
    """The same head for features that are not standardised: x · weight + bias = h · (weight / spread) + …"""
    weight = head.weight / spread[:, None]
    return head._replace(weight=weight, bias=head.bias - mean @ weight)


def on_standardised_features(gradient: Head, mean: Array, spread: Array) -> Head:
    """The gradient by a head for standardised features, from the one by `on_raw_features` of it (chain rule)."""
    return gradient._replace(weight=(gradient.weight - mean[:, None] * gradient.bias) / spread[:, None])


def map_arrays(function: Callable[..., Array], *heads: Head) -> Head:
    """A function of the arrays of heads of one form, array by array."""
    return type(heads[0])(*map(function, *heads))


class Moments(NamedTuple):
    """State of an optimizer: Adam's running means of the gradient and its square, and the number of steps made."""

    first: Head
    second: Head
    count: Array  # one element


def update(head: Head, gradient: Head, moments: Moments, *, rate: Array, optimizer: str) -> tuple[Head, Moments]:
    """θ − rate · step, and the optimizer's new state; the step is the gradient (SGD, as printed) or that of Adam.

    first ← β₁ first + (1 − β₁) g,   second ← β₂ second + (1 − β₂) g²,   t ← t + 1
    step = √(1 − β₂ᵗ) / (1 − β₁ᵗ) · first / (√second + noise)

    `rate` has one value per problem.
    """
    xp, count = array_namespace(moments.count), moments.count + 1
    step, first, second = gradient, moments.first, moments.second
    if optimizer != "sgd":
        first = map_arrays(lambda m, g: FIRST * m + (1 - FIRST) * g, first, gradient)
        second = map_arrays(lambda v, g: SECOND * v + (1 - SECOND) * g**2, second, gradient)
        unbiased = xp.sqrt(1 - SECOND**count) / (1 - FIRST**count)
        size = map_arrays(xp.sqrt, second)
        step = map_arrays(lambda m, s, noise: xp.astype(unbiased, m.dtype) * m / (s + noise), first, size, _noise(size))
    after = map_arrays(lambda x, r, s: xp.astype(x - r * s, x.dtype), head, head.per_problem(rate), step)
    return after, Moments(first=first, second=second, count=count)


def _noise(size: Head) -> Head:
    """Bound on the rounding error of gradients: a fraction of the largest entry of each column.

    What changes no forecast (all weights a little larger, say) has a gradient of rounding errors, and Adam would make
    full steps of those.
    """
    xp = array_namespace(size.bias)
    inner = NOISE * xp.maximum(xp.max(size.weight, axis=0), size.bias) + TINY
    if isinstance(size, LinearHead):
        return LinearHead(weight=inner, bias=inner)
    outer = NOISE * xp.maximum(xp.max(size.out, axis=1), size.out_bias) + TINY
    return HiddenHead(weight=inner, bias=inner, out=outer[:, None], out_bias=outer)


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


ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "relu": _relu,
    "identity": _identity,
}
