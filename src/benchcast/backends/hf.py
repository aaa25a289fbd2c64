"""The transformers backend: losses and hidden states of a model from a folder, GGUF file or hub id."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pickle import UnpicklingError
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from benchcast.backends.base import ModelSettings, Nats
from benchcast.backends.forward import Forward
from benchcast.backends.loaded import LoadedBackend
from benchcast.backends.sources import gguf_parts
from benchcast.backends.stated import stated
from benchcast.backends.weights import refuse_incomplete
from benchcast.errors import InputError, MissingExtraError, one_line
from benchcast.extras import library

BUSY = {"cpu": 512, "cuda": 16384}  # tokens of a batch; larger batches exceed CPU caches and need more padding
BROKEN = (OSError, ValueError, KeyError, RuntimeError, EOFError, SafetensorError, UnpicklingError)  # of bad files
DTYPES = ("float32", "float16", "bfloat16", "auto")


class HfBackend(LoadedBackend):
    """A causal language model of transformers."""

    name = "hf"

    def __init__(self, settings: ModelSettings, *, device: str = "", batch_size: int = 0) -> None:
        super().__init__(settings, dtype="float32")
        self._device = device or settings.text("device")
        self._gguf_file = settings.text("gguf_file")
        self.batch_size = batch_size or 64
        self._fixed_batch = bool(batch_size)
        if self._dtype not in DTYPES:
            raise InputError(f"{settings.where}: dtype={self._dtype}; one of {', '.join(DTYPES)} is needed")

    @property
    def batch_tokens(self) -> int:
        """Tokens that keep the device busy; unlimited if the user set a batch size."""
        return 1 << 30 if self._fixed_batch else BUSY.get(self._loaded.device.type, BUSY["cpu"])

    @property
    def context(self) -> int:
        """The configuration's limit, or `max_length` if that is smaller."""
        limit = self._forward.context
        return min(limit, self._max_length or limit)

    def about(self) -> dict[str, str]:
        """Backend, versions, dtype and model metadata."""
        import torch
        import transformers

        return {
            "backend": self.name,
            "backend_version": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "dtype": str(self._loaded.dtype).removeprefix("torch."),
            **stated(self._loaded),
        }

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given the ids before it."""
        return self._forward.score(sequences)

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        """Last hidden state at every id (tokens × dimensions)."""
        return self._forward.hidden(sequences)

    @cached_property
    def _forward(self) -> Forward:
        return Forward(self._loaded)

    @cached_property
    def _loaded(self) -> Any:
        torch, transformers = library("torch", "hf"), library("transformers", "hf")
        transformers.utils.logging.disable_progress_bar()
        device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        source, gguf = gguf_parts(self._source, self._gguf_file)
        options: dict[str, Any] = {"gguf_file": gguf} if gguf else {}
        dtype = "auto" if self._dtype == "auto" else getattr(torch, self._dtype)
        options |= {"dtype": dtype, "revision": self._revision or "main", "trust_remote_code": self._trust}
        try:
            model, info = transformers.AutoModelForCausalLM.from_pretrained(source, output_loading_info=True, **options)
            refuse_incomplete(model, info, self._source)
            model = model.to(device).eval()
        except ImportError as error:
            raise MissingExtraError(f"{self._source}: {one_line(error)}") from error
        except BROKEN as error:
            raise InputError(f"{self._source}: the model cannot be loaded: {one_line(error)}") from error
        if Forward(model).sees_the_future():
            raise InputError(
                f"{self._source}: {type(model).__name__} sees tokens to the right; a causal model is needed"
            )
        return model
