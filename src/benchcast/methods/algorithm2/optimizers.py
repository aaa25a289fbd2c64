"""Optimiser steps on a head: Adam, and SGD as printed in the paper."""

from __future__ import annotations

from array_api_compat import array_namespace

from benchcast.devices import Array
from benchcast.methods.cuda_graph import State

Head = dict[str, Array]  # weight D × Q, bias Q; with a hidden layer also out P × hidden, out_bias P
FIRST, SECOND = 0.9, 0.999  # Adam's β₁ and β₂
NOISE = 1e-5  # relative to a column's largest gradient; smaller entries may be rounding errors and are damped
TINY = 1e-30  # avoids division by zero


def update(state: State, gradient: Head, optimizer: str) -> State:
    """The state after one more step."""
    count = state["count"]["steps"] + 1
    step, moments = (gradient, {}) if optimizer == "sgd" else _adam(state, gradient, count)
    head = {
        name: array_namespace(x).astype(x - state["rate"][name] * step[name], x.dtype)
        for name, x in state["head"].items()
    }
    return {**state, **moments, "head": head, "count": {"steps": count}}


def _adam(state: State, gradient: Head, count: Array) -> tuple[Head, dict[str, Head]]:
    """The step, and Adam's moment estimates."""
    xp = array_namespace(count)
    first = {name: FIRST * state["first"][name] + (1 - FIRST) * g for name, g in gradient.items()}
    second = {name: SECOND * state["second"][name] + (1 - SECOND) * g**2 for name, g in gradient.items()}
    fair = xp.sqrt(1 - SECOND**count) / (1 - FIRST**count)  # bias correction
    size = {name: xp.sqrt(x) for name, x in second.items()}
    least = _noise(size)
    step = {name: xp.astype(fair, x.dtype) * x / (size[name] + least[name]) for name, x in first.items()}
    return step, {"first": first, "second": second}


def _noise(size: Head) -> Head:
    """Bound on the rounding error of gradients: a fraction of the largest entry of each column."""
    xp = array_namespace(size["bias"])
    inner = NOISE * xp.maximum(xp.max(size["weight"], axis=0), size["bias"]) + TINY
    if "out" not in size:
        return {"weight": inner, "bias": inner}
    outer = NOISE * xp.maximum(xp.max(size["out"], axis=1), size["out_bias"]) + TINY
    return {"weight": inner, "bias": inner, "out": outer[:, None], "out_bias": outer}
