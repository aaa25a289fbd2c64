"""Summarise the comparison of a task in words: the error, the best baseline, and reasons for caution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.evaluate import Comparison, HeldOutForecasts
from benchcast.intervals import distance
from benchcast.methods import BASELINES
from benchcast.ranking import FEWEST_FAMILIES, task_ratio
from benchcast.records import Bools

FEW = 5  # with fewer held-out models nothing is claimed
SCORE_NOISE = 1.5  # errors within this factor of the scores' noise cannot be much smaller


@dataclass(frozen=True, slots=True)
class Verdict:
    """Summary of one task; every part is a clause or empty."""

    task: str
    good: str  # the error of the forecasts
    against: str = ""  # comparison with the best baseline, and with a better method if there is one
    trust: str = ""  # reasons for caution

    @property
    def sentence(self) -> str:
        """All parts as one sentence."""
        return "; ".join(part for part in (self.good, self.against, self.trust) if part) + "."


def verdict_on(comparison: Comparison, task: str, method: str | None = None) -> Verdict:
    """Summarise one method's forecasts of a task.

    Parameters
    ----------
    comparison : the result of `compare`
    task : a task of the comparison
    method : a method of the comparison; default: the first

    Returns
    -------
    the summary in words
    """
    name = method or comparison.methods[0]
    measures = comparison.measures(task, name)
    n = int(measures["n_test"])
    if not math.isfinite(measures["mse"]):
        return Verdict(task, f"{name} gives no forecast of this task")
    good = f"Mean absolute error {points(measures['mae'])} over {n} unseen model{'s' * (n != 1)}"
    noise = comparison.noise[task]
    if math.isfinite(noise) and measures["mse"] <= SCORE_NOISE * noise:
        good += ", close to the noise of the scores"
    return Verdict(task, good, _against(comparison, task, name), _trust(comparison, task, name))


def points(share: float) -> str:
    """A difference of accuracies in points: 0.0123 is 1.2 points."""
    shown = f"{100 * share:.1f}"
    return f"{shown} point{'' if shown == '1.0' else 's'}"


def _errors(comparison: Comparison, task: str, methods: Sequence[str]) -> dict[str, float]:
    errors = {m: comparison.measures(task, m)["mse"] for m in methods}
    return {m: e for m, e in errors.items() if math.isfinite(e)}


def _against(comparison: Comparison, task: str, method: str) -> str:
    """The error relative to the best baseline, with its uncertainty, and a method that is clearly better."""
    others = _errors(comparison, task, [m for m in comparison.methods if m != method])
    if not others:
        return ""
    baselines = [m for m in others if m in BASELINES]
    best = min(others, key=lambda m: others[m])
    rival = min(baselines, key=lambda m: others[m]) if baselines else best
    ratio = task_ratio(comparison, task, method, rival)
    equal = "" if ratio.clear or ratio.families < FEWEST_FAMILIES else ", no clear difference"
    clause = f"squared error ÷ that of {rival}{', the best baseline' * bool(baselines)}: {ratio.text()}{equal}"
    beside = task_ratio(comparison, task, method, best)
    if best != rival and beside.clear and beside.low > 1:
        clause += f"; {best} is clearly better: {beside.text()}"
    return clause


def _trust(comparison: Comparison, task: str, method: str) -> str:
    held = comparison.held_out[task, method]
    if len(held.observed) < FEW:
        return f"fewer than {FEW} unseen models, too few to rely on these numbers"
    cautions = (_intervals(comparison, task, method), _worst_family(held), _beyond(comparison, task, method))
    return "; ".join(c for c in cautions if c)


def _intervals(comparison: Comparison, task: str, method: str) -> str:
    """The coverage of the intervals in words, with a warning if it is too low."""
    measures = comparison.measures(task, method)
    if not math.isfinite(measures["coverage"]):
        return "no intervals: too few families to estimate the error on a new one"
    covered = f"the {level_text()} intervals contain {measures['coverage']:.0%} of the scores"
    n = measures["n_test"]
    lowest = DEFAULT_LEVEL - 2 * math.sqrt(DEFAULT_LEVEL * (1 - DEFAULT_LEVEL) / n)
    return f"the intervals are too narrow: {covered}" if measures["coverage"] < lowest else covered


def _worst_family(held: HeldOutForecasts) -> str:
    """The family with the largest bias, if it is much larger than the others'."""
    error = held.forecast - held.observed
    names = np.unique(held.families)
    if len(names) < 2:
        return ""
    bias = {str(f): float(error[held.families == f].mean()) for f in names}
    worst = max(bias, key=lambda f: abs(bias[f]))
    typical = float(np.median([abs(x) for x in bias.values()]))
    if abs(bias[worst]) < max(0.01, 2 * typical):
        return ""
    errors = 100 * error[held.families == worst]
    ends = f"on average ({errors.min():+.1f} to {errors.max():+.1f} points over its {len(errors)} models)"
    side = f"{points(abs(bias[worst]))} too {'high' if bias[worst] > 0 else 'low'}"
    return f"largest bias: {worst}, {side} {ends if len(errors) > 1 else 'on its only model'}"


def _beyond(comparison: Comparison, task: str, method: str) -> str:
    """Number of unseen models whose capability is outside the range of the training models, in words."""
    outside, total = 0, 0
    t = comparison.tasks.index(task)
    for fold, fit in zip(comparison.folds, comparison.fits[task, method], strict=True):
        rows: Bools = fold.test & np.isfinite(comparison.dataset.accuracy[t])
        if fit.capability.reads:
            capability = fit.capability.of(comparison.dataset.nats[rows], comparison.dataset.metadata.take(rows))
            outside += int((distance(fit, capability) > 0).sum())
        total += int(rows.sum())
    if not outside:
        return ""
    verb = "are" if outside != 1 else "is"
    return f"{outside} of the {total} {verb} outside the range of the training models, where intervals are wider"
