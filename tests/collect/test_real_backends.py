"""vLLM and llama.cpp themselves, each in its own environment, against transformers in float32.

Skipped unless asked for with `-m backends`: setting them up takes minutes and gigabytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import real_backends

pytestmark = [pytest.mark.backends, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return real_backends.reference()


@pytest.mark.parametrize("kind", ["llamacpp", "vllm", "vllm-server"])
def test_a_real_backend_agrees_with_transformers(kind: str, known: dict[str, Any], tmp_path: Path) -> None:
    for name, row in real_backends.run(kind, known, tmp_path).items():
        assert all(row["same_ids"].values()), name
        assert max(row["apart"].values()) < real_backends.LIMITS[name], (name, row["apart"])
        if name == "llamacpp":
            assert "cannot score" in row["echo"] or "echo is wrong" in row["echo"]


def test_the_harness_gives_the_same_sums(known: dict[str, Any], tmp_path: Path) -> None:
    sums = real_backends.run("lm-eval", known, tmp_path)["lm-eval"]
    assert max(sums["apart"].values()) < real_backends.LIMITS["lm-eval"], sums
