"""Functions that jobs of the tests call: each marks that it began, then does something or comes to grief."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

from benchcast.errors import NotEnoughDataError


def square(shared: Path, given: int) -> int:
    """What is asked for, in a moment."""
    mark(shared, given)
    return given * given


def slow_square(shared: Path, given: int) -> int:
    """The same after a while."""
    mark(shared, given)
    time.sleep(1.0)
    return given * given


def starve(shared: Path, given: int) -> int:
    """Job 1 asks for more memory than it may have, on its first attempts."""
    if mark(shared, given) <= 2 and given == 1:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        bytearray(8 << 30)
    return given * given


def killed(shared: Path, given: int) -> int:
    """Job 1 is ended by the system every time."""
    mark(shared, given)
    if given == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return given * given


def mistaken(shared: Path, given: int) -> int:
    """Something that a user has to mend."""
    raise NotEnoughDataError(f"job {given}: too little evidence; add some")


def mark(folder: Path, given: int) -> int:
    """Note an attempt in a file of its own; which attempt it is."""
    number = len(list(folder.glob(f"{given}-*"))) + 1
    (folder / f"{given}-{number}-{os.getpid()}").touch()
    return number


def large(shared: Path, given: int) -> bytes:
    """A result of 60 MB, so that a few of them are more than an object store of 80 MB."""
    mark(shared, given)
    return bytes([given]) * (60 << 20)


def byte_of(shared: bytes, given: int) -> int:
    """A byte of shared data."""
    return shared[given]


def logical_gpus(shared: Path, given: int) -> list[str]:
    """GPUs that Ray assigned to the worker."""
    import ray

    mark(shared, given)
    time.sleep(1.0)
    return [str(i) for i in ray.get_gpu_ids()]
