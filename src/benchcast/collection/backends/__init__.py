"""Backends that compute nats per token: transformers, vLLM, SGLang, LMDeploy, llama.cpp and HTTP completions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchcast.choices import check_choice

if TYPE_CHECKING:
    from benchcast.collection.backends.base import Backend, ModelSettings
    from benchcast.collection.backends.hf import HfBackend


def _row(target: str) -> Callable[..., Backend]:
    """A function that opens "file:Class" of this package; imported when called, so that `--help` loads no library."""

    def open_class(settings: ModelSettings, **options: Any) -> Backend:
        file, name = target.split(":")
        backend: Backend = getattr(import_module(f"{__name__}.{file}"), name)(settings, **options)
        return backend

    return open_class


BACKENDS: dict[str, Callable[..., Backend]] = {
    "hf": _row("hf:HfBackend"),
    "vllm": _row("vllm:VllmBackend"),
    "vllm-server": _row("servers:VllmServer"),
    "sglang": _row("servers:SglangServer"),
    "lmdeploy": _row("lmdeploy:LmdeployBackend"),
    "llamacpp": _row("llamacpp:LlamaCppBackend"),
    "completions": _row("servers:EchoServer"),
}


def open_backend(kind: str, settings: ModelSettings | str, *, device: str = "", batch_size: int = 0) -> Backend:
    """Open a backend by name; the model itself is loaded when it first scores.

    Parameters
    ----------
    kind : a key of `BACKENDS`, for example "hf"
    settings : the model's settings, as in `--model_args`: "pretrained=…,dtype=…"; an unknown one is an InputError
    device : for example "cuda:0"; empty: the backend's default
    batch_size : sequences per call; 0: the backend's default

    Returns
    -------
    the backend

    >>> import benchcast as bc
    >>> backend = bc.open_backend("hf", "pretrained=checkpoint,dtype=bfloat16", device="cpu", batch_size=8)
    """
    from benchcast.collection.backends.base import ModelSettings

    check_choice("backend", kind, BACKENDS)
    model = ModelSettings.of(settings)
    backend = BACKENDS[kind](model, device=device, batch_size=batch_size)
    model.finish()
    return backend


def open_scorer(source: str, settings: ModelSettings | str = "", *, device: str = "", batch_size: int = 0) -> HfBackend:
    """Open a transformers model for its hidden states; the model itself is loaded when it is first used.

    Parameters
    ----------
    source : a local folder, a GGUF file or a hub id
    settings : more settings, as in `--model_args`: "dtype=…,revision=…"
    device : for example "cuda:0"; empty: cuda if available
    batch_size : sequences per call; 0: chosen automatically

    Returns
    -------
    the scorer, for `make_features`

    >>> import benchcast as bc
    >>> scorer = bc.open_scorer("checkpoint", "dtype=float32", batch_size=8)
    """
    from benchcast.collection.backends.base import ModelSettings
    from benchcast.collection.backends.hf import HfBackend

    scorer_settings = ModelSettings.of(settings).having(pretrained=source)
    scorer = HfBackend(scorer_settings, device=device, batch_size=batch_size)
    scorer_settings.finish()
    return scorer


def open_reference(settings: ModelSettings, *, device: str = "") -> HfBackend:
    """Open the same model in transformers in float32, as the reference for another backend."""
    from benchcast.collection.backends.base import ModelSettings
    from benchcast.collection.backends.hf import HfBackend

    values = settings.values()
    source = values.get("pretrained") or values.get("tokenizer") or values.get("model", "")
    kept = {k: v for k, v in values.items() if k in ("revision", "gguf_file", "add_bos_token", "trust_remote_code")}
    return HfBackend(ModelSettings({**kept, "pretrained": source, "dtype": "float32"}, settings.where), device=device)
