"""Rank methods over all tasks, with a bootstrap interval for the lead of the best.

Methods are ranked by the geometric mean over tasks of their squared error on held-out models. Errors of models of one
family are correlated, so the uncertainty comes from a paired bootstrap that draws whole families, the same for all
methods and tasks.
Axes: M methods, T tasks, F families of held-out models, B bootstrap draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.evaluate import Comparison
from benchcast.records import Floats

DRAWS = 2000
FEWEST_FAMILIES = 5  # with fewer, all families may favour one method by chance
LEAST_ERROR = 1e-12  # lower bound of squared errors, because zero has no logarithm


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
    methods = [m for m in comparison.methods if _forecasts_all(comparison, m)]
    counts = np.vstack([np.ones(len(families)), family_counts(len(families), seed)])
    logs = {m: _log_errors(comparison, comparison.tasks, m, families, counts) for m in methods}
    methods.sort(key=lambda m: float(logs[m][0]))
    ratios = {m: _ratio(logs[methods[0]] - logs[m], len(families)) for m in methods[1:]}
    return MethodRanking(tuple(methods), len(comparison.tasks), len(families), ratios)


def task_ratio(comparison: Comparison, task: str, one: str, other: str) -> Ratio:
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
    logs = [_log_errors(comparison, [task], m, families, counts) for m in (one, other)]
    return _ratio(logs[0] - logs[1], len(families))


@cache
def family_counts(families: int, seed: int) -> Floats:
    """Number of times each family is drawn in each bootstrap sample (B × F)."""
    picked = np.random.default_rng(seed).integers(families, size=(DRAWS, families))
    return (picked[:, :, None] == np.arange(families)).sum(axis=1).astype(np.float64)


def _forecasts_all(comparison: Comparison, method: str) -> bool:
    held_out = [comparison.held_out[task, method] for task in comparison.tasks]
    return all(len(h.observed) and bool(np.isfinite(h.forecast - h.observed).all()) for h in held_out)


def _log_errors(
    comparison: Comparison, tasks: Sequence[str], method: str, families: npt.NDArray[np.str_], counts: Floats
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
    return Ratio(float(np.exp(logs[0])), float(np.exp(low)), float(np.exp(high)), families)


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
    between = _listed([first, *ranked.rivals])
    few = ranked.families < FEWEST_FAMILIES
    why = f": {ranked.families} held-out famil{'y is' if ranked.families == 1 else 'ies are'} too few to tell" * few
    return f"No clear winner between {between}{why} ({_lead(ranked, ranked.rivals[0])})."


def _lead(ranked: MethodRanking, other: str) -> str:
    """The lead of the first method over another, in words."""
    ratio = ranked.ratios[other]
    parts = [f"squared error {ratio.value:.2f} times that of {other}"]
    parts += [f"geometric mean over {ranked.tasks} tasks"] * (ranked.tasks > 1)
    sure = f"; {level_text()} interval over families {ratio.low:.2f} – {ratio.high:.2f}"
    return ", ".join(parts) + sure * (ranked.families >= FEWEST_FAMILIES)


def _listed(names: list[str], most: int = 4) -> str:
    shown = names if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} others"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
