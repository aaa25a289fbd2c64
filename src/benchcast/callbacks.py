"""The documented import path of the callbacks: see `benchcast.training`."""

from typing import Any

from benchcast import training
from benchcast.training import Reading as Reading
from benchcast.training import __all__ as __all__
from benchcast.training import forecast as forecast
from benchcast.training import read_fits as read_fits


def __getattr__(name: str) -> Any:
    """A callback, imported with its framework when first used."""
    return getattr(training, name)
