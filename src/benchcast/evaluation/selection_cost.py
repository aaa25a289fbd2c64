"""Select texts whose forecasts agree with those of all texts, and restrict a fit to them.

A fit on all texts gives the contribution of each text to each task's capability. Texts are selected so that the
unweighted sum of their contributions reproduces the capability of all texts and agrees with the scores of the training
models; the objective adds the logs of both squared errors of accuracy over tasks, so that every task counts. Texts are
added greedily, then exchanged one by one. The fit on the selected texts keeps the tokens' weights and rescales the
law. The sum is unweighted because refitted weights of single texts generalise worse (lab/LOG.md).
Axes: T tasks, M models, S texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.compare import forecast_held_out
from benchcast.evaluation.comparison import HeldOutForecasts, geometric_mean
from benchcast.losses.dataset import Dataset, view
from benchcast.messages import plain
from benchcast.methods import CAPABILITY_METHOD, METHODS
from benchcast.methods.capability import WeightedLoss, one_weighted_loss
from benchcast.methods.distances import Distances
from benchcast.methods.interval_width import AS_BEFORE
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats, Ints
from benchcast.splits import Fold, family_balanced
from benchcast.steps import steps

EXCHANGES = 4  # rounds in which every selected text may be exchanged
LEVEL_LAW = 1e-4  # a law whose accuracies of all models differ by less is flat
LEAST_ERROR = 1e-7  # lower bound of squared errors of accuracy
STEEP = 0.05  # lower bound of the law's slope, as a fraction of its largest slope, where scores are inverted
CHOSEN, RANDOM, SPREAD = "chosen", "at random", "at random from each source"
WAYS = (CHOSEN, SPREAD, RANDOM)
DRAWS = 2  # repetitions of the random selections


@dataclass(frozen=True, slots=True)
class TaskObjective:
    """Target of the selection for one task, on the training models with its score; arrays are centred."""

    parts: Floats  # M × S: contribution of each text to capability
    capability: Floats  # M: the sum over all texts
    scored: Floats  # M: capability at which the law gives the observed score
    weight: Floats  # M: squared error of accuracy per squared error of capability, balanced over families
    error: float  # squared error of the fit on all texts

    def loss(self, sums: Floats) -> Floats:
        """Sum of the log errors against all texts and against the scores, for sums of texts (M × candidates)."""
        size = np.maximum(self.weight @ sums**2, 1e-300)
        from_all = self.error + self._error_left(self.capability, sums, size)
        return np.asarray(np.log(from_all) + np.log(np.maximum(self._error_left(self.scored, sums, size), LEAST_ERROR)))

    def _error_left(self, target: Floats, sums: Floats, size: Floats) -> Floats:
        """Squared error of the best non-negative multiple of each sum."""
        along = (self.weight * target) @ sums
        return np.maximum(self.weight @ target**2 - np.where(along > 0, along**2 / size, 0.0), 0.0)


def task_objectives(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit]) -> list[TaskObjective]:
    """One objective for each task whose forecast depends on the losses."""
    pairs = [(fit, a) for fit, a in zip(fits, dataset.accuracy, strict=True) if depends_on_losses(dataset, fit)]
    return [_task_objective(dataset, fit, fold.seen & np.isfinite(a), a) for fit, a in pairs]


def depends_on_losses(dataset: Dataset, fit: TaskFit) -> bool:
    """Whether a forecast depends on the losses; it does not if all scores are at chance or fall with capability."""
    if not fit.reads_losses or fit.law.failure:
        return False
    capability = fit.capability.of(dataset.nats, dataset.metadata)
    return float(np.ptp(fit.law.accuracy(capability))) > LEVEL_LAW


def _task_objective(dataset: Dataset, fit: TaskFit, rows: Bools, observed: Floats) -> TaskObjective:
    law = fit.law
    parts = parts_of_texts(dataset, fit)[rows]
    capability = parts.sum(axis=1)
    slope = _slope(law, capability)
    steep = np.sign(law.slope) * np.maximum(np.abs(slope), STEEP * np.abs(slope).max())
    balance = family_balanced(dataset.groups[rows])
    errors = observed[rows] - law.accuracy(capability)
    weight = balance * slope**2
    share = weight / max(float(weight.sum()), 1e-300)
    scored = capability + errors / steep
    return TaskObjective(
        parts=parts - share @ parts,
        capability=capability - share @ capability,
        scored=scored - share @ scored,
        weight=weight,
        error=max(float(balance @ errors**2), LEAST_ERROR),
    )


def _slope(law: SigmoidLaw, capability: Floats) -> Floats:
    """Derivative of accuracy with respect to capability, at each model."""
    step = 1e-4 * max(float(np.ptp(capability)), 1e-12)
    return (law.accuracy(capability + step) - law.accuracy(capability - step)) / (2 * step)


def parts_of_texts(dataset: Dataset, fit: TaskFit) -> Floats:
    """Contribution of each text to the capability of each model (M × S)."""
    starts = np.flatnonzero(np.diff(dataset.reference_tokens.text, prepend=-1))
    number = dataset.reference_tokens.text[starts]
    total = np.zeros((len(dataset.models), number[-1] + 1))
    loss = _weighted_loss_of(fit)
    for name, weights in zip(loss.views, loss.weights, strict=True):
        values = view(dataset.nats, name)
        total[:, number] += np.add.reduceat(values * weights, starts, axis=1, dtype=np.float64)
    return total / loss.unit


def _weighted_loss_of(fit: TaskFit) -> WeightedLoss:
    """What a fit that reads losses reads of them."""
    loss = one_weighted_loss(fit.capability)
    assert loss is not None
    return loss


def choose_texts(objectives: Sequence[TaskObjective], budget: int) -> Ints:
    """Select texts greedily, then improve the selection by exchanges.

    Parameters
    ----------
    objectives : one for each task
    budget : number of texts to select

    Returns
    -------
    indices of the selected texts in the order of their selection; all texts if the budget allows
    """
    texts = objectives[0].parts.shape[1]
    if budget >= texts:
        return np.arange(texts)
    chosen: list[int] = []
    sums = [np.zeros(len(g.capability)) for g in objectives]
    for _ in range(budget):
        best = _best_addition(objectives, sums, taken=chosen)
        chosen.append(best)
        sums = [x + g.parts[:, best] for g, x in zip(objectives, sums, strict=True)]
    for _ in range(EXCHANGES):
        before = list(chosen)
        for position, old in enumerate(before):
            without = [x - g.parts[:, old] for g, x in zip(objectives, sums, strict=True)]
            chosen[position] = _best_addition(objectives, without, taken=[c for c in chosen if c != old])
            sums = [x + g.parts[:, chosen[position]] for g, x in zip(objectives, without, strict=True)]
        if chosen == before:
            break
    return np.array(chosen, np.int64)


def _law_of_part(law: SigmoidLaw, part_capability: Floats, full_capability: Floats) -> SigmoidLaw:
    """The law of the full capability as one of a part of it, by a linear regression weighted by the law's slope."""
    weight = _slope(law, full_capability) ** 2 + 1e-300
    mean_part, mean_whole = (float(np.average(x, weights=weight)) for x in (part_capability, full_capability))
    spread = float(np.average((part_capability - mean_part) ** 2, weights=weight))
    slope = float(np.average((part_capability - mean_part) * (full_capability - mean_whole), weights=weight)) / max(
        spread, 1e-300
    )
    offset = law.offset + law.slope * (mean_whole - max(slope, 0.0) * mean_part)
    return replace(law, slope=law.slope * max(slope, 0.0), offset=offset)


def _best_addition(objectives: Sequence[TaskObjective], sums: Sequence[Floats], *, taken: Sequence[int]) -> int:
    """Index of the text whose addition gives the smallest loss."""
    total = np.zeros(objectives[0].parts.shape[1])
    for objective, x in zip(objectives, sums, strict=True):
        total += objective.loss(x[:, None] + objective.parts)
    total[list(taken)] = np.inf
    return int(np.argmin(total))


def cut_fit(dataset: Dataset, fold: Fold, t: int, fit: TaskFit, chosen: Ints) -> TaskFit:
    """Restrict the fit of task number `t` to some of the texts: same weights, and the law rescaled to their sum.

    Its out-of-fold errors are those of the full fit, scaled up by the error that the missing texts add. What candidates
    disagree about is a loss of all texts, so that the width of intervals follows the distance alone.
    """
    keep = np.isin(dataset.reference_tokens.text, chosen)
    if not fit.reads_losses or keep.all():
        return fit
    whole, observed = _weighted_loss_of(fit), dataset.accuracy[t]
    part = replace(whole, weights=np.ascontiguousarray(whole.weights[:, keep]))
    capability = part.of(dataset.nats[:, keep])
    known = fold.seen & np.isfinite(observed)
    full_capability = fit.capability.of(dataset.nats, dataset.metadata)
    law = _law_of_part(fit.law, capability[known], full_capability[known])
    extra_error = float(np.mean((law.accuracy(capability) - fit.law.accuracy(full_capability))[known] ** 2))
    fit_error = float(np.mean(fit.out_of_fold.errors**2)) if len(fit.out_of_fold.errors) else 0.0
    factor = np.sqrt(1 + extra_error / fit_error) if fit_error > 0 else 1.0
    return replace(
        fit,
        capability=part,
        law=law,
        out_of_fold=replace(fit.out_of_fold, errors=fit.out_of_fold.errors * factor, disagreement=np.zeros(0)),
        disagreement=None,
        width=AS_BEFORE,
        range=(float(capability[known].min()), float(capability[known].max())),
        profile=None if fit.profile is None else Distances(dataset.for_texts(chosen)).profile(fold.seen),
        history={},
    )


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """Errors of forecasts of held-out models from some of the texts."""

    way: str  # how the texts were selected, one of `WAYS`
    texts: int
    draw: int
    mse: dict[str, float]  # by task
    coverage: dict[str, float]  # of the prediction interval, by task

    def ratio(self, full: BudgetResult) -> float:
        """Error ÷ error with all texts, geometric mean over tasks; NaN if a task has no error."""
        parts = [self.mse[t] / full.mse[t] if full.mse[t] > 0 else math.nan for t in full.mse]
        return geometric_mean(parts)

    def as_row(self, full: BudgetResult, split: str) -> dict[str, Any]:
        """The result as a row for tables and JSON; undefined numbers are NaN."""
        return {
            "split": split,
            "texts": self.texts,
            "way": self.way,
            "draw": self.draw,
            "mse": geometric_mean([*self.mse.values()]),
            "ratio": self.ratio(full),
            "coverage": float(np.mean([*self.coverage.values()])),
            "tasks": self.mse,
        }


@dataclass(frozen=True, slots=True)
class SelectionCost:
    """Errors on held-out models with fewer texts, or the reason why they were not measured."""

    split: str | None = None  # how models were held out
    full: dict[str, float] = field(default_factory=dict)  # mean squared error with all texts, by task
    rows: tuple[dict[str, Any], ...] = ()  # one for each number of texts and way to select; see `BudgetResult.as_row`
    remark: str = ""  # why nothing was measured

    def __repr__(self) -> str:
        return f"<SelectionCost: {self.remark or f'{len(self.rows)} rows, split by {self.split}'}>"

    def to_dict(self) -> dict[str, Any]:
        """The cost as plain values; undefined numbers are None."""
        why = {"remark": self.remark} if self.remark else {"full": self.full}
        return dict(plain({"split": self.split, **why, "costs": list(self.rows)}))


@dataclass(frozen=True)
class FullTextFits:
    """Fits on all texts in every fold, and the objectives of the selection."""

    dataset: Dataset
    folds: tuple[Fold, ...]
    fits: tuple[list[TaskFit], ...]  # by fold and task
    objectives: tuple[list[TaskObjective], ...]  # by fold

    @property
    def texts(self) -> int:
        """Number of texts."""
        return int(self.objectives[0][0].parts.shape[1])


def prepare(dataset: Dataset, folds: Sequence[Fold]) -> FullTextFits:
    """Fit all texts in every fold.

    Parameters
    ----------
    dataset : losses and scores of the models
    folds : which models are trained on and tested

    Returns
    -------
    the fits and the objectives of the selection, by fold
    """
    fits = tuple(METHODS[CAPABILITY_METHOD].learn(dataset, folds))
    objectives = tuple(task_objectives(dataset, fold, row) for fold, row in zip(folds, fits, strict=True))
    if not all(objectives):
        raise NotEnoughDataError("no task has a law to select texts for; see `benchcast compare`")
    return FullTextFits(dataset=dataset, folds=tuple(folds), fits=fits, objectives=objectives)


def cost(full_fits: FullTextFits, way: str, texts: int, *, draw: int = 0) -> BudgetResult:
    """Select texts in every fold and forecast the fold's test models from them.

    Parameters
    ----------
    full_fits : the fits on all texts
    way : how to select, one of `WAYS`
    texts : number of texts to select
    draw : number of the repetition, the seed of random selections

    Returns
    -------
    errors and coverage by task
    """
    dataset, held = full_fits.dataset, []
    for k, fold in enumerate(full_fits.folds):
        rng = np.random.default_rng([draw, k])
        chosen = np.sort(pick(dataset, full_fits.objectives[k], way, texts=texts, rng=rng))
        small = dataset.for_texts(chosen)
        small_fits = [cut_fit(dataset, fold, t, fit, chosen) for t, fit in enumerate(full_fits.fits[k])]
        held.append([forecast_held_out(small, [fold], [small_fits], t=t) for t in range(len(small_fits))])
    measures = {
        task.name: HeldOutForecasts.joined(of_folds).measures()
        for task, of_folds in zip(dataset.tasks, zip(*held, strict=True), strict=True)
    }
    return BudgetResult(
        way=way,
        texts=min(texts, full_fits.texts),
        draw=draw,
        mse={task: m["mse"] for task, m in measures.items()},
        coverage={task: m["coverage"] for task, m in measures.items()},
    )


def costs(full_fits: FullTextFits, texts: int, *, full: BudgetResult, split: str) -> list[dict[str, Any]]:
    """One row for the selection, and one for each random draw of equally many texts."""
    draws = [(way, draw) for way in WAYS for draw in range(1 if way == CHOSEN else DRAWS)]
    return [cost(full_fits, way, texts, draw=draw).as_row(full, split) for way, draw in steps(draws, "draws of texts")]


def measure_costs(
    full_fits: FullTextFits, budget: int, split: str, *, on_step: Callable[[str], None] = lambda step: None
) -> SelectionCost:
    """Cost of half the budget, the budget and twice the budget; `on_step` is called with a line for each."""
    full = cost(full_fits, CHOSEN, full_fits.texts)
    rows: list[dict[str, Any]] = []
    for texts in steps(sorted({max(1, budget // 2), budget, 2 * budget}), "numbers of texts"):
        if texts < full_fits.texts:
            on_step(f"{texts} texts")
            rows += costs(full_fits, texts, full=full, split=split)
    return SelectionCost(split=split, full=full.mse, rows=tuple(rows))


def pick(
    dataset: Dataset, objectives: Sequence[TaskObjective], way: str, *, texts: int, rng: np.random.Generator
) -> Ints:
    """Indices of texts selected in the given way."""
    total = objectives[0].parts.shape[1]
    if texts >= total:
        return np.arange(total)
    if way == CHOSEN:
        return choose_texts(objectives, texts)
    if way == RANDOM:
        return rng.choice(total, texts, replace=False)
    source = np.zeros(total, np.int64)
    source[dataset.reference_tokens.text] = dataset.reference_tokens.source
    rank = np.empty(total)
    for s in np.unique(source):  # the n-th text of every source precedes the n + 1st of any source
        in_source = np.flatnonzero(source == s)
        rank[in_source] = rng.permutation(len(in_source)) + rng.random(len(in_source))
    return np.argsort(rank)[:texts]
