"""Products of features with few columns in several forms: GB/s of features read on one core, by least CPU time.

OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m lab.log.products
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from benchcast.methods.products import RowBlock, TiledBlock

TOKENS, DIMS = 16384, 2048
Floats32 = npt.NDArray[np.float32]


def speed(work: Callable[[], object], size: int) -> float:
    best = float("inf")
    for _ in range(6):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return size / best / 1e9


def project_tiles(tiles: list[TiledBlock], head: Floats32) -> None:
    for tile in tiles:
        tile.project(head)


def gather_tiles(tiles: list[TiledBlock], pieces: list[Floats32]) -> None:
    for tile, piece in zip(tiles, pieces, strict=True):
        tile.gather(piece)


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((TOKENS, DIMS), dtype=np.float32)
    tensor, rows = torch.from_numpy(values), RowBlock(values)
    tiles = [TiledBlock.of(values[a : a + 4096]) for a in range(0, TOKENS, 4096)]
    half, wide = values[:64].astype(np.float16), np.empty((64, DIMS), np.float32)
    print(f"a plain sum: {speed(values.sum, values.nbytes):.1f} GB/s")
    print(f"float16 to float32 in cache: {speed(lambda: np.copyto(wide, half), half.size):.2f} · 10⁹ values a second\n")
    print("| columns | form | features onto the head | features summed over tokens |\n|---|---|---|---|")
    for q in (6, 12, 24, 54, 108):
        w, g = rng.standard_normal((q, DIMS), dtype=np.float32), rng.standard_normal((q, TOKENS), dtype=np.float32)
        pieces = [g[:, a : a + 4096] for a in range(0, TOKENS, 4096)]
        tw, tg = torch.from_numpy(w), torch.from_numpy(g)
        forms: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "one product": (partial(np.matmul, w, values.T), partial(np.matmul, g, values)),
            "batches of rows as they lie": (partial(rows.project, w), partial(rows.gather, g)),
            "tiles 32 wide": (partial(project_tiles, tiles, w), partial(gather_tiles, tiles, pieces)),
            "torch": (partial(torch.matmul, tensor, tw.T), partial(torch.matmul, tg, tensor)),
        }
        for name, (project, gather) in forms.items():
            print(f"| {q} | {name} | {speed(project, values.nbytes):.1f} | {speed(gather, values.nbytes):.1f} |")


if __name__ == "__main__":
    main()
