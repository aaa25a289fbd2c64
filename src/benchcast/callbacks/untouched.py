"""Restore a model's modes and all random generators after an evaluation during training."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np


@contextmanager
def untouched(model: Any) -> Iterator[None]:
    """Set the model to evaluation mode; on exit, restore the mode of every module and all random generators."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    python, legacy = random.getstate(), np.random.get_state()
    device = next(model.parameters()).device
    with ExitStack() as stack:
        stack.enter_context(_generators(device))
        if torch.is_autocast_enabled(device.type):  # do not cache weights that are cast without gradients
            dtype = torch.get_autocast_dtype(device.type)
            stack.enter_context(torch.autocast(device.type, dtype=dtype, cache_enabled=False))
        try:
            model.eval()
            yield
        finally:
            model.train(modes[0][1])  # some modules override train()
            for module, mode in modes:
                if module.training != mode:
                    module.training = mode
            random.setstate(python)
            np.random.set_state(legacy)


def _generators(device: Any) -> Any:
    """Context that restores torch's generators of the CPU and of the model's device."""
    import torch

    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = device.index if device.index is not None else torch.get_device_module(device.type).current_device()
    return torch.random.fork_rng(devices=[index], device_type=device.type)
