"""Choose the texts that carry the forecast, and cut a fit down to them.

A fit on all texts says what each text adds to each task's capability. Texts are chosen so that their plain sum does
two things on the seen models, both in squared error of accuracy and on the log scale so that every task counts: give
back the capability that all texts give, and agree with the scores. First the text that helps most, again and again;
then exchanges of one text for another. The fit on the chosen texts keeps the tokens' weights and the
law, set for their sum. A plain sum, because weights of single texts fitted once more carry over worse (LOG.md).
Axes: T tasks, M models, S texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchcast.dataset import Dataset, Fold
from benchcast.folds import family_balanced
from benchcast.law import SigmoidLaw
from benchcast.records import Bools, Floats, Ints
from benchcast.task_fit import TaskFit, view, weighted_loss

EXCHANGES = 4  # rounds in which every chosen text may be exchanged
LEVEL_LAW = 1e-4  # accuracy; a law that rises by less over all models is level
LEAST_ERROR = 1e-7  # squared; below this nothing is gained
STEEP = 0.05  # where the law is flatter than this share of its steepest part, a score says little of capability


@dataclass(frozen=True, slots=True)
class TaskObjective:
    """What the sum of the chosen texts should be for one task, on the seen models that have its score; all centred."""

    parts: Floats  # M × S: what each text adds to capability
    capability: Floats  # M: the sum over all texts
    scored: Floats  # M: the capability at which the law gives the observed score
    weight: Floats  # M: squared error of accuracy per squared error of capability, every family counting the same
    error: float  # squared, of the fit on all texts

    def loss(self, sums: Floats) -> Floats:
        """How badly sums of texts (M × candidates) do: log errors against all texts and against the scores."""
        size = np.maximum(self.weight @ sums**2, 1e-300)
        from_all = self.error + self._left(self.capability, sums, size)
        return np.asarray(np.log(from_all) + np.log(np.maximum(self._left(self.scored, sums, size), LEAST_ERROR)))

    def _left(self, target: Floats, sums: Floats, size: Floats) -> Floats:
        """Squared error that the best multiple of each sum leaves; a sum that falls with the target is no use."""
        along = (self.weight * target) @ sums
        return np.maximum(self.weight @ target**2 - np.where(along > 0, along**2 / size, 0.0), 0.0)


def task_objectives(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit]) -> list[TaskObjective]:
    """One per task that has a law over token losses; a task whose law is level cannot tell texts apart."""
    pairs = [(fit, a) for fit, a in zip(fits, dataset.accuracy, strict=True) if depends_on_losses(dataset, fit)]
    return [_task_objective(dataset, fit, fold.seen & np.isfinite(a), a) for fit, a in pairs]


def depends_on_losses(dataset: Dataset, fit: TaskFit) -> bool:
    """Whether a forecast depends on the losses: not where scores are all at chance, or fall as models get better."""
    if not fit.reads_losses or fit.law.failure:
        return False
    capability = weighted_loss(dataset.nats, fit.reads, fit.weights) / fit.unit
    return float(np.ptp(fit.law.accuracy(capability))) > LEVEL_LAW


def _task_objective(dataset: Dataset, fit: TaskFit, known: Bools, observed: Floats) -> TaskObjective:
    law = fit.law
    parts = parts_of_texts(dataset, fit)[known]
    capability = parts.sum(axis=1)
    slope = _slope(law, capability)
    steep = np.sign(law.slope) * np.maximum(np.abs(slope), STEEP * np.abs(slope).max())
    balance = family_balanced(dataset.families[known])
    off = observed[known] - law.accuracy(capability)
    weight = balance * slope**2
    share = weight / max(float(weight.sum()), 1e-300)
    scored = capability + off / steep
    return TaskObjective(
        parts - share @ parts,
        capability - share @ capability,
        scored - share @ scored,
        weight,
        max(float(balance @ off**2), LEAST_ERROR),
    )


def _slope(law: SigmoidLaw, capability: Floats) -> Floats:
    """How accuracy changes with capability, at each model."""
    step = 1e-4 * max(float(np.ptp(capability)), 1e-12)
    return (law.accuracy(capability + step) - law.accuracy(capability - step)) / (2 * step)


def parts_of_texts(dataset: Dataset, fit: TaskFit) -> Floats:
    """What each text adds to the capability of each model (M × S)."""
    starts = np.flatnonzero(np.diff(dataset.reference_tokens.text, prepend=-1))
    number = dataset.reference_tokens.text[starts]
    total = np.zeros((len(dataset.models), number[-1] + 1))
    for name, weights in zip(fit.reads, fit.weights, strict=True):
        total[:, number] += np.add.reduceat(view(dataset.nats, name) * weights, starts, axis=1, dtype=np.float64)
    return total / fit.unit


def choose_texts(objectives: Sequence[TaskObjective], budget: int) -> Ints:
    """Numbers of the chosen texts, in the order in which they were found; all of them where the budget allows."""
    texts = objectives[0].parts.shape[1]
    if budget >= texts:
        return np.arange(texts)
    chosen: list[int] = []
    sums = [np.zeros(len(g.capability)) for g in objectives]
    for _ in range(budget):
        best = _best(objectives, sums, chosen)
        chosen.append(best)
        sums = [x + g.parts[:, best] for g, x in zip(objectives, sums, strict=True)]
    for _ in range(EXCHANGES):
        before = list(chosen)
        for place, old in enumerate(before):
            without = [x - g.parts[:, old] for g, x in zip(objectives, sums, strict=True)]
            chosen[place] = _best(objectives, without, [c for c in chosen if c != old])
            sums = [x + g.parts[:, chosen[place]] for g, x in zip(objectives, without, strict=True)]
        if chosen == before:
            break
    return np.array(chosen, np.int64)


def _set_for(law: SigmoidLaw, part: Floats, whole: Floats) -> SigmoidLaw:
    """The law of the whole capability as a law of a part of it, by the line between them where accuracy changes."""
    weight = _slope(law, whole) ** 2 + 1e-300
    mean_part, mean_whole = (float(np.average(x, weights=weight)) for x in (part, whole))
    spread = float(np.average((part - mean_part) ** 2, weights=weight))
    rise = float(np.average((part - mean_part) * (whole - mean_whole), weights=weight)) / max(spread, 1e-300)
    offset = law.offset + law.slope * (mean_whole - max(rise, 0.0) * mean_part)
    return replace(law, slope=law.slope * max(rise, 0.0), offset=offset)


def _best(objectives: Sequence[TaskObjective], sums: Sequence[Floats], taken: Sequence[int]) -> int:
    """The text whose addition does best."""
    total = np.zeros(objectives[0].parts.shape[1])
    for goal, x in zip(objectives, sums, strict=True):
        total += goal.loss(x[:, None] + goal.parts)
    total[list(taken)] = np.inf
    return int(np.argmin(total))


def cut_fit(dataset: Dataset, fold: Fold, t: int, fit: TaskFit, wanted: Ints) -> TaskFit:
    """The fit of task number `t` on some of the texts: the same weights there, and the same law, set for their sum.

    Its honest errors are those of the whole fit, made larger by what the missing texts add to them.
    """
    keep = np.isin(dataset.reference_tokens.text, wanted)
    if not fit.reads_losses or keep.all():
        return fit if not fit.reads_losses else replace(fit, weights=fit.weights[:, keep])
    weights, observed = np.ascontiguousarray(fit.weights[:, keep]), dataset.accuracy[t]
    capability = weighted_loss(dataset.nats[:, keep], fit.reads, weights) / fit.unit
    known = fold.seen & np.isfinite(observed)
    whole = weighted_loss(dataset.nats, fit.reads, fit.weights) / fit.unit
    law = _set_for(fit.law, capability[known], whole[known])
    added = float(np.mean((law.accuracy(capability) - fit.law.accuracy(whole))[known] ** 2))
    own = float(np.mean(fit.out_of_fold.errors**2)) if len(fit.out_of_fold.errors) else 0.0
    wider = np.sqrt(1 + added / own) if own > 0 else 1.0
    return replace(
        fit,
        weights=weights,
        law=law,
        out_of_fold=replace(fit.out_of_fold, errors=fit.out_of_fold.errors * wider),
        range=(float(capability[known].min()), float(capability[known].max())),
        history={},
    )
