"""Where the large arrays lie: numpy in memory, or torch on a device. The same code works on both.

A device is named as torch names it ("cuda", "cuda:1", "cpu"); the empty name is numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError

Array = Any  # a numpy array or a torch tensor
DROPPED = (1 << 13) - 1  # the digits of a float32 that tensor cores leave out


def check_device(name: str) -> str:
    """The name of a device that is really there."""
    if not name:
        return name
    try:
        import torch
    except ImportError:
        raise InputError(f"--device {name} needs torch; pip install 'benchcast[hf]'") from None
    try:
        torch.zeros(1, dtype=torch.float64, device=name).item()  # laws are fitted in double precision
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"--device {name}: torch cannot use it here ({str(error).splitlines()[0]})") from None
    return name


def place(values: Array, device: str, dtype: str = "") -> Array:
    """The values on the device, in the given precision or their own; no copy where none is needed."""
    if not device:
        return np.asarray(to_numpy(values), dtype or None)
    import torch

    if isinstance(values, np.ndarray):
        values = torch.from_numpy(values if values.flags.writeable else values.copy())
    moved = values.to(device)  # in its own precision: half the bytes if it is float16
    return moved.to(getattr(torch, dtype)) if dtype else moved


def to_numpy(values: Array) -> npt.NDArray[Any]:
    """The same values as a numpy array."""
    return values if isinstance(values, np.ndarray) else np.asarray(values.detach().cpu().numpy())


def free_bytes(device: str) -> int | None:
    """Free memory of a CUDA device; None where nobody says."""
    if not device.startswith("cuda"):
        return None
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def device_name(values: Array) -> str:
    """The name of the device that the values lie on; empty for numpy."""
    return "" if isinstance(values, np.ndarray) else str(values.device)


def on_host(values: Array) -> bool:
    """Whether single values can be looked at without waiting for a device."""
    return isinstance(values, np.ndarray | np.generic) or values.device.type == "cpu"


def fits_tf32(values: Array) -> bool:
    """Whether a GPU's tensor cores read these float32 values without loss, as they do what was once float16.

    Tensor cores take ten bits after the leading one and leave out the other thirteen.
    """
    import torch

    return all(bool((part.view(torch.int32) & DROPPED == 0).all()) for part in values.split(1 << 16))


def tf32_split_matmul(product: Callable[[Array], Array], rows: Array) -> Array:
    """A product with few rows on tensor cores, and no digit of the rows lost.

    Each row goes in as two, the digits that tensor cores read and the rest of them: columns cost nothing there, where
    the other factor has to come from memory.
    """
    import torch

    whole = rows.contiguous()
    upper = (whole.view(torch.int32) & ~DROPPED).view(torch.float32)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        found = product(torch.cat([upper, whole - upper]))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return found[: len(rows)] + found[len(rows) :]
