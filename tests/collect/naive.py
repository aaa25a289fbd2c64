"""Loss and signals of one token from their definitions, the plainest way: what backends are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchcast.backends.base import Nats
from benchcast.choices import SIGNALS


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


def check(scored: Nats, expected: list[dict[str, float]], places: Sequence[int]) -> None:
    """Assert that columns of loss and signals are the expected ones at some places."""
    for k, name in enumerate(("nats", *SIGNALS)):
        wanted = [row[name] for row in expected]
        # thousands of words that were never trained on have nearly the same logit: rounding orders them
        atol, rtol = {"nats": (1e-4, 1e-7), "rank": (0.03, 1e-4)}.get(name, (2e-4, 1e-4))
        np.testing.assert_allclose(scored[list(places), k], wanted, atol=atol, rtol=rtol, err_msg=name)
