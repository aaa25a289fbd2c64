"""A model and its tokenizer that are in memory already, as in a training loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from benchcast.backends.base import DeviceFullError, Nats, Vocabulary
from benchcast.backends.forward import Forward
from benchcast.errors import InputError

BATCH_LOGITS = 2 << 30  # bytes of the logits of one batch, where they have to be made whole
BUSY = {"cuda": 16384, "cpu": 2048}  # padded tokens that keep a device busy


class MemoryBackend:
    """Scores with a module that is there; it is neither moved nor changed."""

    name = "memory"
    asked = ""
    batch_size = 64

    def __init__(
        self, module: Any, vocabulary: Vocabulary, *, model: str = "model", context: int = 0, batch_tokens: int = 0
    ) -> None:
        self.model, self.vocabulary = model, vocabulary
        self._module = bare(module)
        self._sharded = sharded(self._module)
        self._forward = Forward(self._module, whole=self._sharded, training=True)
        self._context, self._batch_tokens = context, batch_tokens

    @property
    def device(self) -> Any:
        """Where the model lies."""
        return self._forward.device

    @property
    def context(self) -> int:
        """As asked, or what the configuration allows."""
        return self._context or self._forward.context

    @cached_property
    def batch_tokens(self) -> int:
        """The same on every rank: it rests on the size of the vocabulary and the kind of device alone."""
        fitting = max(1, BATCH_LOGITS // (4 * self._forward.width))
        return self._batch_tokens or min(fitting, BUSY.get(self.device.type, BUSY["cuda"]))

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given those before it.

        Ranks that share a model's weights must run the same batches, so none of them may halve its own.
        """
        try:
            return self._forward.score(sequences)
        except DeviceFullError as error:
            if self._sharded:
                raise InputError(str(error)) from error
            raise

    def about(self) -> dict[str, str]:
        """What the losses were made with."""
        import torch

        dtype = str(next(self._module.parameters()).dtype).removeprefix("torch.")
        return {"backend": self.name, "backend_version": f"torch {torch.__version__}", "dtype": dtype}


def bare(module: Any) -> Any:
    """The model inside the wrappers of `torch.compile` and data parallelism, which a lone forward pass can do without.

    A compiled model would be compiled again for the shapes of the texts.
    """
    from torch.nn import DataParallel
    from torch.nn.parallel import DistributedDataParallel

    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod
        elif isinstance(module, (DataParallel, DistributedDataParallel)):
            module = module.module
        else:
            return module


def sharded(module: Any) -> bool:
    """Whether ranks hold parts of the weights (FSDP, ZeRO-3, tensor parallelism), so that all must run together."""
    from torch.distributed import is_available

    if any(hasattr(p, "ds_id") for p in module.parameters()):
        return True
    if not is_available():
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    whole = any(isinstance(m, FullyShardedDataParallel) for m in module.modules())
    return whole or any(isinstance(p, DTensor) for p in module.parameters())
