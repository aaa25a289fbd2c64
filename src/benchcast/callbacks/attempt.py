"""Forecasts that never stop a training run: what fails is said once, and the run goes on."""

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
    """Forecasts of one training run, one after the other."""

    def __init__(self, fits: Fits, reading: Reading = DEFAULT) -> None:
        self._fits, self._reading = read_fits(fits), reading
        self._ready: tuple[Any, Reader] | None = None
        self._warned = False
        self._remarks: dict[str, str] = {}  # the kind that was last told, by task

    def make(self, model: Any, tokenizer: Any, info: ModelInfo) -> dict[str, float]:
        """What to log: forecasts with their intervals, capabilities, and the seconds it took.

        `info` is the model's name and what is known of its training.
        """
        began = time.monotonic()
        ranks = Ranks.here(spread=self._reading.spread)
        reader = ranks.together(lambda: self._reader(tokenizer))
        found = reader.forecast(model, info)
        if ranks.rank == 0:
            self._tell(found, info.model)
        return {**scalars(found), "forecast/seconds": time.monotonic() - began}

    def _reader(self, tokenizer: Any) -> Reader:
        """Texts are tokenized once for each tokenizer."""
        if tokenizer is None:
            raise InputError("no tokenizer; give it to the callback with tokenizer=…")
        if self._ready is None or self._ready[0] is not tokenizer:
            self._ready = (tokenizer, Reader.of(tokenizer, self._fits, reading=self._reading))
        return self._ready[1]

    def _tell(self, found: dict[str, Forecast], name: str) -> None:
        """Log each forecast's remark when it is new or of another kind than before."""
        for task, forecast in found.items():
            kind = forecast.remark.partition(":")[0]
            if kind and kind != self._remarks.get(task):
                what = "forecast" if math.isfinite(forecast.accuracy) else "no forecast"
                LOG.warning("%s: %s of %s: %s", name, what, task, forecast.remark)
            self._remarks[task] = kind

    def survive(self, work: Callable[[], None]) -> None:
        """Do it; a failure is a warning the first time and nothing after that."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a training run outlives its forecasts, whatever they die of
            if not self._warned:
                what = "" if isinstance(error, BenchcastError) else f"{type(error).__name__}: "
                LOG.warning("no forecast: %s%s (training goes on; this is said once)", what, one_line(error))
            self._warned = True


def interval_of(every: int) -> int:
    """Steps between forecasts as asked for."""
    if every < 0:
        raise InputError(f"every={every}; a number of steps is needed, or 0 for each evaluation")
    return every


def scalars(found: dict[str, Forecast]) -> dict[str, float]:
    """Names and values for a logger; what cannot be said is left out."""
    values: dict[str, float] = {}
    for task, forecast in found.items():
        values[f"forecast/{task}"] = forecast.accuracy
        values[f"forecast/{task}_low"] = forecast.low
        values[f"forecast/{task}_high"] = forecast.high
        values[f"capability/{task}"] = forecast.capability
    return {name: value for name, value in values.items() if math.isfinite(value)}
