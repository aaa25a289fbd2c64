"""A model that needs no library: bytes are its tokens, and a loss is a hash of what came before."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchcast.collection.backends.base import Nats, Vocabulary
from benchcast.collection.tokenizers import Tokenizer

BOS = 256


class FakeBackend:
    """Scores in no time, or as slowly as asked."""

    name = "fake"
    batch_tokens = 1 << 20
    asked = ""

    def __init__(self, *, bos: bool = True, context: int = 1 << 20, batch_size: int = 4, pause: float = 0.0) -> None:
        self.model, self.context, self.batch_size, self.pause = "fake-1", context, batch_size, pause
        self.sent: list[Sequence[int]] = []
        tokenizer = Tokenizer("bytes", lambda text: list(text.encode()), lambda token: bytes([token]))
        self.vocabulary = Vocabulary(tokenizer, (BOS,) if bos else (), "<bos>" if bos else "none")

    def about(self) -> dict[str, str]:
        return {"backend": self.name, "backend_version": "1", "dtype": "float32"}

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        assert all(len(s) <= self.context for s in sequences)
        self.sent += sequences
        time.sleep(self.pause)
        return [np.array([np.nan, *(loss(s, i) for i in range(1, len(s)))], np.float32) for s in sequences]

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        return [np.array([[loss(s, i), t, 1.0] for i, t in enumerate(s)], np.float32) for s in sequences]


def loss(ids: Sequence[int], at: int) -> float:
    """What the fake model loses on one token, given the last few before it."""
    return zlib.crc32(repr(tuple(ids[max(0, at - 3) : at + 1])).encode()) / 2**32 * 8
