"""Choice losses: how improbable the right answer of an item is among its options."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from benchcast.losses.regroup import regroup
from benchcast.records import Floats, Ints


def choice_losses(log_likelihoods: npt.ArrayLike, characters: npt.ArrayLike, *, right: int = 0) -> tuple[float, float]:
    """−ln of the right option's share of the probability of all options, raw and per character.

    Parameters
    ----------
    log_likelihoods : of each option, in nats; the sum over its tokens
    characters : length of each bare option, without white space around it
    right : index of the right option

    Returns
    -------
    −log_softmax(ℓ) and −log_softmax(ℓ ÷ characters) at the right option; NaN if a log-likelihood is missing.

    >>> [round(x, 3) for x in choice_losses([-1.0, -1.0, -3.0], [1, 2, 1])]
    [0.759, 1.024]
    """
    values = np.asarray(log_likelihoods, np.float64)
    return _loss(values, right), _loss(values / np.asarray(characters, np.float64), right)


def _loss(values: Floats, right: int) -> float:
    """−log_softmax at one index; never below 0."""
    if not np.isfinite(values).all():
        return math.nan
    top = float(values.max())
    return max(0.0, top + math.log(float(np.exp(values - top).sum())) - float(values[right]))


def continuation_nats(nats: npt.ArrayLike, bounds: Ints, start: int) -> float:
    """Loss of the bytes from `start` to the end: a token across `start` counts by its bytes; NaN where one is missing.

    `nats` and `bounds` may leave out tokens that end at `start` or before it.
    """
    return float(regroup(nats, bounds, [start, bounds[-1]])[0])
