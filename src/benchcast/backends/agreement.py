"""Compare the losses of two backends on a few sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.backends.base import Backend, Nats
from benchcast.errors import InputError

LIMIT = 0.5  # largest accepted mean difference in nats
TEXTS = 4
FEWEST = 8  # tokens a compared text must have


@dataclass(frozen=True, slots=True)
class Agreement:
    """Difference between the losses of two backends."""

    against: str  # name of the reference backend
    dtype: str  # of the reference backend
    texts: int
    tokens: int
    mean_nats: float
    most_nats: float

    def __str__(self) -> str:
        return (
            f"{self.mean_nats:.2g} nats from {self.against} ({self.dtype}) on average, "
            f"at most {self.most_nats:.2g}, on {self.tokens} tokens of {self.texts} texts"
        )


def pick(ids: Sequence[Sequence[int]], room: int) -> list[int]:
    """Indices of the shortest texts that have at least `FEWEST` tokens and fit into `room` tokens."""
    fitting = [i for i, token_ids in enumerate(ids) if FEWEST <= len(token_ids) <= room]
    if not fitting:
        raise InputError(f"no text has {FEWEST} to {room} tokens, which a comparison of backends needs")
    return sorted(fitting, key=lambda i: (len(ids[i]), i))[:TEXTS]


def compare(ask: Callable[[Backend], list[Nats]], backend: Backend, reference: Backend, texts: int) -> Agreement:
    """Difference between two backends on the sequences that `ask` sends to each; InputError if above `LIMIT`."""
    losses, reference_losses = (np.concatenate(ask(b)) for b in (backend, reference))
    differences = np.abs(losses - reference_losses)
    differences = differences[np.isfinite(differences)]
    agreement = Agreement(
        reference.name,
        reference.about()["dtype"],
        texts,
        len(differences),
        float(differences.mean()),
        float(differences.max()),
    )
    if agreement.mean_nats > LIMIT:
        raise InputError(
            f"model {backend.model!r}: {backend.name} is {agreement}; {LIMIT:g} on average is the limit, "
            "so they do not score the same model, or not the same tokens"
        )
    return agreement
