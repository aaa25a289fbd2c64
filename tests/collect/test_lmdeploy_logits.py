"""LMDeploy needs CUDA; a pipeline with the calls of its release stands in, and its wheel is read for those calls."""

from __future__ import annotations

import ast
import asyncio
import sys
import types
import zipfile
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import fetch
import torch
from fake import FakeBackend

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import DeviceFullError, ModelSettings, in_halves
from benchcast.collection.backends.lmdeploy import read_logits
from benchcast.errors import InputError

IDS = [5, 2, 7, 1]
WORDS = 300


def naive(logits: np.ndarray, ids: list[int]) -> list[float]:
    rows = logits.astype(np.float64)
    return [float(np.log(np.exp(rows[i]).sum()) - rows[i, token]) for i, token in enumerate(ids[1:])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_row_i_predicts_token_i_plus_1_and_the_generated_row_is_dropped(dtype: Any) -> None:
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(len(IDS) + 1, 9)).astype(np.float32)).to(dtype)
    nats = read_logits(logits, IDS)
    assert np.isnan(nats[0])
    np.testing.assert_allclose(nats[1:], naive(logits.float().numpy(), IDS), atol=1e-5)


def test_fewer_rows_than_tokens_is_an_error() -> None:
    with pytest.raises(InputError, match="3 rows of logits for 4 tokens"):
        read_logits(torch.zeros(3, 9), IDS)


# ---- a pipeline as LMDeploy's


@dataclass
class EngineConfig:
    session_len: int
    dtype: str
    enable_prefix_caching: bool
    revision: str | None = None


class Engine:
    """Logits of whole prompts, with the row of the generated token; `room` tokens fit at a time."""

    def __init__(self, trouble: str = "", room: int = 1000) -> None:
        self.trouble, self.room = trouble, room

    async def async_get_logits(self, input_ids: list[list[int]], sessions: Any = None) -> list[Any]:
        if sum(map(len, input_ids)) > self.room:
            if self.trouble == "silent":
                return [None] * len(input_ids)
            raise RuntimeError("[TM][ERROR] CUDA runtime error: out of memory")
        if self.trouble == "broken":
            raise RuntimeError("[TM][ERROR] an illegal memory access was encountered")
        return [logits_of(ids) for ids in input_ids]


def logits_of(ids: list[int]) -> Any:
    rows = [np.random.default_rng(ids[: i + 1]).normal(size=WORDS) * 3 for i in range(len(ids))]
    return torch.from_numpy(np.array([*rows, rows[-1]], np.float32)).half()


class Pipeline:
    def __init__(self, engine: Engine) -> None:
        self.async_engine = engine

    def _run(self, fn: Any = None, coro: Any = None) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(asyncio.run(coro))
        except RuntimeError as error:
            done.set_exception(error)
        return done


def opened(monkeypatch: pytest.MonkeyPatch, engine: Engine, **settings: str) -> tuple[Any, dict[str, Any]]:
    """A backend on a stand-in for the library, and what the library was given."""
    seen: dict[str, Any] = {}

    def pipeline(path: str, *, backend_config: EngineConfig, trust_remote_code: bool) -> Pipeline:
        seen.update(path=path, config=backend_config, trust=trust_remote_code)
        return Pipeline(engine)

    library = types.SimpleNamespace(
        __version__="0.18.0", pipeline=pipeline, TurbomindEngineConfig=EngineConfig, PytorchEngineConfig=EngineConfig
    )
    monkeypatch.setitem(sys.modules, "lmdeploy", library)
    backend: Any = open_backend("lmdeploy", ModelSettings({"pretrained": "some/model", **settings}))
    backend.__dict__["vocabulary"] = FakeBackend().vocabulary
    return backend, seen


def test_the_engine_loads_the_revision_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, seen = opened(monkeypatch, Engine(), revision="step1000")
    backend.score([[256, 1, 2]])
    assert seen["config"].revision == "step1000"
    assert backend.model == "some/model@step1000"


def test_prompts_go_as_ids_and_give_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, seen = opened(monkeypatch, Engine())
    sequences = [[256, 1, 2, 3], [256, 9]]
    for ids, nats in zip(sequences, backend.score(sequences), strict=True):
        np.testing.assert_allclose(nats[1:], naive(logits_of(ids).float().numpy(), ids), atol=1e-5)
    assert seen["config"] == EngineConfig(2048, "float16", False), "a shared beginning would have no rows of its own"
    assert seen["trust"] is False
    assert backend.context == 2047
    assert backend.about()["backend_version"] == "lmdeploy 0.18.0 turbomind"


@pytest.mark.parametrize("trouble", ["", "silent"])
def test_what_does_not_fit_goes_in_halves(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, _ = opened(monkeypatch, Engine(trouble, room=5))
    sequences = [[256, 1, 2, 3], [256, 9], [256, 4, 5]]
    scored = in_halves(backend.score, sequences)
    assert [len(nats) for nats in scored] == [4, 2, 3]
    with pytest.raises(DeviceFullError, match="lower max_length"):
        in_halves(backend.score, [list(range(6))])


def test_other_troubles_are_not_taken_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, _ = opened(monkeypatch, Engine("broken"))
    with pytest.raises(InputError, match=r"LMDeploy: .*illegal memory access") as error:
        in_halves(backend.score, [[256, 1], [256, 2]])
    assert not isinstance(error.value, DeviceFullError)


@pytest.mark.backends
def test_the_released_library_has_the_calls_that_are_made(tmp_path: Path) -> None:
    fetch._run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "lmdeploy==0.18.0"], tmp_path)
    with zipfile.ZipFile(fetch._only(tmp_path)) as wheel:
        pipeline, engine, messages = (
            _classes(wheel.read(f"lmdeploy/{name}.py").decode())
            for name in ("pipeline", "serve/core/async_engine", "messages")
        )
    assert "coro" in pipeline["Pipeline"]["_run"]
    assert "input_ids" in engine["AsyncEngine"]["async_get_logits"]
    for kind in ("TurbomindEngineConfig", "PytorchEngineConfig"):
        assert {"session_len", "dtype", "enable_prefix_caching", "revision"} <= set(messages[kind][""])


def _classes(source: str) -> dict[str, dict[str, list[str]]]:
    """Arguments of each method of each class; fields of a dataclass under the empty name."""
    classes: dict[str, dict[str, list[str]]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            methods = classes.setdefault(node.name, {"": []})
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    methods[part.name] = [a.arg for a in part.args.args]
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    methods[""].append(part.target.id)
    return classes
