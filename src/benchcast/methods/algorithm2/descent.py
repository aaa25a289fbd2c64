"""Gradient descent on a scoring head over frozen features (Algorithm 2); pure arrays, numpy or torch.

Every step has the three parts of section 3.3: weights from the head, the law by Levenberg–Marquardt, a
gradient step on the head. Because the law is re-fitted at every step, the gradient has no term from the
law's derivative. All problems share each pass over the features: they are the columns of one matrix
product. The standardisation of the features is folded into the head, so that raw features are read.
Axes: N tokens, D features, M models, P problems (fold × task × learning rate), Q first-layer columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from benchcast.devices import Array, device_name, on_host, place, to_numpy
from benchcast.law import Laws, at_share, fit_laws, sigmoid
from benchcast.methods.algorithm2.activations import ACTIVATIONS
from benchcast.methods.algorithm2.optimizers import Head, update
from benchcast.methods.cuda_graph import Shot, State, repeat
from benchcast.methods.features import Inputs
from benchcast.methods.products import FeatureBlock, TokenBlock, over_stretches

LAW_STEPS = 12  # Levenberg–Marquardt steps between two steps of the head; the law moves little
Kept = tuple[Array, Array | None]  # of a block, for the backward pass: derivative of the activation, hidden layer


@dataclass(frozen=True, slots=True)
class DescentSettings:
    """Settings of Algorithm 2. The paper prints SGD at 1e-3, which makes little progress in 300 steps (LOG.md)."""

    steps: int = 300
    rates: tuple[float, ...] = (1e-3, 1e-2)  # selected on the validation models
    optimizer: str = "adam"  # or "sgd"
    activation: str = "sigmoid"  # or "softplus", "relu", "identity"
    hidden: int = 0  # width of a hidden layer; 0 is the paper's linear head
    standardise: bool = True  # features per dimension
    joint: bool = False  # one head for all tasks, one law for each
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Problems:
    """Targets and model weights of each problem, a column of the head."""

    accuracy: Array  # P × M; arbitrary where both masks are 0
    chance: Array  # P
    train: Array  # P × M, 1 for models that train the head and the law
    validation: Array  # P × M, 1 for models that select the step
    rate: Array  # P
    together: Array | None = None  # P × P, 1 if two problems share a head


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
    """The head with the least validation error, for each problem, and the history of the descent."""

    head: Head
    step: Array  # P
    error: Array  # P: mean squared error of the validation models at that step
    history: tuple[Snapshot, ...]


def descend(inputs: Inputs, problems: Problems, settings: DescentSettings) -> Descent:
    """Run all problems together and keep the step of each with the least error on its validation models."""

    def step(state: State) -> tuple[State, Shot]:
        state, shot, gradient = _look(inputs, problems, settings, state)
        return update(state, gradient(), settings.optimizer), shot

    history: list[Snapshot] = []

    def note(shot: Shot) -> None:
        laws = Laws(shot["slope"], shot["offset"], shot["mse"], shot["converged"])
        history.append(Snapshot(len(history), shot["capability"], laws, shot["train"], shot["validation"]))

    state = _start(inputs, problems, settings)
    record = not on_host(inputs.mean) and isinstance(inputs.stretches, list)
    for after, shot in repeat(step, state, settings.steps, record=record):
        state = after
        note(shot)
    state, shot, _ = _look(inputs, problems, settings, state)
    note(shot)
    return Descent(state["best"], state["chosen"]["step"], state["chosen"]["error"], tuple(history))


def _start(inputs: Inputs, problems: Problems, settings: DescentSettings) -> State:
    """A new head and its law, fitted from many starts."""
    xp = array_namespace(inputs.mean)
    head = _new_head(inputs, problems, settings)
    capability = xp.astype(_forward(inputs, head, settings)[1], problems.accuracy.dtype)
    # In numpy: hundreds of steps on small arrays are slower on a GPU than the whole descent.
    c, accuracy, chance, train = map(to_numpy, (capability, problems.accuracy, problems.chance, problems.train))
    laws = fit_laws(c, accuracy, chance, weight=train)
    slope, offset = (place(x, device_name(inputs.mean)) for x in (laws.slope, laws.offset))
    never = xp.zeros_like(problems.chance)
    return {
        "head": head,
        "first": {name: xp.zeros_like(x) for name, x in head.items()},
        "second": {name: xp.zeros_like(x) for name, x in head.items()},
        "rate": {name: _per_column(problems.rate, name, settings.hidden) for name in head},
        "best": head,
        "law": {"slope": slope, "offset": offset},
        "chosen": {"step": never, "error": xp.full_like(never, np.inf)},
        "count": {"steps": xp.zeros_like(never[0:1])},
    }


def _look(
    inputs: Inputs, problems: Problems, settings: DescentSettings, state: State
) -> tuple[State, Shot, Callable[[], Head]]:
    """The law and errors of the current head, the state with the best head so far, and a function for the gradient.

    No value is read back to Python, so that a GPU can record and replay the step.
    """
    xp = array_namespace(inputs.mean)
    head = state["head"]
    kept, capability = _forward(inputs, head, settings)
    c = xp.astype(capability, problems.accuracy.dtype)
    before = Laws(state["law"]["slope"], state["law"]["offset"], problems.chance, problems.chance)
    laws = fit_laws(c, problems.accuracy, problems.chance, weight=problems.train, start=before, steps=LAW_STEPS)
    residual, rise = _residuals(c, laws, problems)
    train, validation = (_masked_mse(residual, mask) for mask in (problems.train, problems.validation))
    error = validation if problems.together is None else problems.together @ validation
    better = error < state["chosen"]["error"]
    best = {
        name: xp.where(_per_column(better, name, settings.hidden), x, state["best"][name]) for name, x in head.items()
    }
    chosen = {
        "step": xp.where(better, state["count"]["steps"], state["chosen"]["step"]),
        "error": xp.where(better, error, state["chosen"]["error"]),
    }
    shot = {"capability": c, "slope": laws.slope, "offset": laws.offset, "mse": laws.mse, "converged": laws.converged}
    shot |= {"train": train, "validation": validation}

    def gradient() -> Head:
        pull = 2 * problems.train * residual * rise * laws.slope[:, None]
        gradients = _backward(inputs, head, kept, xp.astype(pull, inputs.mean.dtype))
        return _summed(gradients, problems.together, settings.hidden)

    law = {"slope": laws.slope, "offset": laws.offset}
    return {**state, "best": best, "chosen": chosen, "law": law}, shot, gradient


def head_weights(inputs: Inputs, head: Head, settings: DescentSettings) -> Array:
    """The weight of every token for every problem (equation 3), N × P."""
    xp = array_namespace(inputs.mean)
    activate = ACTIVATIONS[settings.activation]
    folded = _folded(inputs, head)

    def weights(here: TokenBlock) -> Array:
        return activate(_logits(here.features, folded, settings.hidden)[0])[0].T

    return xp.concat(list(over_stretches(weights, inputs.stretches)))


def _new_head(inputs: Inputs, problems: Problems, settings: DescentSettings) -> Head:
    """A head that gives all tokens equal weight; with a hidden layer, nearly equal weight."""
    xp = array_namespace(inputs.mean)
    d, p, h = inputs.mean.shape[0], problems.chance.shape[0], settings.hidden

    def array(values: Any) -> Array:
        return xp.asarray(values, dtype=inputs.mean.dtype, device=getattr(inputs.mean, "device", None))

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
    """The head for raw features, with the standardisation folded into its first layer."""
    weight = head["weight"] / inputs.spread[:, None]
    return {**head, "weight": weight, "bias": head["bias"] - inputs.mean @ weight}


def _logits(block: FeatureBlock, head: Head, hidden: int) -> tuple[Array, Array | None]:
    """Head output before the activation (P × n), and the hidden layer (P × hidden × n) if there is one."""
    first = block.project(head["weight"].T) + head["bias"][:, None]
    if not hidden:
        return first, None
    xp = array_namespace(first)
    on = xp.reshape(xp.maximum(first, xp.zeros_like(first)), (-1, hidden, first.shape[-1]))
    return xp.sum(on * head["out"][..., None], axis=1) + head["out_bias"][:, None], on


def _forward(inputs: Inputs, head: Head, settings: DescentSettings) -> tuple[dict[int, Kept], Array]:
    """Capability (P × M), and the values for the backward pass by the first token of each block."""
    activate = ACTIVATIONS[settings.activation]
    folded = _folded(inputs, head)

    def forward(here: TokenBlock) -> tuple[int, Kept, Array]:
        z, hidden = _logits(here.features, folded, settings.hidden)
        weight, rise = activate(z)
        return here.start, (rise, hidden), here.losses.gather(weight)

    kept: dict[int, Kept] = {}
    total: Any = 0.0
    for start, mine, capability in over_stretches(forward, inputs.stretches):
        kept[start] = mine
        total = total + capability
    return kept, total / inputs.characters


def _backward(inputs: Inputs, head: Head, kept: dict[int, Kept], pull: Array) -> Head:
    """Gradient of the squared error by the head; `pull` is its derivative by capability (P × M)."""
    xp = array_namespace(pull)
    pull = pull / inputs.characters

    def backward(here: TokenBlock) -> Head:
        rise, hidden = kept[here.start]
        dz = rise * here.losses.project(pull)
        of_output = {}
        if hidden is not None:
            of_output = {"out": xp.sum(hidden * dz[:, None], axis=-1), "out_bias": xp.sum(dz, axis=-1)}
            through = dz[:, None] * head["out"][..., None] * xp.astype(hidden > 0, dz.dtype)
            dz = xp.reshape(through, (-1, dz.shape[-1]))
        return {**of_output, "weight": here.features.gather(dz).T, "bias": xp.sum(dz, axis=-1)}

    gradient: dict[str, Any] = dict.fromkeys(head, 0.0)
    for part in over_stretches(backward, inputs.stretches):
        gradient = {name: total + part[name] for name, total in gradient.items()}
    gradient["weight"] = (gradient["weight"] - inputs.mean[:, None] * gradient["bias"]) / inputs.spread[:, None]
    return gradient


def _summed(gradient: Head, together: Array | None, hidden: int) -> Head:
    """Sum of the gradients of problems that share a head, so that their columns stay equal."""
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
    chance = problems.chance[:, None]
    return at_share(s, chance) - problems.accuracy, (1 - chance) * s * (1 - s)


def _masked_mse(residual: Array, mask: Array) -> Array:
    xp = array_namespace(residual)
    return xp.sum(mask * residual**2, axis=-1) / xp.sum(mask, axis=-1)


def _per_column(values: Array, name: str, hidden: int) -> Array:
    """One value per problem, reshaped to broadcast along the problem axis of the named array of a head."""
    if not hidden or name == "out_bias":
        return values
    return values[:, None] if name == "out" else array_namespace(values).repeat(values, hidden)
