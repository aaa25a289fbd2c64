"""Non-negative sigmoid regression of many problems at once on one shared design; numpy or torch.

Minimises, for each column of the result,
    ½ Σ_m ω_m (σ(b − x_m·θ) − q_m)² + ½ Σ_k p_k θ_k²    over θ ≥ 0 and b.
Squared error in accuracy is not convex, so the descent starts on the cross-entropy, which is convex.
Problems differ in their models' weights ω and in the penalty p: infinite for columns that may not be used, 0
for columns without a penalty.
Axes: M models, K columns, P problems.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from benchcast.devices import Array, on_host
from benchcast.law import sigmoid
from benchcast.methods.algorithm2.replay import Shot, State, repeat

# (steps, bound on the second derivative by log-odds, whether the error is squared)
STAGES = ((60, 0.25, False), (240, 0.125, True))


def fit_nonnegative(x: Array, q: Array, omega: Array, penalty: Array) -> tuple[Array, Array]:
    """θ (K × P) and b (P), by accelerated projected gradient steps with restarts.

    `x` is M × K, `q` and `omega` M × P (ω sums to 1 in each column), `penalty` K × P.
    """
    xp = array_namespace(x)
    usable = xp.isfinite(penalty)
    p = xp.where(usable, penalty, xp.zeros_like(penalty))
    mean = x.T @ omega  # K × P: each problem's mean, which decorrelates b and θ
    spread = _largest_variance(x, mean, omega, usable)
    level = xp.sum(omega * q, axis=0)
    theta, b = xp.zeros_like(penalty), xp.log((level + 1e-3) / (1 - level + 1e-3))
    record = not on_host(x)
    for steps, curvature, squared in STAGES:
        rate = 1 / (curvature * spread + xp.max(p, axis=0))

        def step(
            state: State, rate: Array = rate, curvature: float = curvature, squared: bool = squared
        ) -> tuple[State, Shot]:
            now = state["now"]
            theta, b, ahead, b_ahead, pace = (now[name] for name in ("theta", "b", "ahead", "b_ahead", "pace"))
            s = sigmoid(b_ahead - x @ ahead + xp.sum(mean * ahead, axis=0))
            pull = omega * (s - q) * (s * (1 - s) if squared else 1.0)
            push = xp.sum(pull, axis=0)
            new = ahead - rate * (mean * push - x.T @ pull + p * ahead)
            new = xp.where(usable & (new > 0), new, xp.zeros_like(new))
            b_new = b_ahead - push / curvature
            turned = xp.sum((ahead - new) * (new - theta), axis=0) > 0
            pace = xp.where(turned, xp.ones_like(pace), pace)
            next_pace = 0.5 * (1 + xp.sqrt(1 + 4 * pace**2))
            carry = (pace - 1) / next_pace
            ahead, b_ahead = new + carry * (new - theta), b_new + carry * (b_new - b)
            return {"now": {"theta": new, "b": b_new, "ahead": ahead, "b_ahead": b_ahead, "pace": next_pace}}, {}

        state = {"now": {"theta": theta, "b": b, "ahead": theta, "b_ahead": b, "pace": xp.ones_like(b)}}
        for after, _ in repeat(step, state, steps, record=record):
            state = after
        theta, b = state["now"]["theta"], state["now"]["b"]
    return theta, b + xp.sum(mean * theta, axis=0)


def _largest_variance(x: Array, mean: Array, omega: Array, usable: Array) -> Array:
    """Largest eigenvalue of each problem's weighted covariance, by power iteration (P)."""
    xp = array_namespace(x)
    v = xp.where(usable, xp.ones_like(mean), xp.zeros_like(mean))
    size = xp.ones_like(mean[0])
    for _ in range(12):
        y = x @ v - xp.sum(mean * v, axis=0)
        v = x.T @ (omega * y) - mean * xp.sum(omega * y, axis=0)
        v = xp.where(usable, v, xp.zeros_like(v))
        size = xp.sqrt(xp.sum(v * v, axis=0)) + 1e-30
        v = v / size
    return 1.1 * size
