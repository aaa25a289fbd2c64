"""Gradient descent on a scoring head over frozen features (Algorithm 2); pure arrays, numpy or torch.

Every step has the three parts of section 3.3: weights from the head, the law by Levenberg–Marquardt, a
gradient step on the head. Because the law is re-fitted at every step, its own derivative drops out of
the gradient. All problems share each pass over the features: they are the columns of one matrix
product. Standardising the features is folded into the head, so they are read as they lie.
Axes: N tokens, D features, M models, P problems (fold × task × learning rate), Q first-layer columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from benchcast.law import Array, Laws, fit_laws, sigmoid

Head = dict[str, Array]  # weight D × Q, bias Q; with a hidden layer also out P × hidden, out_bias P
LAW_STEPS = 12  # Levenberg–Marquardt steps between two steps of the head; the law moves little


@dataclass(frozen=True, slots=True)
class DescentSettings:
    """How Algorithm 2 is run. As printed it is SGD at 1e-3, which hardly moves in 300 steps (LOG.md)."""

    steps: int = 300
    rates: tuple[float, ...] = (1e-3, 1e-2)  # the validation models choose
    optimizer: str = "adam"  # or "sgd"
    activation: str = "sigmoid"  # or "softplus", "relu", "identity"
    hidden: int = 0  # width of a hidden layer; 0 is the paper's linear head
    standardise: bool = True  # features per dimension
    joint: bool = False  # one head for all tasks, each with a law of its own
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Inputs:
    """The large arrays, read once forwards and once backwards in every step."""

    blocks: Iterable[tuple[slice, Array]]  # consecutive rows of the features; gone through in every pass
    nats: Array  # M × N
    characters: float
    mean: Array  # D, of the features
    spread: Array  # D


@dataclass(frozen=True, slots=True)
class Problems:
    """What each column of the head is to explain."""

    accuracy: Array  # P × M; any number where no mask looks
    chance: Array  # P
    train: Array  # P × M, 1 where the model trains the head and the law
    validation: Array  # P × M, 1 where the model chooses the step
    rate: Array  # P
    together: Array | None = None  # P × P, 1 where two problems have one head between them


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one step."""

    step: int
    capability: Array  # P × M
    laws: Laws
    train_mse: Array  # P
    validation_mse: Array  # P


@dataclass(frozen=True, slots=True)
class Descent:
    """The head the validation models chose, per problem, and how it came about."""

    head: Head
    step: Array  # P
    error: Array  # P: mean squared error of the validation models at that step
    history: tuple[Snapshot, ...]


def descend(
    inputs: Inputs,
    problems: Problems,
    settings: DescentSettings,
    *,
    on_step: Callable[[int], None] | None = None,
) -> Descent:
    """Run all problems side by side and keep each one's best step on its validation models."""
    xp = array_namespace(inputs.nats)
    head = _new_head(inputs, problems, settings)
    update = _optimizer(settings.optimizer, head, problems.rate, settings.hidden)
    best: Head = head
    best_step = xp.zeros_like(problems.chance)
    best_error = xp.full_like(problems.chance, np.inf)
    history: list[Snapshot] = []
    laws: Laws | None = None
    for step in range(settings.steps + 1):
        kept, capability = _forward(inputs, head, settings)
        c = xp.astype(capability, problems.accuracy.dtype).T
        laws = fit_laws(
            c,
            problems.accuracy,
            problems.chance,
            weight=problems.train,
            start=laws,
            steps=200 if step == 0 else LAW_STEPS,
        )
        residual, rise = _residuals(c, laws, problems)
        shot = Snapshot(step, c, laws, *(_masked_mse(residual, m) for m in (problems.train, problems.validation)))
        history.append(shot)
        error = shot.validation_mse if problems.together is None else problems.together @ shot.validation_mse
        better = error < best_error
        best = {n: xp.where(_per_column(better, n, settings.hidden), new, best[n]) for n, new in head.items()}
        best_step = xp.where(better, xp.full_like(best_step, step), best_step)
        best_error = xp.where(better, error, best_error)
        if on_step is not None:
            on_step(step)
        if step < settings.steps:
            pull = 2 * problems.train * residual * rise * laws.slope[:, None]
            gradient = _backward(inputs, head, settings, kept, xp.astype(pull, inputs.nats.dtype))
            head = update(head, _summed(gradient, problems.together, settings.hidden))
    return Descent(best, best_step, best_error, tuple(history))


def head_weights(inputs: Inputs, head: Head, settings: DescentSettings) -> Array:
    """The weight of every token for every problem (equation 3), N × P."""
    xp = array_namespace(inputs.nats)
    activate = ACTIVATIONS[settings.activation]
    return xp.concat(
        [activate(_logits(block, _folded(inputs, head), settings.hidden)[0])[0] for _, block in inputs.blocks]
    )


def _new_head(inputs: Inputs, problems: Problems, settings: DescentSettings) -> Head:
    """A head that weighs all tokens alike; with a hidden layer, nearly so."""
    xp = array_namespace(inputs.nats)
    d, p, h = inputs.mean.shape[0], problems.chance.shape[0], settings.hidden

    def array(values: Any) -> Array:
        return xp.asarray(values, dtype=inputs.nats.dtype, device=getattr(inputs.nats, "device", None))

    level = np.full(p, 1.0 if settings.activation in ("relu", "identity") else 0.0)  # where weights are positive
    if not h:
        return {"weight": array(np.zeros((d, p))), "bias": array(level)}
    rng = np.random.default_rng(settings.seed)
    weight = np.tile(rng.normal(0, d**-0.5, (d, h)), (1, p))
    out = np.tile(rng.normal(0, 0.1 * h**-0.5, (1, h)), (p, 1))
    return {
        "weight": array(weight),
        "bias": array(np.zeros(h * p)),
        "out": array(out),
        "out_bias": array(level),
    }


def _folded(inputs: Inputs, head: Head) -> Head:
    """The head as it acts on raw features: standardisation moved into its first layer."""
    weight = head["weight"] / inputs.spread[:, None]
    return {**head, "weight": weight, "bias": head["bias"] - inputs.mean @ weight}


def _logits(block: Array, head: Head, hidden: int) -> tuple[Array, Array | None]:
    """Head output before the activation, and the hidden layer if there is one."""
    first = block @ head["weight"] + head["bias"]
    if not hidden:
        return first, None
    xp = array_namespace(block)
    on = xp.reshape(xp.maximum(first, xp.zeros_like(first)), (block.shape[0], -1, hidden))
    return xp.sum(on * head["out"], axis=-1) + head["out_bias"], on


def _forward(inputs: Inputs, head: Head, settings: DescentSettings) -> tuple[list[tuple[Array, Array | None]], Array]:
    """Capability of every model and problem (M × P), and what the way back needs of every block."""
    activate = ACTIVATIONS[settings.activation]
    folded = _folded(inputs, head)
    kept: list[tuple[Array, Array | None]] = []
    total: Any = 0.0
    for part, block in inputs.blocks:
        z, hidden = _logits(block, folded, settings.hidden)
        weight, rise = activate(z)
        total = total + inputs.nats[:, part] @ weight
        kept.append((rise, hidden))
    return kept, total / inputs.characters


def _backward(
    inputs: Inputs,
    head: Head,
    settings: DescentSettings,
    kept: Sequence[tuple[Array, Array | None]],
    pull: Array,
) -> Head:
    """Gradient of the squared error by the head; `pull` is its derivative by capability (P × M)."""
    xp = array_namespace(pull)
    gradient: dict[str, Any] = dict.fromkeys(head, 0.0)
    for (part, block), (rise, hidden) in zip(inputs.blocks, kept, strict=True):
        dz = rise * (inputs.nats[:, part].T @ pull.T) / inputs.characters
        if hidden is not None:
            gradient["out"] = gradient["out"] + xp.sum(hidden * dz[..., None], axis=0)
            gradient["out_bias"] = gradient["out_bias"] + xp.sum(dz, axis=0)
            through = dz[..., None] * head["out"] * xp.astype(hidden > 0, dz.dtype)
            dz = xp.reshape(through, (block.shape[0], -1))
        gradient["weight"] = gradient["weight"] + block.T @ dz
        gradient["bias"] = gradient["bias"] + xp.sum(dz, axis=0)
    gradient["weight"] = (gradient["weight"] - inputs.mean[:, None] * gradient["bias"]) / inputs.spread[:, None]
    return gradient


def _summed(gradient: Head, together: Array | None, hidden: int) -> Head:
    """Gradients of problems that share a head, added up: started alike, their columns stay alike."""
    if together is None:
        return gradient
    xp = array_namespace(gradient["bias"])
    share = xp.astype(together, gradient["bias"].dtype)
    columns = {"weight": (-1, share.shape[0], max(1, hidden)), "bias": (share.shape[0], max(1, hidden))}
    return {
        name: xp.reshape(share @ xp.reshape(g, columns.get(name, g.shape)), g.shape) for name, g in gradient.items()
    }


def _residuals(c: Array, laws: Laws, problems: Problems) -> tuple[Array, Array]:
    """Forecast minus accuracy, and the derivative of the forecast by log-odds (P × M)."""
    s = sigmoid(laws.slope[:, None] * c + laws.offset[:, None])
    scale = 1 - problems.chance[:, None]
    return problems.chance[:, None] + scale * s - problems.accuracy, scale * s * (1 - s)


def _masked_mse(residual: Array, mask: Array) -> Array:
    xp = array_namespace(residual)
    return xp.sum(mask * residual**2, axis=-1) / xp.sum(mask, axis=-1)


def _per_column(values: Array, name: str, hidden: int) -> Array:
    """One value per problem, laid out along the problems' axis of the named array of a head."""
    if not hidden or name == "out_bias":
        return values
    return values[:, None] if name == "out" else array_namespace(values).repeat(values, hidden)


def _optimizer(kind: str, head: Head, rate: Array, hidden: int) -> Callable[[Head, Head], Head]:
    """A function (head, gradient) → head that remembers its moments."""
    rates = {name: _per_column(rate, name, hidden) for name in head}
    if kind == "sgd":
        return lambda head, gradient: {n: _cast(x - rates[n] * gradient[n], x) for n, x in head.items()}
    xp = array_namespace(rate)
    first = {n: xp.zeros_like(x) for n, x in head.items()}
    second = {n: xp.zeros_like(x) for n, x in head.items()}
    count = 0

    def adam(head: Head, gradient: Head) -> Head:
        nonlocal count
        count += 1
        moved = {}
        for n, x in head.items():
            first[n] = 0.9 * first[n] + 0.1 * gradient[n]
            second[n] = 0.999 * second[n] + 0.001 * gradient[n] ** 2
            step = (first[n] / (1 - 0.9**count)) / (xp.sqrt(second[n] / (1 - 0.999**count)) + 1e-12)
            moved[n] = _cast(x - rates[n] * step, x)
        return moved

    return adam


def _cast(x: Array, like: Array) -> Array:
    return array_namespace(x).astype(x, like.dtype)


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
