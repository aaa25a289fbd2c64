"""Loss and signals of one token from their definitions, the plainest way: what backends are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np


def naive(logits: Any, token: int) -> dict[str, float]:
    """Each signal from the definition, in float64, from the logits of one position."""
    p = np.exp(logits - logits.max())
    p /= p.sum()
    return {
        "nats": -np.log(p[token]),
        "rank": np.log2(1 + int((logits > logits[token]).sum())),
        "entropy": -(p[p > 0] * np.log(p[p > 0])).sum(),
        "hit": float(logits.argmax() == token),
        "margin": np.log(p.max() / p[token]),
    }
