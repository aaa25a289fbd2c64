"""Callback for the Hugging Face Trainer that logs forecasts.

Trainer(…, callbacks=[TransformersForecast("study", every=500)])
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from types import FrameType
from typing import Any

from transformers import Trainer, TrainerCallback

from benchcast.records import ModelInfo
from benchcast.training.live import DEFAULT, Attempts, Fits, Reading


class TransformersForecast(TrainerCallback):  # type: ignore[misc]
    """Logs `forecast/<task>`, its interval and `capability/<task>` through the Trainer's loggers.

    A study without fits raises InputError here, before training starts; later failures are logged as a warning.

    Parameters
    ----------
    fits : a study or its folder, a fit's folder or hub id, or fits
    every : steps between forecasts, with one more at the last step; 0: at each evaluation
    tokenizer : the model's tokenizer; default: the Trainer's
    reading : how the texts are scored
    need : task → score (0..1) that the model needs; the probability that it has it is logged as `forecast/<task>_p`
    """

    def __init__(
        self,
        fits: Fits,
        *,
        every: int = 0,
        tokenizer: Any = None,
        reading: Reading = DEFAULT,
        need: Mapping[str, float] | None = None,
    ) -> None:
        self._attempts, self._tokenizer = Attempts(fits, reading, every=every, need=need), tokenizer

    def on_step_end(self, args: Any, state: Any, control: Any, **event: Any) -> None:
        """Forecast every `every` steps and at the last step."""
        step, every = state.global_step, self._attempts.every
        if every and (step % every == 0 or step >= state.max_steps):
            self._attempts.survive(step, lambda: self._log(state, control, event))

    def on_evaluate(self, args: Any, state: Any, control: Any, **event: Any) -> None:
        """Forecast at each evaluation, once for several evaluation sets."""
        if not self._attempts.every:
            self._attempts.survive(state.global_step, lambda: self._log(state, control, event))

    def _log(self, state: Any, control: Any, event: dict[str, Any]) -> None:
        trainer = _calling_trainer()
        tokenizer = self._tokenizer or event.get("processing_class") or event.get("tokenizer")
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # a multimodal processor holds the tokenizer
        with nullcontext() if trainer is None else trainer.accelerator.autocast():
            values = self._attempts.make(event["model"], tokenizer, _known(state, trainer))
        if trainer is None:
            state.log_history.append({**values, "step": state.global_step})
            return
        should_log = control.should_log
        try:
            trainer.log(values)
        finally:
            control.should_log = should_log  # trainer.log clears it, but the Trainer may still have to log


def _known(state: Any, trainer: Any) -> ModelInfo:
    """The step as a name, and the run's FLOPs and tokens so far if the Trainer counts them."""
    flops = state.total_flos
    if trainer is not None:  # FLOPs since the last logged line
        flops += trainer.current_flos * trainer.args.world_size
    tokens = state.num_input_tokens_seen
    return ModelInfo(f"step-{state.global_step}", tokens=tokens or math.nan, flops=flops or math.nan)


def _calling_trainer() -> Any:
    """The Trainer that called the callback, found on the stack: events do not carry it, and it holds the loggers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), Trainer):
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]
