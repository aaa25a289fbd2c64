"""Look at a model in training without leaving a trace: modes and random generators are as before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np


@contextmanager
def untouched(model: Any) -> Iterator[None]:
    """The model in evaluation mode; afterwards every module is in its mode and no generator has moved."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    python, legacy = random.getstate(), np.random.get_state()
    device = next(model.parameters()).device
    with ExitStack() as stack:
        stack.enter_context(_generators(device))
        if torch.is_autocast_enabled(device.type):  # weights cast here, without gradients, must not stay in its cache
            dtype = torch.get_autocast_dtype(device.type)
            stack.enter_context(torch.autocast(device.type, dtype=dtype, cache_enabled=False))
        try:
            model.eval()
            yield
        finally:
            model.train(modes[0][1])  # some modules do more than note their mode
            for module, mode in modes:
                if module.training != mode:
                    module.training = mode
            random.setstate(python)
            np.random.set_state(legacy)


def _generators(device: Any) -> Any:
    """Holds torch's generators of the CPU and of the model's device."""
    import torch

    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = device.index if device.index is not None else torch.get_device_module(device.type).current_device()
    return torch.random.fork_rng(devices=[index], device_type=device.type)
