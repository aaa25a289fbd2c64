"""Losses text by text: what methods read that know nothing of tokens.

Axes: M models, S texts, N reference tokens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchcast.evidence import Evidence
from benchcast.records import Floats


def text_losses(evidence: Evidence) -> Floats:
    """Bits per byte of every model on every text (M × S); 0 on texts that not every model has losses for."""
    starts = np.flatnonzero(np.diff(evidence.tokens.text, prepend=-1))
    nats = np.add.reduceat(evidence.nats, starts, axis=1, dtype=np.float64)
    size = _bytes(evidence)
    return np.asarray(nats / np.maximum(size, 1) / np.log(2))


def spread_over_tokens(evidence: Evidence, weights: Floats) -> npt.NDArray[np.float32]:
    """Weights of tokens (1 × N) that weigh nats as the given ones weigh the bits per byte of each text."""
    each = weights / np.maximum(_bytes(evidence), 1) / np.log(2)
    number = np.cumsum(np.diff(evidence.tokens.text, prepend=evidence.tokens.text[0]) != 0)
    return np.where(evidence.tokens.supported, each[number], 0.0).astype(np.float32)[None]


def _bytes(evidence: Evidence) -> Floats:
    """Bytes of every text's supported tokens."""
    starts = np.flatnonzero(np.diff(evidence.tokens.text, prepend=-1))
    return np.add.reduceat(np.diff(evidence.tokens.edges) * evidence.tokens.supported, starts).astype(np.float64)
