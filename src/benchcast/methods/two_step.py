"""The method `two-step`: parameters and tokens → loss on the task's answers → accuracy (Bhagia et al. 2024).

Step one is a ladder, loss = E + A / params^a + B / tokens^b; step two a logistic curve with free floor and ceiling
from the observed losses. A forecast uses only params and tokens of a new model. A family with enough models has its
own ladder; an unseen family uses the ladder of all models.
Axes: M models, G grid points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchcast.losses.dataset import Dataset, LossView
from benchcast.methods.capability import ScalingLadder, weighted_loss
from benchcast.methods.distances import select_candidate
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.logistic4 import fit_curves, readings
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Bools, Floats, ModelMetadata
from benchcast.splits import LEFT_OUT, Fold
from benchcast.steps import steps

GRID, ROUNDS = 9, 4  # exponents in each direction, and number of grid refinements
FEWEST = 8  # models of a family with its own ladder
ABSENT = "no training model has its parameters and tokens in models.csv"


def two_step(dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
    """A ladder and a curve per fold and task."""
    fits: list[list[TaskFit]] = [[] for _ in folds]
    for t, task in enumerate(steps(dataset.tasks, "tasks")):
        name, mask = next(iter(readings(dataset, task).items()))
        loss = weighted_loss(dataset.nats, [LossView.NATS], mask) / dataset.characters
        ladder = _ladders(dataset.metadata, loss)
        for row, fold in zip(fits, folds, strict=True):
            row.append(_fit(dataset, fold, t, loss=loss, ladder=ladder, name=name))
    return fits


def _fit(
    dataset: Dataset, fold: Fold, t: int, *, loss: Floats, ladder: Callable[[Bools], Floats], name: str
) -> TaskFit:
    task, observed, metadata = dataset.tasks[t], dataset.accuracy[t], dataset.metadata
    sized = (metadata.params > 0) & (metadata.training_tokens > 0) & (loss > 0)
    known = fold.seen & np.isfinite(observed) & sized
    if known.sum() < FEWEST:
        why = f"fewer than {FEWEST} such models" if known.any() else ABSENT
        return TaskFit(
            task=task,
            method="two-step",
            capability=ScalingLadder(families=("",), laws=np.zeros((1, 5), np.float32)),
            law=SigmoidLaw.failed(task.chance, why),
            out_of_fold=OutOfFoldErrors.none(LEFT_OUT),
            range=(np.nan, np.nan),
        )

    def forecasts(sets: Sequence[Bools]) -> Floats:
        shape = (len(sets), len(observed))
        curves = fit_curves(np.broadcast_to(loss, shape), np.broadcast_to(observed, shape), np.stack(sets))
        ladders = [ScalingLadder(families=("",), laws=ladder(learn)[None]) for learn in sets]
        expected = np.stack([of_all.loss(metadata) for of_all in ladders])
        return curves.accuracy(expected)[:, None]

    selected = select_candidate(forecasts, dataset, observed, known=known)
    families = ("", *(str(f) for f in np.unique(dataset.families[known]) if _has_ladder(dataset, known, f)))
    laws = np.stack([ladder(known & (dataset.families == f) if f else known) for f in families]).astype(np.float32)
    capability = ScalingLadder(families=families, laws=laws)
    expected = capability.loss(metadata)[known]
    return TaskFit(
        task=task,
        method="two-step",
        capability=capability,
        law=fit_curves(loss[None], observed[None], known[None]).law(0),
        out_of_fold=selected.out_of_fold,
        range=(float(expected.min()), float(expected.max())),
        notes={"loss of": name},
    )


def _has_ladder(dataset: Dataset, known: Bools, family: str) -> bool:
    """Whether a family has enough sizes and training lengths for its own ladder."""
    rows, metadata = known & (dataset.families == family), dataset.metadata
    sizes, lengths = (len(np.unique(x[rows])) for x in (metadata.params, metadata.training_tokens))
    return bool(rows.sum() >= FEWEST and sizes >= 3 and lengths >= 2)


def _ladders(metadata: ModelMetadata, loss: Floats) -> Callable[[Bools], Floats]:
    """A function that fits the ladder of a set of models and caches it, because folds share sets."""
    fitted: dict[bytes, Floats] = {}

    def ladder(learn: Bools) -> Floats:
        key = learn.tobytes()
        if key not in fitted:
            fitted[key] = fit_ladder(metadata.params[learn], metadata.training_tokens[learn], loss[learn])
        return fitted[key]

    return ladder


def fit_ladder(params: Floats, tokens: Floats, loss: Floats) -> Floats:
    """E, log A, a, log B, b with the least squared relative error.

    Exponents are found on a grid that is refined around its best point; the other parameters have a closed form.
    """
    p, d = params / np.exp(np.log(params).mean()), tokens / np.exp(np.log(tokens).mean())
    centre, reach = np.array([0.25, 0.25]), 8.0
    factors, least = np.zeros(3), np.inf
    for _ in range(ROUNDS):
        a, b = (g.ravel() for g in np.meshgrid(*(c * reach ** np.linspace(-1, 1, GRID) for c in centre)))
        solutions, error = _solve(
            np.stack([np.ones((len(a), len(p))), p ** -a[:, None], d ** -b[:, None]], axis=2), loss
        )
        at = int(np.argmin(error))
        if error[at] < least:
            factors, least, centre = solutions[at], float(error[at]), np.array([a[at], b[at]])
        reach **= 2 / (GRID - 1)
    return np.array([factors[0], *_term(factors[1], centre[0], params), *_term(factors[2], centre[1], tokens)])


def _solve(columns: Floats, loss: Floats) -> tuple[Floats, Floats]:
    """Non-negative factors of three columns at every grid point (G × 3), and their squared relative errors (G).

    Solves all seven subsets of columns and returns the best solution with non-negative factors.
    """
    relative = columns / loss[:, None]
    factors, least = np.zeros((len(columns), 3)), np.full(len(columns), np.inf)
    for used in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]):
        part = relative[:, :, used]
        gram = part.transpose(0, 2, 1) @ part
        gram[:, range(len(used)), range(len(used))] *= 1 + 1e-9
        solved = np.linalg.solve(gram, part.sum(axis=1)[..., None])
        error = (((part @ solved)[..., 0] - 1) ** 2).sum(axis=1)
        better = (solved[..., 0] >= 0).all(axis=1) & (error < least)
        mine = np.zeros((len(columns), 3))
        mine[:, used] = solved[..., 0]
        factors, least = np.where(better[:, None], mine, factors), np.where(better, error, least)
    return factors, least


def _term(factor: float, exponent: float, quantity: Floats) -> tuple[float, float]:
    """Log factor and exponent on the scale of the quantity; a factor of 0 becomes e^-200."""
    if factor <= 0:
        return -200.0, 0.0
    return float(np.log(factor) + exponent * np.log(quantity).mean()), float(exponent)
