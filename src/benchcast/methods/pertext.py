"""Losses per text, for methods that do not use token positions.

Axes: M models, S texts, N reference tokens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchcast.dataset import Dataset
from benchcast.records import Floats


def text_losses(dataset: Dataset) -> Floats:
    """Bits per byte of every model on every text (M × S); 0 on texts without losses of every model."""
    starts = np.flatnonzero(np.diff(dataset.reference_tokens.text, prepend=-1))
    nats = np.add.reduceat(dataset.nats, starts, axis=1, dtype=np.float64)
    size = _bytes(dataset)
    return np.asarray(nats / np.maximum(size, 1) / np.log(2))


def spread_over_tokens(dataset: Dataset, weights: Floats) -> npt.NDArray[np.float32]:
    """Weights of tokens (1 × N) equivalent to the given weights of each text's bits per byte."""
    each = weights / np.maximum(_bytes(dataset), 1) / np.log(2)
    number = np.cumsum(np.diff(dataset.reference_tokens.text, prepend=dataset.reference_tokens.text[0]) != 0)
    return np.where(dataset.reference_tokens.supported, each[number], 0.0).astype(np.float32)[None]


def _bytes(dataset: Dataset) -> Floats:
    """Bytes of every text's supported tokens."""
    tokens = dataset.reference_tokens
    starts = np.flatnonzero(np.diff(tokens.text, prepend=-1))
    return np.add.reduceat(np.diff(tokens.edges) * tokens.supported, starts).astype(np.float64)
