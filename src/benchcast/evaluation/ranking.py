"""Say in words which method is best and how far the forecasts of each task can be trusted.

Methods are ranked by the geometric mean over tasks of their squared error on held-out models. Errors of models of one
family are correlated, so the uncertainty comes from a paired bootstrap that draws whole families, the same for all
methods and tasks.
Axes: M methods, T tasks, F families of held-out models, B bootstrap draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.evaluation.comparison import Comparison, HeldOutForecasts
from benchcast.forecasts.intervals import distance
from benchcast.methods import METHODS
from benchcast.records import Bools, Floats

DRAWS = 2000
FEWEST_FAMILIES = 5  # with fewer, all families may favour one method by chance
LEAST_ERROR = 1e-12  # lower bound of squared errors, because zero has no logarithm
FEW = 5  # with fewer held-out models nothing is claimed
SCORE_NOISE = 1.5  # errors within this factor of the scores' noise cannot be much smaller
MOST_NAMES = 4  # of methods in a sentence


@dataclass(frozen=True, slots=True)
class Ratio:
    """Squared error of one method divided by that of another, geometric mean over tasks, with an interval."""

    value: float
    low: float
    high: float
    families: int  # of held-out models

    @property
    def clear(self) -> bool:
        """Whether there are enough families for an interval, and it excludes 1."""
        return self.families >= FEWEST_FAMILIES and not self.low <= 1 <= self.high

    def text(self) -> str:
        """The ratio with its interval, or with the reason why there is none."""
        if self.families < FEWEST_FAMILIES:
            few = f"{self.families} held-out famil{'y is' if self.families == 1 else 'ies are'} too few for an interval"
            return f"{self.value:.2f} ({few})"
        return f"{self.value:.2f} ({level_text()} interval over families {self.low:.2f} – {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class MethodRanking:
    """Methods that forecast every task, sorted by error."""

    methods: tuple[str, ...]
    tasks: int
    families: int  # of held-out models
    ratios: dict[str, Ratio]  # error of the first method ÷ error of each other method

    @property
    def rivals(self) -> tuple[str, ...]:
        """Methods that are not clearly worse than the first."""
        return tuple(m for m in self.methods[1:] if not (self.ratios[m].clear and self.ratios[m].high < 1))


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


def headline(comparison: Comparison) -> str:
    """One sentence that names the best method over all tasks and its lead, or the methods without a clear winner."""
    ranked = rank(comparison)
    if not ranked.methods:
        return "No method forecasts every task here."
    first, *others = ranked.methods
    if not others:
        return f"{first} is the only method that forecasts every task here."
    lead = _lead(ranked, others[0])
    if not ranked.rivals:
        return f"{first} forecasts best here: {lead}."
    best = [first, *ranked.rivals]
    if len(best) > MOST_NAMES:
        best = [*best[: MOST_NAMES - 1], f"{len(best) - MOST_NAMES + 1} others"]
    few = ranked.families < FEWEST_FAMILIES
    why = f": {ranked.families} held-out famil{'y is' if ranked.families == 1 else 'ies are'} too few to tell" * few
    between = f"{', '.join(best[:-1])} and {best[-1]}"
    return f"No clear winner between {between}{why} ({_lead(ranked, ranked.rivals[0])})."


def _lead(ranked: MethodRanking, other: str) -> str:
    """The lead of the first method over another, in words."""
    ratio = ranked.ratios[other]
    parts = [f"squared error {ratio.value:.2f} times that of {other}"]
    parts += [f"geometric mean over {ranked.tasks} tasks"] * (ranked.tasks > 1)
    sure = f"; {level_text()} interval over families {ratio.low:.2f} – {ratio.high:.2f}"
    return ", ".join(parts) + sure * (ranked.families >= FEWEST_FAMILIES)


def rank(comparison: Comparison, *, seed: int = 0) -> MethodRanking:
    """Rank the methods of a comparison by squared error on held-out models.

    Parameters
    ----------
    comparison : the result of `compare`
    seed : of the bootstrap

    Returns
    -------
    the methods that forecast every task, with the ratio of the first one's error to each other's
    """
    families = np.unique(np.concatenate([held.families for held in comparison.held_out.values()]))
    methods = [m for m in comparison.methods if all(comparison.held_out[t, m].complete for t in comparison.tasks)]
    counts = np.vstack([np.ones(len(families)), family_counts(len(families), seed)])
    logs = {m: _log_errors(comparison, comparison.tasks, m, families=families, counts=counts) for m in methods}
    methods.sort(key=lambda m: float(logs[m][0]))
    ratios = {m: _ratio(logs[methods[0]] - logs[m], len(families)) for m in methods[1:]}
    return MethodRanking(methods=tuple(methods), tasks=len(comparison.tasks), families=len(families), ratios=ratios)


def task_ratio(comparison: Comparison, task: str, *, one: str, other: str) -> Ratio:
    """Squared error of one method divided by that of another on one task.

    Parameters
    ----------
    comparison : the result of `compare`
    task : a task of the comparison
    one, other : methods that forecast all held-out models of the task

    Returns
    -------
    the ratio with an interval over families
    """
    families = np.unique(comparison.held_out[task, one].families)
    counts = np.vstack([np.ones(len(families)), family_counts(len(families), 0)])
    logs = [_log_errors(comparison, [task], m, families=families, counts=counts) for m in (one, other)]
    return _ratio(logs[0] - logs[1], len(families))


@cache
def family_counts(families: int, seed: int) -> Floats:
    """Number of times each family is drawn in each bootstrap sample (B × F)."""
    picked = np.random.default_rng(seed).integers(families, size=(DRAWS, families))
    return (picked[:, :, None] == np.arange(families)).sum(axis=1).astype(np.float64)


def _log_errors(
    comparison: Comparison, tasks: Sequence[str], method: str, *, families: npt.NDArray[np.str_], counts: Floats
) -> Floats:
    """Log squared error, mean over tasks, for each row of family counts; NaN if no model of a task is drawn."""
    logs = []
    for task in tasks:
        held = comparison.held_out[task, method]
        index = np.searchsorted(families, held.families)
        squares = np.bincount(index, weights=(held.forecast - held.observed) ** 2, minlength=len(families))
        models = np.bincount(index, minlength=len(families))
        drawn = counts @ models
        mse = np.divide(counts @ squares, drawn, where=drawn > 0, out=np.full(len(counts), np.nan))
        logs.append(np.log(np.maximum(mse, LEAST_ERROR)))
    return np.asarray(np.mean(logs, axis=0))


def _ratio(logs: Floats, families: int) -> Ratio:
    """The ratio and its interval from logs: the first entry is of all families, the others of bootstrap samples."""
    low, high = np.nanquantile(logs[1:], [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2])
    return Ratio(value=float(np.exp(logs[0])), low=float(np.exp(low)), high=float(np.exp(high)), families=families)


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
    against = _against(comparison, task, name)
    held = comparison.held_out[task, name]
    if len(held.observed) < FEW:
        return Verdict(task, good, against, trust=f"fewer than {FEW} unseen models, too few to rely on these numbers")
    cautions = (_coverage(measures), _worst_family(held), _beyond(comparison, task, name))
    return Verdict(task, good, against, trust="; ".join(c for c in cautions if c))


def _against(comparison: Comparison, task: str, method: str) -> str:
    """The error relative to the best baseline, with its uncertainty, and a method that is clearly better."""
    errors = {m: comparison.measures(task, m)["mse"] for m in comparison.methods if m != method}
    others = {m: error for m, error in errors.items() if math.isfinite(error)}
    if not others:
        return ""
    baselines = [m for m in others if METHODS[m].baseline]
    best = min(others, key=lambda m: others[m])
    rival = min(baselines, key=lambda m: others[m]) if baselines else best
    ratio = task_ratio(comparison, task, one=method, other=rival)
    equal = "" if ratio.clear or ratio.families < FEWEST_FAMILIES else ", no clear difference"
    clause = f"squared error ÷ that of {rival}{', the best baseline' * bool(baselines)}: {ratio.text()}{equal}"
    beside = task_ratio(comparison, task, one=method, other=best)
    if best != rival and beside.clear and beside.low > 1:
        clause += f"; {best} is clearly better: {beside.text()}"
    return clause


def _coverage(measures: dict[str, float]) -> str:
    """The coverage of the intervals, with a warning if it is two standard errors below the level."""
    if not math.isfinite(measures["coverage"]):
        return "no intervals: too few families to estimate the error on a new one"
    covered = f"the {level_text()} intervals contain {measures['coverage']:.0%} of the scores"
    lowest = DEFAULT_LEVEL - 2 * math.sqrt(DEFAULT_LEVEL * (1 - DEFAULT_LEVEL) / measures["n_test"])
    return f"the intervals are too narrow: {covered}" if measures["coverage"] < lowest else covered


def _worst_family(held: HeldOutForecasts) -> str:
    """The family with the largest bias, if that is twice the median and at least one point of accuracy."""
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


def points(share: float) -> str:
    """A difference of accuracies in points: 0.0123 is 1.2 points."""
    shown = f"{100 * share:.1f}"
    return f"{shown} point{'' if shown == '1.0' else 's'}"
