"""Lightning with FSDP2 on two processes, which Lightning starts: `lightning_sharded.py STUDY OUT`.

Leaves the log of rank 0 (log/metrics.csv) and the trained weights, gathered (weights.pt).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import ModelParallelStrategy
from small import TOKENIZER, Rows, leave, small_model, tokenizer_with_bos
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

from benchcast.callbacks import LightningForecast
from benchcast.training.memory_backend import sharded


class Module(pl.LightningModule):
    """A language model whose weights are split among the processes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = small_model()

    def configure_model(self) -> None:
        mesh = self.device_mesh["data_parallel"]
        for layer in self.model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)

    def training_step(self, batch: Any, _: int) -> Any:
        return self.model(**batch).loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main(study: str, out: Path) -> None:
    torch.set_num_threads(1)
    module = Module()
    trainer = pl.Trainer(
        max_steps=4,
        accelerator="cpu",
        devices=2,
        strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
        callbacks=[LightningForecast(study, tokenizer=tokenizer_with_bos(TOKENIZER), every=2)],
        logger=CSVLogger(out, name="", version="log", flush_logs_every_n_steps=1),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(Rows(), batch_size=4))
    assert sharded(module.model)
    weights = get_model_state_dict(module.model, options=StateDictOptions(full_state_dict=True))
    if trainer.is_global_zero:
        torch.save(weights, out / "weights.pt")
    torch.distributed.barrier()
    leave()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
