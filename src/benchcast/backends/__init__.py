"""Token ids → nats per token, from transformers, vLLM, SGLang, LMDeploy, llama.cpp and HTTP completions."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchcast.backends.base import Backend, ModelSettings
from benchcast.backends.hf import HfBackend
from benchcast.backends.llamacpp import LlamaCppBackend
from benchcast.backends.lmdeploy import LmdeployBackend
from benchcast.backends.servers import DIALECTS, ServerBackend
from benchcast.backends.vllm import VllmBackend
from benchcast.errors import InputError
from benchcast.formatting import did_you_mean

BACKENDS: dict[str, Any] = {
    "hf": HfBackend,
    "vllm": VllmBackend,
    "lmdeploy": LmdeployBackend,
    "llamacpp": LlamaCppBackend,
    **{name: partial(ServerBackend, name, dialect) for name, dialect in DIALECTS.items()},
}


def open_backend(kind: str, settings: ModelSettings, *, device: str = "", batch_size: int = 0) -> Backend:
    """A backend by name; nothing heavy is loaded before it is asked to score."""
    if kind not in BACKENDS:
        raise InputError(f"unknown backend {kind!r}; one of {', '.join(BACKENDS)}{did_you_mean(kind, BACKENDS)}")
    made: Backend = BACKENDS[kind](settings, device=device, batch_size=batch_size)
    settings.finish()
    return made


def open_scorer(source: str, settings: ModelSettings, *, device: str = "", batch_size: int = 0) -> HfBackend:
    """A model of transformers whose hidden states are wanted."""
    own = settings.having(pretrained=source)
    made = HfBackend(own, device=device, batch_size=batch_size)
    own.finish()
    return made


def open_reference(settings: ModelSettings, *, device: str = "") -> HfBackend:
    """The same model through transformers in float32, to compare another backend with."""
    values = settings.values()
    source = values.get("pretrained") or values.get("tokenizer") or values.get("model", "")
    kept = {k: v for k, v in values.items() if k in ("revision", "gguf_file", "add_bos_token", "trust_remote_code")}
    return HfBackend(ModelSettings({**kept, "pretrained": source, "dtype": "float32"}, settings.where), device=device)
