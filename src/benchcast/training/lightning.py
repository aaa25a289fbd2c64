"""Callback for Lightning (`lightning` or `pytorch_lightning`) that logs forecasts.

Trainer(…, callbacks=[LightningForecast("study", tokenizer=tokenizer, every=500)])
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from benchcast.errors import InputError
from benchcast.records import ModelInfo
from benchcast.training.live import DEFAULT, Attempts, Fits, Reading


def _base() -> Any:
    """The `Callback` class of the Lightning package that is imported, else of the one that is installed."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda n: n not in sys.modules):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("neither lightning nor pytorch_lightning is installed")


class LightningForecast(_base()):  # type: ignore[misc]
    """Logs `forecast/<task>`, its interval and `capability/<task>` to all loggers of the run.

    Parameters
    ----------
    fits : a study or its folder, a fit's folder or hub id, or fits
    every : optimizer steps between forecasts; 0: after each validation
    tokenizer : the model's tokenizer; default: the module's attribute `tokenizer`
    model : attribute path of the language model in the module (`model`, `net.lm`, …); default: `model` if the module
        has it, else the module itself
    reading : how the texts are scored
    need : task → score (0..1) that the model needs; the probability that it has it is logged as `forecast/<task>_p`
    """

    def __init__(
        self,
        fits: Fits,
        *,
        every: int = 0,
        tokenizer: Any = None,
        model: str = "",
        reading: Reading = DEFAULT,
        need: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self._attempts, self._tokenizer, self._model = Attempts(fits, reading, every=every, need=need), tokenizer, model

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Raise InputError before training starts if the strategy shards the whole module (FSDPStrategy).

        Its weights are gathered only while the whole module runs, and not for the language model inside it.
        """
        if type(trainer.strategy).__name__ == "FSDPStrategy":
            raise InputError(
                "LightningForecast does not support FSDPStrategy (FSDP1); use ModelParallelStrategy with fully_shard "
                "(FSDP2), or forecast saved checkpoints with `benchcast watch`"
            )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Forecast every `every` optimizer steps; accumulated batches count once."""
        step, every = trainer.global_step, self._attempts.every
        if every and step and step % every == 0:
            self._attempts.survive(step, lambda: self._log(trainer, pl_module))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Forecast after each validation except the sanity check."""
        if not self._attempts.every and not trainer.sanity_checking:
            self._attempts.survive(trainer.global_step, lambda: self._log(trainer, pl_module))

    def _log(self, trainer: Any, pl_module: Any) -> None:
        name = self._model or ("model" if hasattr(pl_module, "model") else "")
        model = attrgetter(name)(pl_module) if name else pl_module
        tokenizer = self._tokenizer or getattr(pl_module, "tokenizer", None)
        with trainer.precision_plugin.forward_context():
            values = self._attempts.make(model, tokenizer, ModelInfo(f"step-{trainer.global_step}"))
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step)
