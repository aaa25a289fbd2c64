"""Test error when a method sees texts of some sources only: does it help to take texts from several sources?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from benchcast.align import characters_per_token
from benchcast.dataset import Dataset, Fold
from benchcast.methods import METHODS
from benchcast.records import Bools, Floats, TextSet
from benchcast.task_fit import TaskFit

LISTED = 10_000  # sets that are listed before some are drawn
MOST_NUMBERS = 8  # of sources


def numbers_of_sources(count: int) -> list[int]:
    """How many sources to take: every number from one to all, or a few of them."""
    return sorted({round(float(x)) for x in np.linspace(1, count, min(count, MOST_NUMBERS))})


def subsets(sources: Sequence[str], size: int, most: int, seed: int) -> list[tuple[str, ...]]:
    """At most so many sets of so many sources, drawn without replacement."""
    rng = np.random.default_rng([seed, size])
    if math.comb(len(sources), size) <= LISTED:
        every = list(combinations(sources, size))
        return [every[i] for i in sorted(rng.permutation(len(every))[:most])]
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:  # of so many sets, two are seldom the same
        drawn.add(tuple(sorted(rng.choice(len(sources), size, replace=False).tolist())))
    return [tuple(sources[i] for i in numbers) for numbers in sorted(drawn)]


def source_errors(dataset: Dataset, fold: Fold, texts: TextSet, method: str, chosen: Sequence[str]) -> Floats | None:
    """Test error of each task from texts of the chosen sources alone; None where they hold no token that counts."""
    own = dataset.reference_tokens.of_sources(chosen)
    if not (own & dataset.reference_tokens.supported).any():
        return None
    some = restrict(dataset, own, texts)
    return held_out_errors(some, fold, METHODS[method](some, [fold])[0])


def restrict(dataset: Dataset, keep: Bools, texts: TextSet) -> Dataset:
    """The same dataset with some tokens taken out of the common support."""
    supported = dataset.reference_tokens.supported & keep
    characters = characters_per_token(dataset.reference_tokens.edges, texts.utf8)
    return replace(
        dataset,
        nats=np.where(supported, dataset.nats, np.float32(0)),
        characters=float(characters[supported].sum()),
        reference_tokens=replace(dataset.reference_tokens, supported=supported),
    )


def held_out_errors(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit]) -> Floats:
    """Mean squared error of each task on the test models; NaN where it cannot be said."""
    errors = []
    for fit, observed in zip(fits, dataset.accuracy, strict=True):
        rows = fold.test & np.isfinite(observed)
        forecast = fit.forecast(dataset.nats[rows], dataset.metadata.take(rows))
        errors.append(float(np.mean((forecast - observed[rows]) ** 2)) if rows.any() else np.nan)
    return np.array(errors)
