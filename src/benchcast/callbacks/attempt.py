"""Make forecasts without stopping the training run; a failure is logged once and training continues."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from benchcast.callbacks.live import DEFAULT, LOG, Fits, Reader, Reading, read_fits
from benchcast.callbacks.ranks import Ranks
from benchcast.errors import BenchcastError, InputError, one_line
from benchcast.fits import Forecast
from benchcast.records import ModelInfo


class Attempts:
    """Makes the forecasts of one training run."""

    def __init__(self, fits: Fits, reading: Reading = DEFAULT, *, every: int = 0) -> None:
        if every < 0:
            raise InputError(f"every={every}; a number of steps is needed, or 0 for each evaluation")
        self._fits, self._reading, self.every = read_fits(fits), reading, every
        self._last = -1  # step of the last forecast
        self._ready: tuple[Any, Reader] | None = None
        self._warned = False
        self._remarks: dict[str, str] = {}  # kind of the last logged remark, by task

    def make(self, model: Any, tokenizer: Any, info: ModelInfo) -> dict[str, float]:
        """Scalars for the logger: forecasts, intervals, capabilities and the seconds they took.

        `info` holds the model's name and its training tokens and FLOPs, if known.
        """
        began = time.monotonic()
        ranks = Ranks.here(spread=self._reading.spread)
        reader = ranks.together(lambda: self._reader(tokenizer))
        forecasts = reader.forecast(model, info)
        if ranks.rank == 0:
            self._tell(forecasts, info.model)
        return {**scalars(forecasts), "forecast/seconds": time.monotonic() - began}

    def _reader(self, tokenizer: Any) -> Reader:
        """The reader of a tokenizer; texts are tokenized once for each tokenizer."""
        if tokenizer is None:
            raise InputError("no tokenizer; give it to the callback with tokenizer=…")
        if self._ready is None or self._ready[0] is not tokenizer:
            self._ready = (tokenizer, Reader.of(tokenizer, self._fits, reading=self._reading))
        return self._ready[1]

    def _tell(self, forecasts: dict[str, Forecast], name: str) -> None:
        """Log each forecast's remark if its kind differs from the last one."""
        for task, forecast in forecasts.items():
            kind = forecast.remark.partition(":")[0]
            if kind and kind != self._remarks.get(task):
                what = "forecast" if math.isfinite(forecast.accuracy) else "no forecast"
                LOG.warning("%s: %s of %s: %s", name, what, task, forecast.remark)
            self._remarks[task] = kind

    def survive(self, step: int, work: Callable[[], object]) -> None:
        """Run `work` once for each step; log a warning on the first failure and ignore later ones."""
        if step == self._last:
            return
        self._last = step
        try:
            work()
        except Exception as error:  # noqa: BLE001 - no error of a forecast may stop training
            if not self._warned:
                what = "" if isinstance(error, BenchcastError) else f"{type(error).__name__}: "
                LOG.warning("no forecast: %s%s (training continues; this warning is shown once)", what, one_line(error))
            self._warned = True


def scalars(forecasts: dict[str, Forecast]) -> dict[str, float]:
    """Names and values for a logger, without NaN."""
    values: dict[str, float] = {}
    for task, forecast in forecasts.items():
        values[f"forecast/{task}"] = forecast.accuracy
        values[f"forecast/{task}_low"] = forecast.low
        values[f"forecast/{task}_high"] = forecast.high
        values[f"capability/{task}"] = forecast.capability
    return {name: value for name, value in values.items() if math.isfinite(value)}
