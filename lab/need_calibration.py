"""Do stated probabilities of reaching a score come true? Needs around the scores of held-out models.

The needs of a model are the scores of up to 20 other held-out models on its task, so that they do not depend on its own
score. Beside them: how many scores lie inside their central 50% intervals, near the floor of a task and elsewhere. A
bin is off if stated and happened differ by more than the 95% noise of their difference, with whole families
drawn again (t-distribution with families − 1 degrees of freedom).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import stdtrit

from benchcast.evaluation.comparison import Comparison
from benchcast.forecasts.intervals import predict
from benchcast.methods import MethodName
from benchcast.methods.law import share_above_chance
from benchcast.records import Bools, Floats

BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
MOST_NEEDS = 20  # of one model
NEAR_FLOOR = 0.05  # as a share of the range from chance to 1


@dataclass(frozen=True, slots=True)
class NeedBin:
    """Needs whose stated probability lies in one bin."""

    low: float
    high: float
    number: int
    stated: float
    happened: float
    noise: float  # 95% noise of the difference; NaN with one family

    @property
    def off(self) -> bool:
        """Whether stated and happened differ by more than noise."""
        return abs(self.stated - self.happened) > self.noise


@dataclass(frozen=True, slots=True)
class NeedCalibration:
    """Stated against happened on one study and split."""

    study: str
    split: str
    brier: float  # mean squared difference of probability and outcome
    constant: float  # Brier score of the share of all needs that were reached
    bins: tuple[NeedBin, ...]
    inside: dict[str, tuple[int, float]]  # where the forecast is → scores, and the share inside the central 50%

    def line(self) -> str:
        """The bins in one line."""
        cells = [f"{b.stated:.0%} {b.happened:.0%}{'!' if b.off else ''}" for b in self.bins]
        off = sum(b.off for b in self.bins)
        scores = f"Brier score {self.brier:.3f} (constant {self.constant:.3f})"
        inside = ", ".join(f"{where} {share:.0%} of {count}" for where, (count, share) in self.inside.items())
        halves = f"; in the central half: {inside}" if inside else ""
        return f"{self.study}, {self.split}: {scores}; stated, happened: {'; '.join(cells)}; bins off: {off}{halves}"


def need_calibration(name: str, split: str, comparison: Comparison, method: MethodName) -> NeedCalibration:
    """Needs drawn for every held-out model and task of a comparison, with seed 0."""
    rng = np.random.default_rng(0)
    stated, reached, families = [], [], []
    inside: dict[str, list[bool]] = {"near the floor": [], "elsewhere": []}
    dataset = comparison.dataset
    for t, task in enumerate(comparison.tasks):
        scores = dataset.accuracy[t]
        tested = np.flatnonzero(np.logical_or.reduce([fold.test for fold in comparison.folds]) & np.isfinite(scores))
        for k, fold in enumerate(comparison.folds):
            rows = np.flatnonzero(fold.test & np.isfinite(scores))
            if not len(rows):
                continue
            fit = comparison.fits[task, method][k]
            p = predict(fit, dataset.nats[rows], dataset.metadata.take(rows))
            low, high = p.distribution.interval(0.5)
            near = share_above_chance(p.accuracy, fit.law.chance) < NEAR_FLOOR
            within = (low <= scores[rows]) & (scores[rows] <= high)
            inside["near the floor"] += within[near].tolist()
            inside["elsewhere"] += within[~near].tolist()
            for j, row in enumerate(rows):
                others = tested[tested != row]
                for need in scores[rng.permutation(others)[:MOST_NEEDS]]:
                    probability = float(p.distribution.probability_above(need)[j])
                    if math.isfinite(probability):
                        stated.append(probability)
                        reached.append(scores[row] >= need)
                        families.append(str(dataset.families[row]))
    return summarised(name, split, np.array(stated), np.array(reached, bool), families=families, inside=inside)


def summarised(
    name: str,
    split: str,
    stated: Floats,
    reached: Bools,
    *,
    families: Sequence[str],
    inside: Mapping[str, Sequence[bool]] | None = None,
) -> NeedCalibration:
    """Brier score and bins of stated probabilities and what happened."""
    groups = np.unique(np.array(families), return_inverse=True)[1]
    found = []
    for low, high in pairwise(BINS):
        in_bin = (stated >= low) & ((stated < high) | (high == 1.0))
        if in_bin.any():
            found.append(_bin(low, high, stated[in_bin], reached[in_bin], groups[in_bin]))
    share = float(reached.mean())
    return NeedCalibration(
        study=name,
        split=split,
        brier=float(((stated - reached) ** 2).mean()),
        constant=share * (1 - share),
        bins=tuple(found),
        inside={where: (len(hits), float(np.mean(hits))) for where, hits in (inside or {}).items() if hits},
    )


def _bin(low: float, high: float, stated: Floats, reached: Bools, groups: np.ndarray) -> NeedBin:
    difference = stated - reached
    sums = np.bincount(groups, difference - difference.mean())
    count = len(np.unique(groups))
    noise = math.nan
    if count > 1:
        error = math.sqrt(count / (count - 1) * float((sums**2).sum())) / len(stated)
        noise = float(stdtrit(count - 1, 0.975)) * error
    return NeedBin(
        low=low,
        high=high,
        number=len(stated),
        stated=float(stated.mean()),
        happened=float(reached.mean()),
        noise=noise,
    )
