"""Non-negative sigmoid regression of many problems at once on one shared design; numpy or torch.

Minimises, for each row of the result,
    ½ Σ_m ω_m (σ(b − x_m·θ) − q_m)² + ½ Σ_k p_k θ_k²    over θ ≥ 0 and b.
Squared error in accuracy is not convex, so the descent starts with steps on the cross-entropy, which is. Steps are
projected gradient steps with Nesterov's momentum, which restarts where it points uphill (O'Donoghue and Candès 2015).
Problems differ in their scores q, in their models' weights ω and in the penalty p: infinite where a column may not be
used, 0 where it is free. Where the penalty is too weak to matter, the number of steps limits the weights instead.
Axes: P problems, M models, K columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of

from benchcast.devices import Array, on_host, to_numpy
from benchcast.methods.cuda_graph import repeat
from benchcast.records import Bools, Ints

# (steps, bound on the second derivative by log-odds, whether the error is squared)
STAGES = ((60, 0.25, False), (240, 0.125, True))
CHECK_STEPS = 20  # between checks for convergence
TOLERANCE = 1e-4  # largest change of a converged problem between two checks, relative to its largest weight
FEW_COLUMNS = 8  # problems with so few usable columns are solved together, whichever they use
BLOCK = 64  # most problems solved together; their arrays stay in the cache

Given = dict[str, Array]  # the first axis is P


def fit_nonnegative(x: Array, q: Array, omega: Array, *, penalty: Array) -> tuple[Array, Array]:
    """θ (P × K) and b (P), by accelerated projected gradient steps with restarts.

    `x` is M × K, `q` and `omega` P × M (ω sums to 1 in each row), `penalty` P × K.
    """
    if not on_host(x):  # one block: a GPU is not filled by a part of the problems
        return _descend(x, q, omega, penalty=penalty)
    xp = array_namespace(x)
    theta, b = xp.zeros_like(penalty), xp.zeros_like(q[:, 0])
    for rows, columns in _blocks(np.isfinite(to_numpy(penalty))):
        cells = np.ix_(rows, columns)
        theta[cells], b[rows] = _descend(x[:, columns], q[rows], omega[rows], penalty=penalty[cells])
    return theta, b


def _blocks(usable: Bools) -> Iterator[tuple[Ints, Ints]]:
    """Problems that use the same columns, a few at a time, and these columns; `usable` is P × K."""
    many = usable.sum(axis=1, keepdims=True) > FEW_COLUMNS
    kinds, kind = np.unique(usable & many, axis=0, return_inverse=True)
    for i in range(len(kinds)):
        rows = np.flatnonzero(kind.ravel() == i)
        columns = np.flatnonzero(usable[rows].any(axis=0) | (np.arange(usable.shape[1]) == 0))  # at least one
        for part in np.array_split(rows, -(-len(rows) // BLOCK)):
            yield part, columns


def _descend(x: Array, q: Array, omega: Array, *, penalty: Array) -> tuple[Array, Array]:
    """θ and b of one block of problems."""
    xp = array_namespace(x)
    usable = xp.astype(xp.isfinite(penalty), x.dtype)
    p = xp.where(usable > 0, penalty, xp.zeros_like(penalty))
    spread, level = _largest_variance(x, omega, usable), xp.vecdot(omega, q)
    level = level.clip(0.0, 1.0)  # scores may lie below the floor
    theta, b = xp.zeros_like(p), xp.log((level + 1e-3) / (1 - level + 1e-3))
    momentum = xp.asarray(_momentum(STAGES[-1][0]), dtype=x.dtype, device=device_of(x))
    shared = _Shared(xp, 0.5 * x.T, x, xp.ones_like(x[:, 0]), momentum)
    for steps, curvature, squared in STAGES:
        rate = 1 / (curvature * spread + xp.max(p, axis=1))
        given = {
            "omega": omega,
            "wanted": 1 - 2 * q,
            "pull": rate[:, None] * omega * (0.125 if squared else 0.5),
            "shrink": 1 - rate[:, None] * p,
            "usable": usable,
            "offset_rate": 1 / (curvature * rate),
        }
        step = partial(_step, shared, squared=squared)
        now = {"theta": theta, "b": b, "ahead": theta, "b_ahead": b, "since": xp.astype(0 * b, xp.int64)}
        theta, b = (_converge if on_host(x) else _replay)(step, given, now, steps)
    return theta, b + xp.vecdot(omega, theta @ x.T)


class _Shared(NamedTuple):
    """What all problems of a block share."""

    xp: Any  # numpy or torch, as an array API namespace
    half: Array  # x / 2, K × M
    x: Array
    ones: Array  # M
    momentum: Array  # by the number of steps since a restart


def _momentum(steps: int) -> list[float]:
    """Nesterov's factor for the steps since a restart."""
    pace, factors = 1.0, []
    for _ in range(steps):
        next_pace = 0.5 * (1 + math.sqrt(1 + 4 * pace**2))
        factors.append((pace - 1) / next_pace)
        pace = next_pace
    return factors


def _step(shared: _Shared, given: Given, now: Given, *, squared: bool) -> Given:
    """One accelerated step. Log-odds are centred on each problem's models, so that b and θ do not interact.

    Few calls, and in place: on a block that fits in the cache, calls cost as much as the products.
    """
    xp = shared.xp
    theta, b, ahead, b_ahead = now["theta"], now["b"], now["ahead"], now["b_ahead"]
    half = ahead @ shared.half  # half the log-odds, with the opposite sign
    half -= (0.5 * b_ahead + xp.vecdot(given["omega"], half))[:, None]
    balance = xp.tanh(half)  # 1 − 2 s
    pull = given["wanted"] - balance
    pull *= given["pull"]
    if squared:
        balance *= balance
        balance *= pull
        pull -= balance  # times 4 s (1 − s)
    push = pull @ shared.ones
    pull -= given["omega"] * push[:, None]
    new = pull @ shared.x
    new += ahead * given["shrink"]
    new *= given["usable"]
    new *= new > 0
    b_new = b_ahead - push * given["offset_rate"]
    moved = new - theta
    since = now["since"] * (xp.vecdot(ahead - new, moved) <= 0)
    carry = shared.momentum[since]
    moved *= carry[:, None]
    moved += new
    return {"theta": new, "b": b_new, "ahead": moved, "b_ahead": b_new + carry * (b_new - b), "since": since + 1}


def _converge(step: partial[Given], given: Given, now: Given, steps: int) -> tuple[Array, Array]:
    """θ and b after some steps; problems that have converged take no further ones."""
    xp = array_namespace(now["b"])
    theta, b, moving = 1 * now["theta"], 1 * now["b"], np.arange(len(now["b"]))
    for _ in range(0, steps, CHECK_STEPS):
        for _ in range(CHECK_STEPS):
            now = step(given, now)
        moved = xp.max(xp.abs(now["theta"] - theta[moving]), axis=1) > TOLERANCE * xp.max(now["theta"], axis=1)
        moved |= xp.abs(now["b"] - b[moving]) > TOLERANCE
        theta[moving], b[moving] = now["theta"], now["b"]
        if not bool(xp.any(moved)):
            break
        moving, given, now = moving[to_numpy(moved)], _take(given, moved), _take(now, moved)
    return theta, b


def _take(arrays: Given, rows: Array) -> Given:
    return {name: a[rows] for name, a in arrays.items()}


def _replay(step: partial[Given], given: Given, now: Given, steps: int) -> tuple[Array, Array]:
    """θ and b after all steps: a check for convergence would wait for the device."""

    def recorded(state: dict[str, Given]) -> tuple[dict[str, Given], Given]:
        return {"now": step(given, state["now"])}, {}

    for state, _ in repeat(recorded, {"now": now}, steps, record=True):
        now = state["now"]
    return now["theta"], now["b"]


def _largest_variance(x: Array, omega: Array, usable: Array) -> Array:
    """Largest eigenvalue of each problem's weighted covariance, by power iteration (P)."""
    xp = array_namespace(x)
    v, size = usable, xp.ones_like(omega[:, 0])
    for _ in range(12):
        y = v @ x.T
        y = omega * (y - xp.vecdot(omega, y)[:, None])
        v = usable * ((y - omega * xp.sum(y, axis=1)[:, None]) @ x)
        size = xp.sqrt(xp.vecdot(v, v)) + 1e-30
        v = v / size[:, None]
    return 1.1 * size
