"""How things are timed, and the table they are printed in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.methods.products import shared_out


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def held_bytes() -> int:
    """Memory of this process that is no file's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


@contextmanager
def peak() -> Iterator[list[float]]:
    """The most memory held inside the block, in GiB, as a list of one."""
    found, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            found[0] = max(found[0], held_bytes() / 2**30)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


class Table:
    """Rows printed as they come; every row is measured with the memory it takes."""

    def __init__(self, title: str) -> None:
        print(f"\n{title}\n\n| what | seconds | floor | ratio | GiB held |\n|---|---|---|---|---|", flush=True)

    def run(self, what: str, work: Callable[[], object], floor: float | None = None, *, scale: float = 1.0) -> float:
        with peak() as most:
            seconds = scale * timed(work)
        cells = f"{floor:.2f} | {seconds / floor:.2f}" if floor else "– | –"
        print(f"| {what} | {seconds:.2f} | {cells} | {most[0]:.2f} |", flush=True)
        return seconds


def bandwidth(values: npt.NDArray[Any]) -> float:
    """Bytes a second that all cores read together: what a pass over the features cannot beat."""
    return values.nbytes / min(timed(lambda: shared_out(np.max, values)) for _ in range(5))
