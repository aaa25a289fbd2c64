"""A damaged reply of a server ends in the right losses or in one line, whatever is wrong with it.

A short run; a long one by hand: `MUTATIONS=1000 pytest tests/collect/test_reply_mutations.py --junitxml=counts.xml`.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("httpx2")

from fake import FakeBackend
from replies import FakeServer, serving
from reply_faults import change_value, damage

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import ModelSettings
from benchcast.collection.windows import BackendInfo, Portion, score
from benchcast.errors import InputError

TEXTS = ["one two", "vier 五"]
COUNT = int(os.environ.get("MUTATIONS", "25"))  # of each kind of server


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with serving() as running:
        yield running


def losses(kind: str, server: FakeServer) -> list[float]:
    """What `collect` would store of the texts."""
    settings = {"base_url": server.url, "model": "fake", "timeout": "5", "max_retries": "1", "num_concurrent": "1"}
    backend = open_backend(kind, ModelSettings(settings))
    backend.__dict__["vocabulary"] = FakeBackend().vocabulary
    portion = Portion("m", dict(enumerate(TEXTS)), {i: tuple(t.encode()) for i, t in enumerate(TEXTS)})
    BackendInfo.of(backend)
    rows = {i: nats for part in score(backend, portion) for i, nats in part.rows.items()}
    return [float(x) for i in sorted(rows) for x in rows[i]]


def outcome(kind: str, server: FakeServer) -> tuple[str, list[float]]:
    try:
        return "losses", losses(kind, server)
    except InputError as error:
        line = str(error)
        assert line.isprintable(), line
        assert len(line) < 700, line
        return "refused", []


@pytest.mark.parametrize("kind", ["vllm-server", "sglang", "completions"])
@pytest.mark.parametrize("mutate", [change_value, damage])
def test_a_damaged_reply_gives_the_right_losses_or_one_line(
    kind: str,
    mutate: Callable[..., bytes],
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("BENCHCAST_API_KEY", raising=False)
    server.mutate = None
    right = losses(kind, server)
    seen: Counter[str] = Counter()
    for seed in range(COUNT):
        rng = random.Random(f"{kind} {seed}")

        def maybe(body: dict[str, object], rng: random.Random = rng) -> bytes:
            return mutate(body, rng) if rng.random() < 0.25 else json.dumps(body).encode()

        server.mutate = maybe
        what, nats = outcome(kind, server)
        seen[what] += 1
        if what == "losses" and mutate is change_value:  # a changed digit is another number, and nobody can tell
            np.testing.assert_allclose(nats, right, rtol=1e-6, err_msg=f"{kind} {seed}")
        assert all(0 <= x < 1e4 for x in nats), f"{kind} {seed}"
    record_property("outcomes", dict(seen))
    assert seen["losses"]
    assert seen["refused"]
