"""Arrays on numpy or on a torch device; the same code works on both.

A device has torch's name ("cuda", "cuda:1", "cpu"); the empty name means numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from threadpoolctl import threadpool_limits

from benchcast.errors import InputError, install_hint

Array = Any  # a numpy array or a torch tensor
DROPPED = (1 << 13) - 1  # mantissa bits of a float32 that TF32 drops
BLAS_THREADS = 1


@contextmanager
def few_blas_threads() -> Iterator[None]:
    """Run linear algebra on one thread; a context or a decorator.

    The products of a fit are small, and threads that share one wait for each other: on a busy machine many times longer
    than it takes (`bench/busy.py`). Large products are cut into blocks, which use all cores (`over_blocks`).
    """
    with threadpool_limits(BLAS_THREADS, user_api="blas"):
        yield


def check_device(name: str) -> str:
    """Return the name of a device after checking that torch can use it."""
    if not name:
        return name
    try:
        import torch
    except ImportError:
        raise InputError(f"device {name!r} needs torch; {install_hint('hf')}") from None
    try:
        torch.zeros(1, dtype=torch.float64, device=name).item()  # laws are fitted in double precision
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device {name!r}: torch cannot use it here ({str(error).splitlines()[0]})") from None
    return name


def place(values: Array, device: str, dtype: str = "") -> Array:
    """Move values to a device, without a copy if none is needed.

    Parameters
    ----------
    values : numpy array or torch tensor
    device : name of the device; empty for numpy
    dtype : name of the target dtype; empty keeps the present one
    """
    if not device:
        return np.asarray(to_numpy(values), dtype or None)
    import torch

    if isinstance(values, np.ndarray):
        values = torch.from_numpy(values if values.flags.writeable else values.copy())
    moved = values.to(device)  # before the conversion: float16 moves half the bytes
    return moved.to(getattr(torch, dtype)) if dtype else moved


def to_numpy(values: Array) -> npt.NDArray[Any]:
    """The same values as a numpy array."""
    return values if isinstance(values, np.ndarray) else np.asarray(values.detach().cpu().numpy())


def free_bytes(device: str) -> int | None:
    """Free memory of a CUDA device in bytes; None for other devices."""
    if not device.startswith("cuda"):
        return None
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def device_name(values: Array) -> str:
    """Name of the device of the values; empty for numpy."""
    return "" if isinstance(values, np.ndarray) else str(values.device)


def on_host(values: Array) -> bool:
    """Whether single values can be read without waiting for a device."""
    return isinstance(values, np.ndarray | np.generic) or values.device.type == "cpu"


def fits_tf32(values: Array) -> bool:
    """Whether these float32 values are exact in TF32, as converted float16 values are.

    TF32 keeps ten mantissa bits and drops thirteen.
    """
    import torch

    return all(bool((part.view(torch.int32) & DROPPED == 0).all()) for part in values.split(1 << 16))


def tf32_split_matmul(product: Callable[[Array], Array], rows: Array) -> Array:
    """Compute `product(rows)` on tensor cores without rounding the rows to TF32.

    Split each row into a TF32-exact part and a remainder. The extra rows are almost free, since the product
    is limited by reading the other factor from memory.

    Parameters
    ----------
    product : a linear function of rows
    rows : float32 tensor of few rows
    """
    import torch

    whole = rows.contiguous()
    upper = (whole.view(torch.int32) & ~DROPPED).view(torch.float32)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        parts = product(torch.cat([upper, whole - upper]))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return parts[: len(rows)] + parts[len(rows) :]


def subspace_iteration(multiply: Callable[[Array], Array], start: Array, *, rounds: int) -> Array:
    """Orthonormal columns that span the main directions of a symmetric matrix, from a random start.

    `multiply` gives the product of the matrix with columns. More columns than directions wanted need fewer rounds.
    """
    xp = array_namespace(start)
    basis = xp.linalg.qr(start)[0]
    for _ in range(rounds):
        basis = xp.linalg.qr(multiply(basis))[0]
    return basis
