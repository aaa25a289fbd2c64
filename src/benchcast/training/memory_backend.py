"""The backend for a model that is already in memory, as in a training loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from benchcast.collection.backends.base import DeviceFullError, Ids, Nats, Vocabulary
from benchcast.collection.backends.forward import Forward
from benchcast.errors import InputError

BATCH_LOGITS = 2 << 30  # bytes of one batch's logits, where they must be computed in full
BUSY = {"cuda": 16384, "cpu": 2048}  # padded tokens that keep a device busy


class MemoryBackend:
    """Scores with an existing module, which is neither moved nor changed."""

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
        return self._forward.device

    @property
    def context(self) -> int:
        """The user's limit in tokens, else the configuration's."""
        return self._context or self._forward.context

    @cached_property
    def batch_tokens(self) -> int:
        """Padded tokens of a batch; equal on every rank, because it depends only on vocabulary size and device type."""
        fitting = max(1, BATCH_LOGITS // (4 * self._forward.width))
        return self._batch_tokens or min(fitting, BUSY.get(self.device.type, BUSY["cuda"]))

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given the ids before it.

        With sharded weights all ranks must run the same batches, so a lack of memory is final there.
        """
        try:
            return self._forward.score(sequences)
        except DeviceFullError as error:
            if self._sharded:
                raise InputError(str(error)) from error
            raise

    @property
    def shared_context(self) -> int:
        """As `HfBackend.shared_context`; 0 with sharded weights, whose modules are called only as a whole."""
        return 0 if self._sharded else min(self.context, self._forward.shared_context)

    def score_groups(self, groups: Sequence[Sequence[Ids]]) -> list[list[Nats]]:
        return self._forward.score_groups(groups)

    def about(self) -> dict[str, str]:
        import torch

        dtype = str(next(self._module.parameters()).dtype).removeprefix("torch.")
        return {"backend": self.name, "backend_version": f"torch {torch.__version__}", "dtype": dtype}


def bare(module: Any) -> Any:
    """The model without the wrappers of `torch.compile`, data parallelism and DeepSpeed, which a pass does not need.

    A compiled model would be compiled again for the shapes of the texts.
    """
    from torch.nn import DataParallel
    from torch.nn.parallel import DistributedDataParallel

    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod
        elif isinstance(module, (DataParallel, DistributedDataParallel)) or type(module).__name__ == "DeepSpeedEngine":
            module = module.module  # an engine's `config` is not the model's, and ZeRO's hooks are in the module
        else:
            return module


def sharded(module: Any) -> bool:
    """Whether each rank holds a part of the weights (FSDP, ZeRO-3, tensor parallelism), so that all run together."""
    from torch.distributed import is_available

    if any(hasattr(p, "ds_id") for p in module.parameters()):
        return True
    if not is_available():
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    fully_sharded = any(isinstance(m, FullyShardedDataParallel) for m in module.modules())
    return fully_sharded or any(isinstance(p, DTensor) for p in module.parameters())


def splits_batches(module: Any) -> bool:
    """Whether ranks compute parts of one batch (tensor parallelism), so that all of them must be given the same texts.

    FSDP splits weights only: each rank computes its own batch. Weights that are split in two ways may be split by both.
    """
    from torch.distributed import is_available

    if not is_available():
        return False
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    split = [p for p in module.parameters() if isinstance(p, DTensor)]
    fully_sharded = any(isinstance(m, FSDPModule) for m in module.modules())
    return bool(split) and (not fully_sharded or any(p.device_mesh.ndim > 1 for p in split))
