"""What the comparison of a task comes to, in plain words: how good, against what, where not to trust it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.evaluate import Comparison, HeldOutForecasts
from benchcast.intervals import distance
from benchcast.methods import BASELINES
from benchcast.records import Bools

SAME = 1.05  # errors closer than this factor are called alike
FEW = 5  # held-out models below which nothing is claimed
SCORE_NOISE = 1.5  # errors within this factor of the noise floor are as small as scores allow


@dataclass(frozen=True, slots=True)
class Verdict:
    """One task in words; every part is a clause or empty."""

    task: str
    good: str  # how far forecasts miss
    against: str = ""  # the best baseline, and a better method where there is one
    trust: str = ""  # where not to trust it

    @property
    def sentence(self) -> str:
        """The whole, as one sentence."""
        said = ", ".join(part for part in (self.good, self.against) if part)
        return "; ".join(part for part in (said, self.trust) if part) + "."


def verdict_on(found: Comparison, task: str, method: str | None = None) -> Verdict:
    """The verdict on one method's forecasts of a task; by default the first method's."""
    name = method or found.methods[0]
    mine = found.measures(task, name)
    n = int(mine["n_test"])
    if not math.isfinite(mine["mse"]):
        return Verdict(task, f"{name} gives no forecast here")
    good = f"Misses by {points(mine['mae'])} on average over {n} unseen model{'s' * (n != 1)}"
    noise = found.noise[task]
    if math.isfinite(noise) and mine["mse"] <= SCORE_NOISE * noise:
        good += ", about as little as the noise of the scores allows"
    return Verdict(task, good, _against(found, task, name), _trust(found, task, name))


def points(share: float) -> str:
    """A difference of accuracies in points: 0.0123 is 1.2 points."""
    shown = f"{100 * share:.1f}"
    return f"{shown} point{'' if shown == '1.0' else 's'}"


def _errors(found: Comparison, task: str, methods: Sequence[str]) -> dict[str, float]:
    errors = {m: found.measures(task, m)["mse"] for m in methods}
    return {m: e for m, e in errors.items() if math.isfinite(e)}


def _against(found: Comparison, task: str, method: str) -> str:
    own = found.measures(task, method)["mse"]
    others = _errors(found, task, [m for m in found.methods if m != method])
    baselines = {m: e for m, e in others.items() if m in BASELINES}
    if not others:
        return ""
    best = min(others, key=lambda m: others[m])
    if not baselines:
        return _beside(own, others[best], best)
    rival = min(baselines, key=lambda m: baselines[m])
    said = _beside(own, baselines[rival], f"{rival}, the best baseline")
    if best != rival and others[best] * SAME < own:
        said += f", and {best} did better still" if baselines[rival] * SAME < own else f", yet {best} did better"
    return said


def _beside(own: float, other: float, name: str) -> str:
    if own * SAME >= other and other * SAME >= own:
        return f"no better and no worse than {name}"
    if own < other:
        return f"with {_times(other, own)} less squared error than {name}"
    return f"with {_times(own, other)} more squared error than {name}"


def _times(large: float, small: float) -> str:
    return f"{large / small:.1f} times" if small > 0 else "infinitely"


def _trust(found: Comparison, task: str, method: str) -> str:
    held = found.held_out[task, method]
    if len(held.observed) < FEW:
        return f"too few unseen models to rely on these numbers, {FEW} or more would tell"
    cautions = (_intervals(found, task, method), _worst_family(held), _beyond(found, task, method))
    return "; ".join(c for c in cautions if c)


def _intervals(found: Comparison, task: str, method: str) -> str:
    """Whether the intervals hold what they promise."""
    mine = found.measures(task, method)
    if not math.isfinite(mine["coverage"]):
        return "no intervals: too few families to tell how far a new one misses"
    covered = f"the {level_text()} intervals held {mine['coverage']:.0%} of the scores"
    n = mine["n_test"]
    lowest = DEFAULT_LEVEL - 2 * math.sqrt(DEFAULT_LEVEL * (1 - DEFAULT_LEVEL) / n)
    return f"do not trust the intervals: {covered}" if mine["coverage"] < lowest else covered


def _worst_family(held: HeldOutForecasts) -> str:
    """The family whose forecasts lean most to one side, where that is much more than the rest."""
    error = held.forecast - held.observed
    names = np.unique(held.families)
    if len(names) < 2:
        return ""
    lean = {str(f): float(error[held.families == f].mean()) for f in names}
    worst = max(lean, key=lambda f: abs(lean[f]))
    typical = float(np.median([abs(x) for x in lean.values()]))
    if abs(lean[worst]) < max(0.01, 2 * typical):
        return ""
    return f"least sure for {worst} ({points(abs(lean[worst]))} too {'high' if lean[worst] > 0 else 'low'} on average)"


def _beyond(found: Comparison, task: str, method: str) -> str:
    """How many unseen models lie outside what the fit has learned from."""
    outside, among = 0, 0
    t = found.tasks.index(task)
    for fold, fit in zip(found.folds, found.fits[task, method], strict=True):
        rows: Bools = fold.test & np.isfinite(found.dataset.accuracy[t])
        if fit.reads:
            capability = fit.capability(found.dataset.nats[rows], found.dataset.metadata.take(rows))
            outside += int((distance(fit, capability) > 0).sum())
        among += int(rows.sum())
    if not outside:
        return ""
    verb = "lie" if outside != 1 else "lies"
    return f"{outside} of the {among} {verb} beyond the models it learned from, where intervals are wider"
