"""A training script for launchers: `launched.py STUDY OUT JSON` with settings of TrainingArguments as JSON.

Leaves in OUT what the Trainer of rank 0 logged (log.json), how many ranks there were and whether they shared the
weights (about.json), and the trained weights, gathered (weights/). The setting `lora` trains an adapter of PEFT.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from runs import train
from small import TOKENIZER, leave, small_model, tokenizer_with_bos

from benchcast.callbacks import TransformersForecast
from benchcast.training.memory_backend import bare, sharded


def with_adapter(model: Any) -> Any:
    """The model with a LoRA adapter whose second matrix is not zero, so that it changes the losses."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(model, settings)


def main(study: str, out: Path, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    model = with_adapter(small_model()) if settings.pop("lora", False) else small_model()
    callback = TransformersForecast(study, every=2)
    trainer = train(out, tokenizer_with_bos(TOKENIZER), callback, model=model, learning_rate=1e-2, **settings)
    trainer.save_model(str(out / "weights"))
    if trainer.is_world_process_zero():
        about = {"ranks": trainer.args.world_size, "sharded": sharded(bare(trainer.model))}
        (out / "log.json").write_text(json.dumps(trainer.state.log_history))
        (out / "about.json").write_text(json.dumps(about))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    leave()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
