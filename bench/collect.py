"""Tokens per second and memory of `collect` on CPU, against the loops one would write by hand.

    python bench/collect.py            SmolLM2-135M and Gemma-3-270M, all on the same texts in one run

Models come through tests/collect (fetched and converted once). Every row scores the same tokens.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "collect"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import convert
import numpy as np
import psutil
import torch

from benchcast.backends.base import Settings
from benchcast.backends.hf import HfBackend
from benchcast.collect import collect
from benchcast.records import Text, TextSet
from benchcast.store import Study

SENTENCE = "The committee met on Tuesday, and after a long debate it chose the second of the three plans. "
CHINESE = "委员会星期二开会，经过长时间的讨论，选择了三个方案中的第二个。"
CODE = "def mean(values):\n    total = sum(values)\n    return total / len(values)\n\n"


def texts(count: int) -> TextSet:
    """English, Chinese and code of about 10 to 150 tokens."""
    rng = np.random.default_rng(0)
    parts = [(SENTENCE, CHINESE, CODE)[i % 3] * int(rng.integers(1, 6)) for i in range(count)]
    return TextSet.of(Text(f"t{i}", "bench", f"{i}. {part}") for i, part in enumerate(parts))


class Peak:
    """Highest resident memory above what was there at the start."""

    def __enter__(self) -> Peak:
        self._process = psutil.Process()
        self._start = self.most = self._process.memory_info().rss
        self._on = True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._on:
            self.most = max(self.most, self._process.memory_info().rss)
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._thread.join()

    @property
    def gib(self) -> float:
        return (self.most - self._start) / 2**30


def bare_batches(model: Any, sequences: list[list[int]], batch_tokens: int) -> None:
    """A batched forward loop with full logits and nothing else but the loss."""
    order = sorted(sequences, key=len, reverse=True)
    while order:
        size = max(1, batch_tokens // len(order[0]))
        batch, order = order[:size], order[size:]
        ids = torch.zeros((len(batch), len(batch[0])), dtype=torch.long)
        for row, sequence in zip(ids, batch, strict=True):
            row[: len(sequence)] = torch.tensor(sequence)
        with torch.inference_mode():
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
            torch.log_softmax(logits.float(), -1).gather(-1, ids[:, 1:, None])


def one_at_a_time(model: Any, sequences: list[list[int]]) -> None:
    """A forward pass a text, as a first script would do it."""
    for sequence in sequences:
        ids = torch.tensor([sequence])
        with torch.inference_mode():
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
            torch.log_softmax(logits.float(), -1).gather(-1, ids[:, 1:, None])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds and peak GiB above the start."""
    with Peak() as peak:
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
    return seconds, peak.gib


def measure(name: str, folder: Path, count: int) -> None:
    backend = HfBackend(Settings({"pretrained": str(folder)}), device="cpu")
    chosen = texts(count)
    sequences = [[*backend.vocabulary.prefix, *backend.vocabulary.tokenizer.encode(t.text)] for t in chosen]
    tokens = sum(map(len, sequences))
    backend.score([sequences[0]])  # loads the model, so that no row pays for it
    rows: dict[str, Callable[[], object]] = {
        "collect, to stored losses": lambda: _collect(backend, chosen),
        "bare loop, same batches": lambda: bare_batches(backend._loaded, sequences, backend.batch_tokens),
        "bare loop, one text at a time": lambda: one_at_a_time(backend._loaded, sequences),
    }
    best = {row: (float("inf"), 0.0) for row in rows}
    for _ in range(2):
        for row, work in rows.items():
            seconds, gib = timed(work)
            best[row] = (min(best[row][0], seconds), max(best[row][1], gib))
    for row, (seconds, gib) in best.items():
        speed = best["collect, to stored losses"][0] / seconds
        print(f"| {name} | {row} | {tokens / seconds:,.0f} | {speed:.2f} | {gib:.2f} |")


def _collect(backend: HfBackend, chosen: TextSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        collect(Study.create(Path(folder) / "study", chosen), backend)


def main() -> None:
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, float32\n")
    print("| model | what | tokens/s | speed of it / collect | peak GiB above the model |")
    print("|---|---|---|---|---|")
    measure("SmolLM2-135M", convert.smollm2(), 24)
    measure("Gemma-3-270M", convert.gemma(), 12)


if __name__ == "__main__":
    main()
