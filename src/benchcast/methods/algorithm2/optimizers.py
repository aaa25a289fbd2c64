"""Steps on a head, given its gradient: Adam, and the plain descent of the paper as printed."""

from __future__ import annotations

from array_api_compat import array_namespace

from benchcast.devices import Array
from benchcast.methods.algorithm2.replay import State

Head = dict[str, Array]  # weight D × Q, bias Q; with a hidden layer also out P × hidden, out_bias P
FIRST, SECOND = 0.9, 0.999  # how slowly Adam's two averages forget
NOISE = 1e-5  # of a column's largest gradient: what lies below may be rounding, and is not blown up to a full step
TINY = 1e-30  # where no gradient is left at all


def update(state: State, gradient: Head, optimizer: str) -> State:
    """The state one step on; its count of steps grows by one."""
    count = state["count"]["steps"] + 1
    step, moments = (gradient, {}) if optimizer == "sgd" else _adam(state, gradient, count)
    head = {
        name: array_namespace(x).astype(x - state["rate"][name] * step[name], x.dtype)
        for name, x in state["head"].items()
    }
    return {**state, **moments, "head": head, "count": {"steps": count}}


def _adam(state: State, gradient: Head, count: Array) -> tuple[Head, dict[str, Head]]:
    """The step, and the averages it comes from."""
    xp = array_namespace(count)
    first = {name: FIRST * state["first"][name] + (1 - FIRST) * g for name, g in gradient.items()}
    second = {name: SECOND * state["second"][name] + (1 - SECOND) * g**2 for name, g in gradient.items()}
    fair = xp.sqrt(1 - SECOND**count) / (1 - FIRST**count)  # both averages start at nothing
    size = {name: xp.sqrt(x) for name, x in second.items()}
    least = _noise(size)
    step = {name: xp.astype(fair, x.dtype) * x / (size[name] + least[name]) for name, x in first.items()}
    return step, {"first": first, "second": second}


def _noise(size: Head) -> Head:
    """What gradients of this size may hold of rounding errors: a share of each column's largest."""
    xp = array_namespace(size["bias"])
    inner = NOISE * xp.maximum(xp.max(size["weight"], axis=0), size["bias"]) + TINY
    if "out" not in size:
        return {"weight": inner, "bias": inner}
    outer = NOISE * xp.maximum(xp.max(size["out"], axis=1), size["out_bias"]) + TINY
    return {"weight": inner, "bias": inner, "out": outer[:, None], "out_bias": outer}
