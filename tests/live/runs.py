"""Short runs of the Hugging Face Trainer, and what it logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small import Rows, small_model
from transformers import Trainer, TrainingArguments

LOGGED = {f"{kind}/task{i}{end}" for i in (0, 1) for kind, end in (
    ("forecast", ""), ("forecast", "_low"), ("forecast", "_high"), ("capability", ""))}  # fmt: skip


def train(folder: Path, tokenizer: Any, *callbacks: Any, model: Any = None, **settings: Any) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(folder),
        **{
            "max_steps": 6,
            "per_device_train_batch_size": 4,
            "logging_steps": 2,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": True,
            "seed": 1,
            **settings,
        },
    )
    trainer = Trainer(
        model or small_model(),
        arguments,
        train_dataset=Rows(),
        eval_dataset=Rows(8),
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )
    trainer.train()
    return trainer


def forecasts(trainer: Trainer) -> list[dict[str, Any]]:
    return [row for row in trainer.state.log_history if "forecast/task0" in row]
