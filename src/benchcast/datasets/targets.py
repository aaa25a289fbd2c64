"""Forecasts of the target models of a public study in a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from benchcast.datasets import olmo_ladder
from benchcast.evaluate import Comparison

TARGETS = {"olmo-ladder": olmo_ladder.TARGETS}


@dataclass(frozen=True, slots=True)
class TargetForecast:
    """Forecast and observed accuracy (0..1) of a held-out model on one task."""

    model: str
    task: str
    forecast: float
    low: float  # ends of the prediction interval
    high: float
    observed: float

    @property
    def points(self) -> float:
        """Forecast minus observed accuracy, in percentage points."""
        return 100 * (self.forecast - self.observed)


def target_forecasts(name: str, comparison: Comparison) -> list[TargetForecast]:
    """Forecasts of the target models of a public study by the first method; empty if it has no targets."""
    forecasts = []
    for model in TARGETS.get(name, ()):
        for task in comparison.tasks:
            held = comparison.held_out[task, comparison.methods[0]]
            i = held.models.index(model)
            numbers = (float(x[i]) for x in (held.forecast, held.low, held.high, held.observed))
            forecasts.append(TargetForecast(model, task, *numbers))
    return forecasts
