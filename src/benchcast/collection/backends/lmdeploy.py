"""The LMDeploy backend, in process: losses from the logits of whole prompts.

LMDeploy's own perplexity is one mean per text, so the full logits are read, in small batches because each row covers
the whole vocabulary. The pipeline's documented call takes only text and would use LMDeploy's tokenizer. The engine's
`async_get_logits`, which the pipeline uses itself, takes ids; it requests `output_logits='all'` with one new token
(turbomind) or none (pytorch).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from benchcast.collection.backends.base import DeviceFullError, ModelSettings, Nats, from_logits, read_each
from benchcast.collection.backends.loaded import LoadedBackend
from benchcast.collection.backends.sources import loading, locate_source
from benchcast.errors import InputError, library, one_line

ENGINES = ("turbomind", "pytorch")
DEFAULT_CONTEXT = 2048


class LmdeployBackend(LoadedBackend):
    """A model in an LMDeploy pipeline; needs CUDA."""

    name = "lmdeploy"

    def __init__(self, settings: ModelSettings, *, device: str = "", batch_size: int = 0) -> None:
        super().__init__(settings, dtype="float16", max_length=DEFAULT_CONTEXT)
        self._engine = settings.text("engine", ENGINES[0])
        self.batch_size, self.batch_tokens = batch_size or 8, 4096
        if self._engine not in ENGINES:
            raise InputError(f"{settings.where}: engine={self._engine}; {' or '.join(ENGINES)} is needed")

    @property
    def context(self) -> int:
        """The session's length less the one token it must generate."""
        return self._max_length - 1

    def about(self) -> dict[str, str]:
        version = f"lmdeploy {library('lmdeploy', 'lmdeploy').__version__} {self._engine}"
        return {"backend": self.name, "backend_version": version, "dtype": self._dtype, **self._stated}

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        try:
            rows = self._logits([list(ids) for ids in sequences])
        except RuntimeError as error:
            message = f"LMDeploy: {one_line(error)}"
            if "out of memory" in str(error).lower():
                raise DeviceFullError(f"{message}; lower max_length") from error
            raise InputError(message) from error
        if any(logits is None for logits in rows):  # the engine logs its errors and does not raise them
            raise DeviceFullError("LMDeploy gave no logits; out of memory? its log says why; lower max_length")
        if len(rows) != len(sequences):
            raise InputError(f"LMDeploy gave logits of {len(rows)} prompts, {len(sequences)} were sent")
        return read_each(read_logits, rows, sequences)

    def _logits(self, sequences: list[list[int]]) -> list[Any]:
        engine = getattr(self._pipeline, "async_engine", self._pipeline)  # older versions have no separate engine
        logits = self._pipeline._run(coro=engine.async_get_logits(input_ids=sequences)).result()
        return list(logits)

    @cached_property
    def _pipeline(self) -> Any:
        lmdeploy = library("lmdeploy", "lmdeploy")
        kind = lmdeploy.TurbomindEngineConfig if self._engine == ENGINES[0] else lmdeploy.PytorchEngineConfig
        config = kind(
            session_len=self._max_length,
            dtype=self._dtype,
            enable_prefix_caching=False,  # else the logits of a shared prefix would be missing
            revision=self._revision or None,
        )
        source = locate_source(self._source)
        with loading(self._source, "LMDeploy cannot load it"):
            return lmdeploy.pipeline(source, backend_config=config, trust_remote_code=self._trust)


def read_logits(logits: Any, ids: Sequence[int]) -> Nats:
    """Nats from one prompt's logits; rows after the prompt belong to generated tokens."""
    rows = np.asarray(logits.float().cpu().numpy() if hasattr(logits, "float") else logits, np.float32)
    rows = rows.reshape(-1, rows.shape[-1])
    if len(rows) < len(ids):
        raise InputError(f"LMDeploy gave {len(rows)} rows of logits for {len(ids)} tokens")
    return from_logits(rows, ids)
