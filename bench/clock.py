"""Seconds of work on a device, the speed of its memory, and the table they are printed in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Size:
    """What is timed, and where."""

    device: str
    tokens: int
    dims: int
    models: int
    steps: int
    repeats: int


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def timed(work: Callable[[], object], size: Size, *, repeats: int = 1) -> float:
    """Least seconds of a few runs."""
    best = float("inf")
    for _ in range(repeats):
        wait(size.device)
        start = time.perf_counter()
        work()
        wait(size.device)
        best = min(best, time.perf_counter() - start)
    return best


def features_on(size: Size, tokens: int | None = None) -> torch.Tensor:
    generator = torch.Generator(device=size.device).manual_seed(0)
    return torch.randn(tokens or size.tokens, size.dims, generator=generator, device=size.device)


def bandwidth(values: torch.Tensor, size: Size) -> float:
    """Bytes a second of a copy, read and written."""
    other = torch.empty_like(values)
    other.copy_(values)
    return 2 * values.nbytes / timed(lambda: other.copy_(values), size, repeats=size.repeats)


class Table:
    """Rows of seconds beside their floor, printed as they come."""

    def __init__(self, title: str) -> None:
        print(f"\n{title}\n\n| what | seconds | floor | ratio |\n|---|---|---|---|")
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, seconds: float, floor: float | None = None) -> None:
        cells = f"{floor:.4f} | {seconds / floor:.2f}" if floor else "– | –"
        print(f"| {what} | {seconds:.4f} | {cells} |", flush=True)
        self.rows.append({"what": what, "seconds": seconds, "floor": floor})
