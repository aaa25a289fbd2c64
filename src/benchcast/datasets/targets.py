"""Models that a public study is about, and what a comparison forecasts of them."""

from __future__ import annotations

from dataclasses import dataclass

from benchcast.datasets import olmo_ladder
from benchcast.evaluate import Comparison

TARGETS = {"olmo-ladder": olmo_ladder.TARGETS}


@dataclass(frozen=True, slots=True)
class TargetForecast:
    """Forecast of a held-out model's score on one task."""

    model: str
    task: str
    forecast: float
    low: float  # ends of the prediction interval
    high: float
    observed: float


def target_forecasts(name: str, found: Comparison) -> list[TargetForecast]:
    """Forecasts by the first method, model by model; empty for a study without such models."""
    made = []
    for model in TARGETS.get(name, ()):
        for task in found.tasks:
            held = found.held_out[task, found.methods[0]]
            i = held.models.index(model)
            numbers = (float(x[i]) for x in (held.forecast, held.low, held.high, held.observed))
            made.append(TargetForecast(model, task, *numbers))
    return made
