"""Forecasts in a run of Lightning (`lightning` or `pytorch_lightning`).

Trainer(…, callbacks=[LightningForecast("study", tokenizer=tokenizer, every=500)])
"""

from __future__ import annotations

import importlib
import sys
from operator import attrgetter
from typing import Any

from benchcast.callbacks.attempt import Attempts, interval_of
from benchcast.callbacks.live import DEFAULT, Fits, Reading
from benchcast.records import ModelInfo


def _base() -> Any:
    """The `Callback` of whichever Lightning the script has imported, else of the one that is installed."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda n: n not in sys.modules):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("neither lightning nor pytorch_lightning is installed")


class LightningForecast(_base()):  # type: ignore[misc]
    """Logs `forecast/<task>` with its interval, and `capability/<task>`, to all loggers of the run.

    Every `every` steps, or after each validation where `every` is 0. `model` names the language model
    inside the module (`model`, `net.lm`, …); where it is empty and there is no attribute `model`, it is
    the module itself. The tokenizer is the module's attribute `tokenizer` unless one is given.
    """

    def __init__(
        self, fits: Fits, *, every: int = 0, tokenizer: Any = None, model: str = "", reading: Reading = DEFAULT
    ) -> None:
        super().__init__()
        self._attempts = Attempts(fits, reading)
        self._every, self._tokenizer, self._model = interval_of(every), tokenizer, model
        self._last = -1  # step of the last forecast

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Every so many optimizer steps; accumulated batches count once."""
        if self._every and trainer.global_step and trainer.global_step % self._every == 0:
            self._forecast(trainer, pl_module)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """After each validation but the one that only tries it out."""
        if not self._every and not trainer.sanity_checking:
            self._forecast(trainer, pl_module)

    def _forecast(self, trainer: Any, pl_module: Any) -> None:
        if trainer.global_step == self._last:
            return
        self._last = trainer.global_step
        self._attempts.survive(lambda: self._log(trainer, pl_module))

    def _log(self, trainer: Any, pl_module: Any) -> None:
        name = self._model or ("model" if hasattr(pl_module, "model") else "")
        model = attrgetter(name)(pl_module) if name else pl_module
        tokenizer = self._tokenizer or getattr(pl_module, "tokenizer", None)
        with trainer.precision_plugin.forward_context():
            values = self._attempts.make(model, tokenizer, ModelInfo(f"step-{trainer.global_step}"))
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step)
