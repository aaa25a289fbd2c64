"""Products of features with few columns in several forms: GB/s of features read on one core, by least CPU time.

OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m lab.log.products
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from benchcast.methods.algorithm2.products import Rows, Tiles

TOKENS, DIMS = 16384, 2048


def speed(work: Callable[[], object], size: int) -> float:
    best = float("inf")
    for _ in range(6):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return size / best / 1e9


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((TOKENS, DIMS), dtype=np.float32)
    tensor, rows = torch.from_numpy(values), Rows(values)
    tiles = [Tiles.of(values[a : a + 4096]) for a in range(0, TOKENS, 4096)]
    half, wide = values[:64].astype(np.float16), np.empty((64, DIMS), np.float32)
    print(f"a plain sum: {speed(values.sum, values.nbytes):.1f} GB/s")
    print(f"float16 to float32 in cache: {speed(lambda: np.copyto(wide, half), half.size):.2f} · 10⁹ values a second\n")
    print("| columns | form | features onto the head | features summed over tokens |\n|---|---|---|---|")
    for q in (6, 12, 24, 54, 108):
        w, g = rng.standard_normal((q, DIMS), dtype=np.float32), rng.standard_normal((q, TOKENS), dtype=np.float32)
        pieces = [g[:, a : a + 4096] for a in range(0, TOKENS, 4096)]
        tw, tg = torch.from_numpy(w), torch.from_numpy(g)
        forms: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "one product": (lambda w=w: w @ values.T, lambda g=g: g @ values),
            "batches of rows as they lie": (lambda w=w: rows.project(w), lambda g=g: rows.gather(g)),
            "tiles 32 wide": (
                lambda w=w: [t.project(w) for t in tiles],
                lambda p=pieces: [t.gather(x) for t, x in zip(tiles, p, strict=True)],
            ),
            "torch": (lambda w=tw: tensor @ w.T, lambda g=tg: g @ tensor),
        }
        for name, (project, gather) in forms.items():
            print(f"| {q} | {name} | {speed(project, values.nbytes):.1f} | {speed(gather, values.nbytes):.1f} |")


if __name__ == "__main__":
    main()
