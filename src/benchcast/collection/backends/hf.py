"""The transformers backend: losses and hidden states of a model from a folder, GGUF file or hub id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.collection.backends.base import Ids, ModelSettings, Nats
from benchcast.collection.backends.forward import Forward
from benchcast.collection.backends.loaded import LoadedBackend, stated
from benchcast.collection.backends.sources import gguf_parts, loading
from benchcast.errors import InputError, library

BUSY = {"cpu": 512, "cuda": 16384}  # tokens of a batch; larger batches exceed CPU caches and need more padding
DTYPES = ("float32", "float16", "bfloat16", "auto")
SHOWN = 3
# buffers that older versions of transformers stored and newer ones compute
BUFFERS = re.compile(r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$|(^|\.)position_ids$|attn\.(masked_)?bias$|"
                     r"attention\.(masked_)?bias$")  # fmt: skip


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
        import torch
        import transformers

        return {
            "backend": self.name,
            "backend_version": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "dtype": str(self._loaded.dtype).removeprefix("torch."),
            **stated(self._loaded),
        }

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        return self._forward.score(sequences)

    @property
    def shared_context(self) -> int:
        """Longest row of sequences whose common start is computed once; 0 if the model cannot."""
        return min(self._forward.shared_context, self.context)

    def score_groups(self, groups: Sequence[Sequence[Ids]]) -> list[list[Nats]]:
        return self._forward.score_groups(groups)

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
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
        with loading(self._source, "the model cannot be loaded"):
            model, info = transformers.AutoModelForCausalLM.from_pretrained(source, output_loading_info=True, **options)
            refuse_incomplete(model, info, self._source)
            model = model.to(device).eval()
        if Forward(model).sees_the_future():
            raise InputError(
                f"{self._source}: {type(model).__name__} sees tokens to the right; a causal model is needed"
            )
        return model


def refuse_incomplete(model: Any, info: dict[str, Any], source: str) -> None:
    """Raise InputError if weights are missing, unexpected or of another shape; transformers fills gaps at random.

    Parameters
    ----------
    model : the loaded transformers model
    info : the loading info of `from_pretrained(output_loading_info=True)`
    source : path or hub id, for the message
    """
    name = type(model).__name__
    missing = _not_tied(model, set(info.get("missing_keys", ())))
    if missing:
        raise InputError(
            f"{source}: the checkpoint lacks {len(missing)} of the weights of {name} ({_some(missing)}), which "
            "would be random numbers; is the checkpoint complete, and is config.json of the same model?"
        )
    unexpected = {key for key in info.get("unexpected_keys", ()) if not BUFFERS.search(key)}
    if unexpected:
        raise InputError(
            f"{source}: the checkpoint has {len(unexpected)} weights that {name} with its config.json does not use "
            f"({_some(unexpected)}); is config.json of the same model?"
        )
    mismatched = {str(entry[0] if isinstance(entry, tuple) else entry) for entry in info.get("mismatched_keys", ())}
    if mismatched:
        raise InputError(
            f"{source}: {len(mismatched)} weights of the checkpoint have another shape than {name} with its "
            f"config.json ({_some(mismatched)}); is config.json of the same model?"
        )


def _not_tied(model: Any, missing: set[str]) -> set[str]:
    """Missing parameters except tied ones, which share memory with a loaded parameter."""
    if not missing:
        return missing
    named = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    tensors = dict(chain(*named))
    loaded = {tensor.data_ptr() for name, tensor in tensors.items() if name not in missing}
    return {name for name in missing if name not in tensors or tensors[name].data_ptr() not in loaded}


def _some(keys: set[str]) -> str:
    """The first few names in sorted order."""
    first = sorted(keys)[:SHOWN]
    return ", ".join(first) + (", …" if len(keys) > SHOWN else "")
