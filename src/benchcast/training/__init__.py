"""Forecast benchmark scores inside a training run.

Hugging Face Trainer:   Trainer(…, callbacks=[TransformersForecast("study", every=500)])
Lightning:              Trainer(…, callbacks=[LightningForecast("study", tokenizer=tokenizer, every=500)])
any other loop:         forecast(model, tokenizer, read_fits("study"))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from benchcast.training.live import Reading, forecast, read_fits

if TYPE_CHECKING:
    from benchcast.training.hf_trainer import TransformersForecast
    from benchcast.training.lightning import LightningForecast

__all__ = ["LightningForecast", "Reading", "TransformersForecast", "forecast", "read_fits"]
_FRAMEWORKS = {"TransformersForecast": ("hf_trainer", "transformers"), "LightningForecast": ("lightning", "lightning")}


def __getattr__(name: str) -> Any:
    """Import a callback's framework when the callback is first used."""
    if name not in _FRAMEWORKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, library = _FRAMEWORKS[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ImportError as error:
        raise ImportError(f"{name} needs {library}: pip install {library} ({error})") from error
