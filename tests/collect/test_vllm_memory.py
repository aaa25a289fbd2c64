"""vLLM's engine dies when prompt log-probabilities do not fit; a stand-in dies the same way.

vLLM itself is run by `-m backends`.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
from fake import FakeBackend, loss

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import DeviceFullError, ModelSettings


class EngineDeadError(Exception):
    """As vLLM's: it does not say what the engine died of."""

    def __init__(self) -> None:
        super().__init__("EngineCore encountered an issue. See stack trace (above) for the root cause.")


def engine(room: int, steps: list[int]) -> Any:
    """A class like vllm.LLM whose engine dies if it reads more than `room` tokens at a time."""

    class LLM:
        def __init__(self, *, max_num_batched_tokens: int, **settings: Any) -> None:
            steps.append(max_num_batched_tokens)
            self.step, self.dead = max_num_batched_tokens, False
            self.llm_engine = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=512))

        def generate(self, prompts: list[Any], asked: Any, use_tqdm: bool) -> list[Any]:
            self.dead |= self.step > room
            if self.dead:
                raise EngineDeadError
            return [_output(p.prompt_token_ids) for p in prompts]

    return LLM


def _output(ids: list[int]) -> Any:
    entries = [{t: types.SimpleNamespace(logprob=-loss(ids, i))} if i else None for i, t in enumerate(ids)]
    return types.SimpleNamespace(prompt_token_ids=ids, prompt_logprobs=entries)


def opened(room: int, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> Any:
    library = types.ModuleType("vllm")
    library.LLM = engine(room, steps)  # type: ignore[attr-defined]
    library.SamplingParams = library.TokensPrompt = types.SimpleNamespace  # type: ignore[attr-defined]
    errors = types.ModuleType("vllm.v1.engine.exceptions")
    errors.EngineDeadError = EngineDeadError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", library)
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.exceptions", errors)
    return open_backend("vllm", ModelSettings({"pretrained": "some/model"}))


@pytest.mark.slow
def test_an_engine_that_dies_is_started_again_with_smaller_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    backend = opened(600, steps, monkeypatch)
    nats = backend.score([[256, 97, 98]])[0]
    assert steps == [2048, 1024, 512]
    np.testing.assert_allclose(nats, FakeBackend().score([[256, 97, 98]])[0])
    backend.score([[256, 97]])
    assert len(steps) == 3, "the engine that works is kept"


@pytest.mark.slow
def test_an_engine_that_always_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    with pytest.raises(DeviceFullError, match=r"vLLM failed: EngineCore .*; out of memory\? lower gpu_memory_util"):
        opened(10, steps, monkeypatch).score([[256, 97, 98]])
    assert steps[-1] == 128
