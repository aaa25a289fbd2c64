"""Test error of a method that uses texts of only some sources, to measure the value of diverse texts."""

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

LISTED = 10_000  # enumerate all subsets up to this number, else draw at random
MOST_NUMBERS = 8  # most numbers of sources to compare


def numbers_of_sources(count: int) -> list[int]:
    """Numbers of sources to compare: evenly spaced from one to `count`, at most `MOST_NUMBERS`."""
    return sorted({round(float(x)) for x in np.linspace(1, count, min(count, MOST_NUMBERS))})


def subsets(sources: Sequence[str], size: int, most: int, seed: int) -> list[tuple[str, ...]]:
    """Draw at most `most` different subsets of `size` sources."""
    rng = np.random.default_rng([seed, size])
    if math.comb(len(sources), size) <= LISTED:
        every = list(combinations(sources, size))
        return [every[i] for i in sorted(rng.permutation(len(every))[:most])]
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:  # with more than `LISTED` subsets, duplicates are rare
        drawn.add(tuple(sorted(rng.choice(len(sources), size, replace=False).tolist())))
    return [tuple(sources[i] for i in numbers) for numbers in sorted(drawn)]


def source_errors(dataset: Dataset, fold: Fold, texts: TextSet, method: str, chosen: Sequence[str]) -> Floats | None:
    """Mean squared test error of each task with texts of the chosen sources only.

    Parameters
    ----------
    dataset, fold : the data, and its training and test models
    texts : texts of the dataset
    method : name of the method
    chosen : names of the sources

    Returns
    -------
    One error per task; None if no token of these sources is in the common support.
    """
    of_sources = dataset.reference_tokens.of_sources(chosen)
    if not (of_sources & dataset.reference_tokens.supported).any():
        return None
    some = restrict(dataset, of_sources, texts)
    return held_out_errors(some, fold, METHODS[method](some, [fold])[0])


def restrict(dataset: Dataset, keep: Bools, texts: TextSet) -> Dataset:
    """The dataset with the common support restricted to the tokens in `keep`."""
    supported = dataset.reference_tokens.supported & keep
    characters = characters_per_token(dataset.reference_tokens.edges, texts.utf8)
    return replace(
        dataset,
        nats=np.where(supported, dataset.nats, np.float32(0)),
        characters=float(characters[supported].sum()),
        reference_tokens=replace(dataset.reference_tokens, supported=supported),
    )


def held_out_errors(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit]) -> Floats:
    """Mean squared error of each task on the test models; NaN without scores."""
    errors = []
    for fit, observed in zip(fits, dataset.accuracy, strict=True):
        rows = fold.test & np.isfinite(observed)
        forecast = fit.forecast(dataset.nats[rows], dataset.metadata.take(rows))
        errors.append(float(np.mean((forecast - observed[rows]) ** 2)) if rows.any() else np.nan)
    return np.array(errors)
