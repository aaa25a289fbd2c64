"""Say in words which method is best and how far the forecasts of each task can be trusted.

Methods are ranked by the geometric mean over tasks of their squared error on held-out models, in which families weigh
equally (see `error_ratio`). One is called better only where the median over tasks and the sum of errors say the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.evaluation.comparison import FEWEST_HELD_OUT, Comparison, HeldOutForecasts
from benchcast.evaluation.error_ratio import FEWEST_FAMILIES, ErrorRatio, error_ratio
from benchcast.forecasts.intervals import distance
from benchcast.messages import counted
from benchcast.methods import DEFAULT_METHOD, METHODS
from benchcast.records import Bools

SCORE_NOISE = 1.5  # errors within this factor of the noise of one score cannot be much smaller
# of the noise floor, the part that is the score's own: all models answer the same items, so the rest can be forecast.
# In simulated items of different difficulty it is 0.62 of the binomial variance and 0.79 of that of split halves.
OWN_NOISE = 0.7
STANDARD_ERRORS = 2.0  # below the level, at which coverage is called too low
MOST_NAMES = 4  # of methods in a sentence


@dataclass(frozen=True, slots=True)
class MethodRanking:
    """Methods that forecast every task, sorted by error."""

    methods: tuple[str, ...]
    tasks: int
    families: int  # of held-out models
    ratios: dict[str, ErrorRatio]  # error of the first method ÷ error of each other method

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
    """One sentence on which method to use.

    It compares the method that `fit` uses with the others. Where that one was not compared, it names the best method
    over all tasks and its lead, or the methods without a clear winner.
    """
    ranked = rank(comparison)
    if not ranked.methods:
        return "No method forecasts every task here."
    if DEFAULT_METHOD in ranked.methods and len(ranked.methods) > 1:
        return _beside_default(ranked)
    first, *others = ranked.methods
    if not others:
        return f"{first} is the only method that forecasts every task here."
    lead = _lead(ranked, others[0])
    if not ranked.rivals:
        return f"{first} forecasts best here: {lead}."
    best = [first, *ranked.rivals]
    if len(best) > MOST_NAMES:
        best = [*best[: MOST_NAMES - 1], f"{len(best) - MOST_NAMES + 1} others"]
    between = f"{', '.join(best[:-1])} and {best[-1]}"
    return (
        f"No clear winner between {between}{_why_open(ranked, ranked.rivals[0])} ({_lead(ranked, ranked.rivals[0])})."
    )


def _beside_default(ranked: MethodRanking) -> str:
    """Whether another method is clearly better than the one that `fit` uses, and how to take it."""
    first, used = ranked.methods[0], DEFAULT_METHOD
    if first == used and not ranked.rivals:
        return f"{used}, which `benchcast fit` uses, forecasts best here: {_lead(ranked, ranked.methods[1])}."
    if first != used and used not in ranked.rivals:
        better = f"{first} is clearly better here than {used}, which `benchcast fit` uses: {_lead(ranked, used)}"
        return f"{better}; take it with `benchcast fit STUDY --method {first}`."
    other = ranked.rivals[0] if first == used else used
    lead = f"{first}: " * (first != used) + _lead(ranked, other)
    return (
        f"`benchcast fit` uses {used}, and no other method is clearly better here{_why_open(ranked, other)} ({lead})."
    )


def _why_open(ranked: MethodRanking, other: str) -> str:
    """Why the first method is not called better than another where the interval alone does not say so."""
    if ranked.families < FEWEST_FAMILIES:
        return f": {ranked.families} held-out famil{'y is' if ranked.families == 1 else 'ies are'} too few to tell"
    if not ranked.ratios[other].agree:
        return ": mean, median and sum over the tasks disagree"
    return ""


def _lead(ranked: MethodRanking, other: str) -> str:
    """The lead of the first method over another, in words."""
    ratio = ranked.ratios[other]
    lead = f"squared error {ratio.value:.2f} times that of {other}"
    if ranked.tasks > 1:
        means = f"by the geometric mean over {ranked.tasks} tasks, {ratio.median:.2f} by the median"
        lead += f" {means}, {ratio.summed:.2f} by the sum"
    sure = f"; {level_text()} interval over families {ratio.low:.2f} – {ratio.high:.2f}"
    return lead + sure * (ranked.families >= FEWEST_FAMILIES)


def rank(comparison: Comparison) -> MethodRanking:
    """Rank the methods of a comparison by squared error on held-out models.

    Parameters
    ----------
    comparison : the result of `compare`

    Returns
    -------
    the methods that forecast every task, with the ratio of the first one's error to each other's
    """
    complete = [m for m in comparison.methods if all(comparison.held_out[t, m].complete for t in comparison.tasks)]
    held = {m: {t: comparison.held_out[t, m] for t in comparison.tasks} for m in complete}
    errors = {m: error_ratio(held[m], held[complete[0]]).value for m in complete}
    methods = sorted(complete, key=lambda m: errors[m])
    ratios = {m: error_ratio(held[methods[0]], held[m]) for m in methods[1:]}
    families = {str(f) for by_task in held.values() for h in by_task.values() for f in h.families}
    fewest = min((ratio.families for ratio in ratios.values()), default=len(families))
    return MethodRanking(methods=tuple(methods), tasks=len(comparison.tasks), families=fewest, ratios=ratios)


def task_ratio(comparison: Comparison, task: str, *, one: str, other: str) -> ErrorRatio:
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
    return error_ratio({task: comparison.held_out[task, one]}, {task: comparison.held_out[task, other]})


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
    if math.isfinite(noise) and measures["mse"] <= SCORE_NOISE * OWN_NOISE * noise:
        good += ", close to the noise of the scores"
    against = _against(comparison, task, name)
    held = comparison.held_out[task, name]
    if len(held.observed) < FEWEST_HELD_OUT:
        return Verdict(
            task, good, against, trust=f"fewer than {FEWEST_HELD_OUT} unseen models, too few to rely on these numbers"
        )
    cautions = (_coverage(held), _worst_family(held), _beyond(comparison, task, name))
    return Verdict(task, good, against, trust="; ".join(c for c in cautions if c))


def trust(comparison: Comparison) -> str:
    """One sentence on the error and the coverage of the method that `fit` uses, over all tasks that can be measured."""
    measured = comparison.on_measurable_tasks().tasks
    if not measured:
        most = max(len(comparison.held_out[task, comparison.used].models) for task in comparison.tasks)
        return (
            f"{counted(most, 'held-out model')}: too few to say how far forecasts miss ({FEWEST_HELD_OUT} are needed)."
        )
    held = [comparison.held_out[task, comparison.used] for task in measured]
    error = np.concatenate([h.forecast - h.observed for h in held])
    inside = np.concatenate([(h.low <= h.observed) & (h.observed <= h.high) for h in held])
    known, has_interval = np.isfinite(error), np.concatenate([np.isfinite(h.low) for h in held])
    models = {model for h in held for model in h.models}
    if not known.any():
        return f"{comparison.used} gives no forecast of a held-out model."
    missed = f"forecasts miss by {points(float(np.abs(error[known]).mean()))} on average"
    covered = f"{inside[has_interval].mean():.0%} of the scores lie inside the {level_text()} intervals"
    said = f"{missed}, and {covered}" if has_interval.any() else f"{missed}; there are too few families for intervals"
    tasks = f" on {len(measured)} tasks" if len(measured) > 1 else ""
    return f"Over all {len(models)} held-out models{tasks}, {said}."


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


def _coverage(held: HeldOutForecasts) -> str:
    """The coverage of the intervals, with a warning if it is clearly below the level."""
    if not np.isfinite(held.low).all():
        return "no intervals: too few families to estimate the error on a new one"
    inside = (held.observed >= held.low) & (held.observed <= held.high)
    covered = f"the {level_text()} intervals contain {inside.mean():.0%} of the scores"
    return f"the intervals are too narrow: {covered}" if too_narrow(inside, held.families) else covered


def too_narrow(inside: Bools, families: npt.NDArray[np.str_]) -> bool:
    """Whether coverage is clearly below the level: two standard errors, over models and over families.

    Intervals of one family fail together, so the second error counts families, with Student's t. A few families may
    agree by chance, so the first, binomial one must be passed as well.
    """
    _, index = np.unique(families, return_inverse=True)
    models, count = np.bincount(index), len(inside)
    if len(models) < 2:
        return False
    share = float(inside.mean())
    binomial = math.sqrt(DEFAULT_LEVEL * (1 - DEFAULT_LEVEL) / count)
    apart = np.bincount(index, weights=inside) - models * share
    clustered = math.sqrt(len(models) / (len(models) - 1) * float((apart**2).sum())) / count
    reach = float(stdtrit(len(models) - 1, ndtr(STANDARD_ERRORS)))
    return share < DEFAULT_LEVEL - max(STANDARD_ERRORS * binomial, reach * clustered)


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
    t, models = comparison.tasks.index(task), comparison.dataset.models
    known = np.isfinite(comparison.dataset.accuracy[t]) & ~np.isin(
        models, [*comparison.copies] if comparison.copied else []
    )
    for fold, fit in zip(comparison.folds, comparison.fits[task, method], strict=True):
        rows: Bools = fold.test & known
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
