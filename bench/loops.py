"""The loops that `collect` is measured against, and how they are measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Sequences = list[list[int]]


def batched(sequences: Sequences, size: int, tokens: int) -> list[Sequences]:
    """Batches by length, as collect makes them."""
    order, made = sorted(sequences, key=len, reverse=True), []
    while order:
        count = max(1, min(size, tokens // len(order[0])))
        made.append(order[:count])
        order = order[count:]
    return made


def bare(model: Any, batches: list[Sequences]) -> None:
    """Forward passes with full logits and the loss, and nothing else."""
    for batch in batches:
        ids = padded(batch).to(model.device)
        with torch.inference_mode():
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
            nats = -torch.log_softmax(logits.float(), -1).gather(-1, ids[:, 1:, None])
        nats.cpu()


def padded(batch: Sequences) -> torch.Tensor:
    """Ids with zeros to the right of shorter sequences, row by row."""
    ids = torch.zeros((len(batch), max(map(len, batch))), dtype=torch.long)
    for row, sequence in zip(ids, batch, strict=True):
        row[: len(sequence)] = torch.tensor(sequence)
    return ids


def token_by_token(model: Any, ids: list[int]) -> np.ndarray:
    """One forward pass for every token, and log-softmax in float64."""
    nats = []
    with torch.inference_mode():
        for i in range(1, len(ids)):
            logits = model(torch.tensor([ids[:i]], device=model.device)).logits[0, -1].double()
            nats.append(-torch.log_softmax(logits, -1)[ids[i]].item())
    return np.array(nats)


def in_turn(
    rows: dict[str, Callable[[], object]], rounds: int, device: Any, clock: str = "wall"
) -> dict[str, tuple[float, float]]:
    """Seconds and peak GiB above the start of each row: the least of several rounds, the most memory."""
    best = {row: (float("inf"), 0.0) for row in rows}
    for _ in range(rounds):
        for row, work in rows.items():
            seconds, gib = timed(work, device, clock)
            best[row] = (min(best[row][0], seconds), max(best[row][1], gib))
    return best


def timed(work: Callable[[], object], device: Any, clock: str = "wall") -> tuple[float, float]:
    """Seconds and peak GiB above the start; by the processor's clock, others on the machine count for less."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    on_cuda = torch.device(device).type == "cuda"
    with _CudaPeak() if on_cuda else _Peak() as peak:
        began = now()
        work()
        if on_cuda:
            torch.cuda.synchronize()
        seconds = now() - began
    return seconds, peak.gib


class _CudaPeak:
    def __enter__(self) -> _CudaPeak:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self._start = torch.cuda.memory_allocated()
        return self

    def __exit__(self, *_: object) -> None:
        self.gib = (torch.cuda.max_memory_allocated() - self._start) / 2**30


class _Peak:
    """Highest resident memory above what was there at the start."""

    def __enter__(self) -> _Peak:
        self._start = self._most = _resident()
        self._on = True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._on:
            self._most = max(self._most, _resident())
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._thread.join()
        self.gib = (self._most - self._start) / 2**30


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096


def flops_per_token(model: Any) -> int:
    """Twice the weights a token is multiplied with: all but the embeddings, and the head; attention is left out."""
    body = sum(p.numel() for name, p in model.named_parameters() if "embed" not in name and "lm_head" not in name)
    return 2 * (body + model.get_output_embeddings().weight.numel())


def peak(device: str, clock: str = "wall") -> str:
    """What a large product of float32 matrices reaches here, in words."""
    a, b = (torch.randn(2048, 2048, device=device) for _ in range(2))
    seconds = min(timed(lambda: a @ b, device, clock)[0] for _ in range(5))
    return f"{2 * 2048**3 / seconds / 1e9:,.0f} GFLOP/s in float32"
