"""The vLLM backend, in process."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from benchcast.collection.backends.base import DeviceFullError, ModelSettings, Nats, from_logprobs, read_each
from benchcast.collection.backends.loaded import LoadedBackend
from benchcast.collection.backends.sources import loading, locate_source
from benchcast.errors import InputError, library, one_line

STEP = 2048  # prompt tokens per step; their log-probabilities over the whole vocabulary are in memory together
SMALLEST_STEP = 128


class VllmBackend(LoadedBackend):
    """A model in its own vLLM engine.

    vLLM does not count prompt log-probabilities when it sizes its cache. By default it therefore gets half the
    memory and reads prompts in small steps. If the engine still runs out of memory, it is restarted with half the
    step size, down to `SMALLEST_STEP`.
    """

    name = "vllm"

    def __init__(self, settings: ModelSettings, *, device: str = "", batch_size: int = 0) -> None:
        super().__init__(settings, dtype="float32")
        self._memory = settings.number("gpu_memory_utilization", 0.5)
        self._parallel = settings.whole("tensor_parallel_size", 1)
        self._step = settings.whole("max_num_batched_tokens", STEP)
        self._eager = bool(settings.flag("enforce_eager", False))
        self.batch_size = batch_size or 64
        self.batch_tokens = 1 << 30 if batch_size else 1 << 16

    @cached_property
    def context(self) -> int:
        """The engine's longest sequence less the one token it must generate."""
        return int(self._engine.llm_engine.model_config.max_model_len) - 1

    def about(self) -> dict[str, str]:
        dtype = str(self._engine.llm_engine.model_config.dtype).removeprefix("torch.")
        version = f"vllm {self._library.__version__}"
        return {"backend": self.name, "backend_version": version, "dtype": dtype, **self._stated}

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        sampling = self._library.SamplingParams(prompt_logprobs=0, max_tokens=1, temperature=0, detokenize=False)
        prompts = [self._library.TokensPrompt(prompt_token_ids=list(ids)) for ids in sequences]
        return read_each(read_output, self._generate(prompts, sampling), sequences)

    def _generate(self, prompts: list[Any], sampling: Any) -> list[Any]:
        while True:
            try:
                return list(self._engine.generate(prompts, sampling, use_tqdm=False))
            except (RuntimeError, self._died) as error:
                message = one_line(error)
            # outside the handler, because the error's frames keep tensors alive
            if self._step // 2 < SMALLEST_STEP:
                raise DeviceFullError(
                    f"vLLM failed: {message}; out of memory? lower gpu_memory_utilization or max_length"
                )
            self._step //= 2
            self.__dict__.pop("_engine", None)  # the next one starts with the new step
            gc.collect()

    @property
    def _died(self) -> type[Exception]:
        """The error of a dead engine; its cause, usually memory, is only in vLLM's log."""
        died: type[Exception] = library("vllm.v1.engine.exceptions", "vllm").EngineDeadError
        return died

    @property
    def _library(self) -> Any:
        return library("vllm", "vllm")

    @cached_property
    def _engine(self) -> Any:
        with loading(self._source, "vLLM cannot load it"):
            return self._library.LLM(
                model=locate_source(self._source),
                tokenizer=locate_source(self._tokens.source),
                revision=self._revision or None,
                dtype=self._dtype,
                max_model_len=self._max_length or None,
                gpu_memory_utilization=self._memory,
                tensor_parallel_size=self._parallel,
                max_num_batched_tokens=self._step,
                enable_chunked_prefill=True,
                enable_prefix_caching=False,
                enforce_eager=self._eager,
                trust_remote_code=self._trust,
                logprobs_mode="raw_logprobs",
            )


def read_output(output: Any, ids: Sequence[int]) -> Nats:
    """Nats of one request; entry 0 must be None and the others must contain the token that was sent."""
    if list(output.prompt_token_ids or []) != list(ids):
        raise InputError("vLLM scored other token ids than were sent")
    entries = output.prompt_logprobs
    if entries is None:
        raise InputError("vLLM gave no prompt log-probabilities")
    values: list[float | None] = []
    for position, (entry, token) in enumerate(zip(entries, ids, strict=False)):
        if entry is not None and token not in entry:
            raise InputError(f"vLLM scored another token id at position {position}, {token} was sent")
        values.append(None if entry is None else float(entry[token].logprob))
    return from_logprobs(values + [None] * (len(entries) - len(values)), ids, "vLLM")
