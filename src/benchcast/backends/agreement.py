"""Two backends on the same few sequences: how far apart their losses are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchcast.backends.base import Backend, Nats
from benchcast.errors import InputError

LIMIT = 0.5  # nats on average; beyond it one of the two scores something else
TEXTS = 4
FEWEST = 8  # tokens of a text worth comparing


@dataclass(frozen=True, slots=True)
class Agreement:
    """Difference between the losses of two backends."""

    against: str
    dtype: str  # of the backend compared with
    texts: int
    tokens: int
    mean_nats: float
    most_nats: float

    def as_json(self) -> dict[str, Any]:
        """Stored with the losses."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.mean_nats:.2g} nats from {self.against} ({self.dtype}) on average, "
            f"at most {self.most_nats:.2g}, on {self.tokens} tokens of {self.texts} texts"
        )


def pick(ids: Sequence[Sequence[int]], room: int) -> list[int]:
    """The shortest texts that have a few tokens and fit into one window."""
    fit = [i for i, own in enumerate(ids) if FEWEST <= len(own) <= room]
    if not fit:
        raise InputError(f"no text has {FEWEST} to {room} tokens, which a comparison of backends needs")
    return sorted(fit, key=lambda i: (len(ids[i]), i))[:TEXTS]


def compare(ask: Callable[[Backend], list[Nats]], backend: Backend, reference: Backend, texts: int) -> Agreement:
    """How far `backend` is from `reference` where `ask` gets both to score the same sequences."""
    mine, other = (np.concatenate(ask(b)) for b in (backend, reference))
    apart = np.abs(mine - other)
    apart = apart[np.isfinite(apart)]
    found = Agreement(
        reference.name, reference.about()["dtype"], texts, len(apart), float(apart.mean()), float(apart.max())
    )
    if found.mean_nats > LIMIT:
        raise InputError(
            f"model {backend.model!r}: {backend.name} is {found}; {LIMIT:g} on average is the limit, "
            "so they do not score the same model, or not the same tokens"
        )
    return found
