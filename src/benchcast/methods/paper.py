"""The method `paper`: Algorithm 2, gradient descent on a scoring head over frozen features; numpy or torch.

`descend` and `epoch` are the algorithm, on arrays. `paper` runs it for all folds and tasks of a dataset at once: every
combination of fold, task and learning rate is a problem, a column of the head, so that all problems share each pass
over the features. Where the features do not fit in memory, they are read again on every pass.
Axes: N tokens, D features, M models, P problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from benchcast.devices import Array, device_name, on_host, place, to_numpy
from benchcast.errors import NotEnoughDataError
from benchcast.losses.dataset import Dataset, LossView
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.cuda_graph import repeat
from benchcast.methods.features import Inputs, keep_on_device, prepare_inputs
from benchcast.methods.head import (
    ACTIVATIONS,
    Back,
    Head,
    Moments,
    map_arrays,
    new_head,
    on_raw_features,
    on_standardised_features,
    update,
)
from benchcast.methods.law import Laws, at_share, fit_law, fit_laws, sigmoid
from benchcast.methods.products import TokenBlock, over_blocks
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Bools
from benchcast.splits import Fold
from benchcast.steps import steps

LAW_STEPS = 12  # Levenberg–Marquardt steps between two steps of the head; the law moves little
SHOWN_STEPS = (0, 1, 2, 5, 10, 20, 40, 70, 100, 150, 200, 250, 300)  # kept in a fit, for figure 6


@dataclass(frozen=True, slots=True)
class DescentSettings:
    """Settings of Algorithm 2. The paper prints SGD at 1e-3, which makes little progress in 300 steps (lab/LOG.md).

    >>> import benchcast as bc
    >>> as_printed = bc.DescentSettings(optimizer="sgd", rates=(1e-3,))
    >>> as_printed.steps, as_printed.activation
    (300, 'sigmoid')
    """

    steps: int = 300
    rates: tuple[float, ...] = (1e-3, 1e-2)  # selected on the validation models
    optimizer: str = "adam"  # or "sgd"
    activation: str = "sigmoid"  # or "softplus", "relu", "identity"
    hidden: int = 0  # width of a hidden layer; 0 is the paper's linear head
    standardise: bool = True  # features per dimension
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Problems:
    """Targets and model weights of each problem, a column of the head."""

    accuracy: Array  # P × M; arbitrary where both masks are 0
    chance: Array  # P
    train: Array  # P × M, 1 for models that train the head and the law
    validation: Array  # P × M, 1 for models that select the step
    rate: Array  # P


class DescentState(NamedTuple):
    """Everything that changes from epoch to epoch."""

    head: Head
    moments: Moments
    laws: Laws
    best: Head  # with the least error on the validation models so far
    best_step: Array  # P
    best_error: Array  # P, mean squared error of the validation models


class HistoryRow(NamedTuple):
    """What is recorded of one epoch."""

    capability: Array  # P × M
    slope: Array  # P
    offset: Array  # P
    train_mse: Array  # P
    validation_mse: Array  # P


def descend(inputs: Inputs, problems: Problems, settings: DescentSettings) -> tuple[DescentState, list[HistoryRow]]:
    """Algorithm 2: the state after the last step, with the best head of each problem, and a row for each head.

    The last epoch only measures the head that the last step made. On CUDA, one epoch is recorded and replayed.
    """
    record = not on_host(inputs.mean) and isinstance(inputs.blocks, list)
    state, history = start(inputs, problems, settings), []
    epochs = repeat(partial(epoch, inputs, problems, settings), state, settings.steps + 1, record=record)
    for after, row in steps(epochs, "steps", total=settings.steps + 1):
        state = after
        history.append(row)
    return state, history


def epoch(
    inputs: Inputs, problems: Problems, settings: DescentSettings, state: DescentState
) -> tuple[DescentState, HistoryRow]:
    """Steps 1, 2 and 3 of Algorithm 2, for all problems at once.

    1. Weights of the tokens, from their hidden states h, and capabilities of the models:
           w = f_θ(h)                                                  (3)
           c = Σ w · loss / characters                                 (1)
    2. The law, by Levenberg–Marquardt from that of the last epoch:
           A = chance + (1 − chance) · s,   s = σ(slope · c + offset)  (2)
           slope, offset = argmin E,   E = Σ train · (A − accuracy)²   (4)
    3. The head, by the gradient of E:
           pull = dE/dc = 2 · train · residual · rise · slope
           residual = A − accuracy,   rise = (1 − chance) · s · (1 − s)
           dE/dw = Σ pull · loss / characters
           θ ← θ − rate · dE/dθ,   or a step of Adam                   (5)

    The paper's α, β, γ are slope, −offset / slope and chance. dE/dθ has no term from the change of slope and offset
    with θ, because E is at its minimum by them. The head kept for a problem has the least error on the validation
    models. No value is read back to Python, so that a GPU can record the epoch and replay it.
    """
    xp, activate = array_namespace(inputs.mean), ACTIVATIONS[settings.activation]
    accuracy, chance, train = problems.accuracy, problems.chance[:, None], problems.train

    # Step 1: weights of the tokens, and capabilities
    head = on_raw_features(state.head, inputs.mean, inputs.spread)
    backs: dict[int, Back] = {}

    def forward(block: TokenBlock) -> Array:
        w, backs[block.start] = head.forward(block.features, activate)
        return block.losses.gather(w)

    c = xp.astype(sum(over_blocks(forward, inputs.blocks)) / inputs.characters, accuracy.dtype)

    # Step 2: the law
    laws = fit_laws(c, accuracy, problems.chance, weight=train, start=state.laws, steps=LAW_STEPS)
    slope, offset = laws.slope[:, None], laws.offset[:, None]
    s = sigmoid(slope * c + offset)
    residual, rise = at_share(s, chance) - accuracy, (1 - chance) * s * (1 - s)

    # The best head so far, on the validation models
    train_mse, validation_mse = (
        xp.sum(mask * residual**2, axis=-1) / xp.sum(mask, axis=-1) for mask in (train, problems.validation)
    )
    better = validation_mse < state.best_error
    best = map_arrays(xp.where, head.per_problem(better), state.head, state.best)
    best_step = xp.where(better, state.moments.count, state.best_step)
    best_error = xp.where(better, validation_mse, state.best_error)

    # Step 3: the head
    pull = xp.astype(2 * train * residual * rise * slope, inputs.mean.dtype) / inputs.characters

    def backward(block: TokenBlock) -> Head:
        return head.backward(block.features, backs[block.start], block.losses.project(pull))

    by_raw = reduce(partial(map_arrays, add), over_blocks(backward, inputs.blocks))
    gradient = on_standardised_features(by_raw, inputs.mean, inputs.spread)
    theta, moments = update(state.head, gradient, state.moments, rate=problems.rate, optimizer=settings.optimizer)

    state = DescentState(head=theta, moments=moments, laws=laws, best=best, best_step=best_step, best_error=best_error)
    return state, HistoryRow(
        capability=c, slope=laws.slope, offset=laws.offset, train_mse=train_mse, validation_mse=validation_mse
    )


def start(inputs: Inputs, problems: Problems, settings: DescentSettings) -> DescentState:
    """A new head, and its law fitted from many starts."""
    xp, activate = array_namespace(inputs.mean), ACTIVATIONS[settings.activation]
    head = new_head(
        inputs.mean,
        len(problems.chance),
        activation=settings.activation,
        hidden=settings.hidden,
        seed=settings.seed,
    )
    raw = on_raw_features(head, inputs.mean, inputs.spread)
    parts = over_blocks(lambda block: block.losses.gather(raw.forward(block.features, activate)[0]), inputs.blocks)
    c = xp.astype(sum(parts) / inputs.characters, problems.accuracy.dtype)
    # In numpy: hundreds of steps on small arrays are slower on a GPU than the whole descent.
    c, accuracy, chance, train = map(to_numpy, (c, problems.accuracy, problems.chance, problems.train))
    laws = fit_laws(c, accuracy, chance, weight=train)
    never, zero = xp.zeros_like(problems.chance), map_arrays(xp.zeros_like, head)
    return DescentState(
        head=head,
        moments=Moments(first=zero, second=zero, count=never[0:1]),
        laws=Laws(*(place(values, device_name(inputs.mean)) for values in laws)),
        best=head,
        best_step=never,
        best_error=xp.full_like(never, np.inf),
    )


def token_weights(inputs: Inputs, head: Head, settings: DescentSettings) -> Array:
    """The weight of every token for every problem (equation 3), N × P."""
    activate = ACTIVATIONS[settings.activation]
    raw = on_raw_features(head, inputs.mean, inputs.spread)
    parts = over_blocks(lambda block: raw.forward(block.features, activate)[0].T, inputs.blocks)
    return array_namespace(inputs.mean).concat(list(parts))


def paper(dataset: Dataset, folds: Sequence[Fold], *, settings: DescentSettings | None = None) -> list[list[TaskFit]]:
    """Algorithm 2 for all folds and tasks in one descent; the learning rate and the step have the least error on the
    validation models."""
    settings = settings or DescentSettings()
    if dataset.features is None:
        raise NotEnoughDataError(
            "method 'paper' needs features of a scorer; run `benchcast features` or `benchcast import features`"
        )
    folds = [_with_validation(fold, dataset.groups) for fold in folds]
    dataset = keep_on_device(dataset)
    inputs = prepare_inputs(dataset, standardise=settings.standardise)
    state, history = descend(inputs, _problems(dataset, folds, settings), settings)
    weights = to_numpy(token_weights(inputs, state.best, settings))
    history = [HistoryRow(*map(to_numpy, row)) for row in history]
    error, step = to_numpy(state.best_error), to_numpy(state.best_step)

    shape = (len(folds), len(dataset.tasks), len(settings.rates))
    problem, best_rate = np.arange(error.size).reshape(shape), error.reshape(shape).argmin(axis=-1)

    def fit(f: int, t: int) -> TaskFit:
        r = best_rate[f, t]
        p = problem[f, t, r]
        notes = {**asdict(settings), "rate": float(settings.rates[r]), "best_step": int(step[p])}
        return _task_fit(dataset, folds[f], t, weights=weights[:, p], notes=notes, history=_shown(history, p))

    return [[fit(f, t) for t in range(shape[1])] for f in range(shape[0])]


def _problems(dataset: Dataset, folds: Sequence[Fold], settings: DescentSettings) -> Problems:
    """All combinations of fold, task and rate, in this order, as one axis of problems."""
    accuracy, chance, train, validation, rate = [], [], [], [], []
    for fold in folds:
        for observed, task in zip(dataset.accuracy, dataset.tasks, strict=True):
            known = np.isfinite(observed)
            selecting = known & fold.validation
            for r in settings.rates:
                accuracy.append(np.where(known, observed, 0.0))
                chance.append(task.chance)
                train.append(known & fold.train)
                validation.append(selecting if selecting.any() else known & fold.train)
                rate.append(r)

    def placed(rows: npt.ArrayLike, dtype: type = np.float64) -> Array:
        return place(np.array(rows, dtype), dataset.device)

    return Problems(
        accuracy=placed(accuracy),
        chance=placed(chance),
        train=placed(train),
        validation=placed(validation),
        rate=placed(rate, np.float32),
    )


def _with_validation(fold: Fold, families: npt.NDArray[np.str_]) -> Fold:
    """Without validation models, use the training family with the second most models."""
    if fold.validation.any():
        return fold
    names, first, counts = np.unique(families[fold.train], return_index=True, return_counts=True)
    if len(names) < 2:
        raise NotEnoughDataError("method 'paper' needs validation models, or two training families")
    order = np.lexsort((first, -counts))
    hidden: Bools = fold.train & (families == names[order[1]])
    return Fold(fold.train & ~hidden, hidden, fold.test)


def _shown(history: Sequence[HistoryRow], p: int) -> dict[str, npt.NDArray[Any]]:
    """The history of problem number `p` that a fit stores."""
    steps = [step for step in range(len(history)) if step in SHOWN_STEPS or step == len(history) - 1]
    return {
        "step": np.array(steps),
        "capability": np.stack([history[step].capability[p] for step in steps]),
        "slope": np.array([history[step].slope[p] for step in steps]),
        "offset": np.array([history[step].offset[p] for step in steps]),
        "train_mse": np.array([row.train_mse[p] for row in history]),
        "validation_mse": np.array([row.validation_mse[p] for row in history]),
    }


def _task_fit(
    dataset: Dataset,
    fold: Fold,
    t: int,
    *,
    weights: npt.NDArray[np.float32],
    notes: dict[str, Any],
    history: dict[str, npt.NDArray[Any]],
) -> TaskFit:
    task, observed = dataset.tasks[t], dataset.accuracy[t]
    row = np.ascontiguousarray(weights, np.float32)[None]
    weighted = WeightedLoss(views=(LossView.NATS,), weights=row, unit=dataset.characters)
    capability = weighted.of(dataset.nats)
    known = np.isfinite(observed)
    train = fold.train & known
    law = fit_law(capability[train], observed[train], task.chance)
    out_of_fold = fold.validation & known  # errors on training models are not out-of-fold
    errors = law.accuracy(capability[out_of_fold]) - observed[out_of_fold]
    kind = "validation models, which also chose the step"
    return TaskFit(
        task=task,
        method="paper",
        capability=weighted,
        law=law,
        out_of_fold=OutOfFoldErrors.of(dataset, [out_of_fold], errors, kind=kind),
        range=(float(capability[train].min()), float(capability[train].max())),
        notes=notes,
        history=history,
    )
