"""Import optional libraries when they are first used; a missing one is one line that names the extra to install."""

from __future__ import annotations

import importlib
from typing import Any

from benchcast.errors import MissingExtraError


def library(name: str, extra: str, instead: str = "") -> Any:
    """Import an optional library; MissingExtraError with an install hint, and what to do instead, if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{name} is needed here: pip install 'benchcast[{extra}]'{instead} ({error})"
        ) from error


class LazyLibrary:
    """An optional library that is imported when one of its names is first used."""

    def __init__(self, name: str, extra: str) -> None:
        self._name, self._extra = name, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(library(self._name, self._extra), name)


def require_report() -> None:
    """Raise MissingExtraError unless figures and pages can be written; for calls before long work."""
    for name in ("altair", "vl_convert", "jinja2"):
        library(name, "report")
