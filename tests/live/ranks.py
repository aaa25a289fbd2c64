"""One rank of a distributed run; started twice by test_ranks.py. Says what happened as JSON in OUT.

python ranks.py RANK COUNT STUDY OUT
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from small import TOKENIZER, leave, small_model, tokenizer_with_bos
from torch import distributed

from benchcast.callbacks import read_fits
from benchcast.records import ModelInfo
from benchcast.training.live import Attempts, Reader


def capabilities(forecasts: dict[str, Any]) -> dict[str, float]:
    return {task: f.capability for task, f in forecasts.items()}


def counted(reader: Reader, model: Any) -> tuple[dict[str, float], int]:
    """Forecasts, and how often this rank ran the model on a batch of texts."""
    calls = []
    model.model.register_forward_hook(lambda *_: calls.append(1))
    values = capabilities(reader.forecast(model))
    return values, len(calls)


def fail_on_one(rank: int, study: str, tokenizer: Any) -> list[str]:
    """Rank 1 has a model that cannot evaluate; both must hear of it and go on."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("benchcast").addHandler(handler)
    attempts, model = Attempts(study), small_model()
    if rank == 1:
        model.model.norm.register_forward_pre_hook(lambda *_: 1 / 0)
    for step in (1, 2):
        attempts.survive(step, lambda step=step: attempts.make(model, tokenizer, ModelInfo(str(step))))  # type: ignore[misc]
    return said


def main(rank: int, count: int, study: str, out: Path) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(str(out / "store"), count)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=timedelta(seconds=60))
    tokenizer = tokenizer_with_bos(TOKENIZER)
    reader = Reader.of(tokenizer, read_fits(study))
    results: dict[str, Any] = {}
    results["spread"], results["calls"] = counted(reader, small_model())
    results["failure"] = fail_on_one(rank, study, tokenizer)
    distributed.destroy_process_group()
    (out / f"{rank}.json").write_text(json.dumps(results))
    leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
