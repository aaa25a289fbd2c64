"""Forecasts in a run of the Hugging Face Trainer.

Trainer(…, callbacks=[TransformersForecast("study", every=500)])
"""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from types import FrameType
from typing import Any

from transformers import Trainer, TrainerCallback

from benchcast.callbacks.attempt import Attempts, interval_of
from benchcast.callbacks.live import DEFAULT, Fits, Reading
from benchcast.records import ModelInfo


class TransformersForecast(TrainerCallback):  # type: ignore[misc]
    """Logs `forecast/<task>` with its interval, and `capability/<task>`, through the Trainer's own loggers.

    Every `every` steps and at the last one, or at each evaluation where `every` is 0. A study without
    fits is an error here, before training starts; whatever fails later is a warning.
    """

    def __init__(self, fits: Fits, *, every: int = 0, tokenizer: Any = None, reading: Reading = DEFAULT) -> None:
        self._attempts = Attempts(fits, reading)
        self._every, self._tokenizer = interval_of(every), tokenizer
        self._last = -1  # step of the last forecast

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Every so many steps."""
        if self._every and (state.global_step % self._every == 0 or state.global_step >= state.max_steps):
            self._forecast(state, control, given)

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """With each evaluation; one of several data sets is enough."""
        if not self._every:
            self._forecast(state, control, given)

    def _forecast(self, state: Any, control: Any, given: dict[str, Any]) -> None:
        if state.global_step == self._last:
            return
        self._last = state.global_step
        self._attempts.survive(lambda: self._log(state, control, given))

    def _log(self, state: Any, control: Any, given: dict[str, Any]) -> None:
        trainer = _trainer_above()
        tokenizer = self._tokenizer or given.get("processing_class") or given.get("tokenizer")
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor for several kinds of data
        with nullcontext() if trainer is None else trainer.accelerator.autocast():
            values = self._attempts.make(given["model"], tokenizer, _known(state, trainer))
        if trainer is None:
            state.log_history.append({**values, "step": state.global_step})
            return
        due = control.should_log
        try:
            trainer.log(values)
        finally:
            control.should_log = due  # logging clears it, and the Trainer's own line may still be due


def _known(state: Any, trainer: Any) -> ModelInfo:
    """The step's name, and the FLOPs and tokens of the run so far where the Trainer counts them."""
    flops = state.total_flos
    if trainer is not None:  # counted since the last line was logged
        flops += trainer.current_flos * trainer.args.world_size
    tokens = state.num_input_tokens_seen
    return ModelInfo(f"step-{state.global_step}", tokens=tokens or math.nan, flops=flops or math.nan)


def _trainer_above() -> Any:
    """The Trainer whose event this is. Events do not carry it, and nothing else knows the run's loggers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), Trainer):
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]
