"""Exceptions for errors that a user can fix; the command line prints each as one line.

BenchcastError
├── InputError          a file or argument is invalid
├── StudyError          the study folder is absent, damaged, in use, or of a newer version
├── NotEnoughDataError  the study has too little data for a fit, comparison or forecast
├── ClusterError        a cluster is not reachable, or loses workers repeatedly
└── MissingExtraError   an optional dependency is not installed
"""

from __future__ import annotations

import importlib
from typing import Any

WITH_TORCH = ("hf", "train")  # extras that install torch, on Linux with CUDA
CPU_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


class BenchcastError(Exception):
    """Base class of all deliberate errors; any other exception is a bug."""


class InputError(BenchcastError):
    """A file or argument is invalid."""


class StudyError(BenchcastError):
    """The study folder is absent, damaged, in use, or written by a newer version."""


class NotEnoughDataError(BenchcastError):
    """The study has too little data for a fit, comparison or forecast."""


EvidenceError = NotEnoughDataError  # former name


class MissingExtraError(BenchcastError):
    """An optional dependency is not installed."""


class ClusterError(BenchcastError):
    """A cluster is not reachable, or loses workers repeatedly."""


def one_line(error: Exception) -> str:
    """The first non-empty line of an exception's message, or the name of its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def install_hint(extra: str) -> str:
    """How to install an extra, and the CPU build of torch if it needs one.

    >>> install_hint("report")
    "pip install 'benchcast[report]'"
    """
    cpu = f"; without a GPU first: {CPU_TORCH}" if extra in WITH_TORCH else ""
    return f"pip install 'benchcast[{extra}]'{cpu}"


def library(name: str, extra: str, instead: str = "") -> Any:
    """Import an optional library; MissingExtraError with an install hint, and what to do instead, if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{name} is needed here: {install_hint(extra)}{instead} ({error})") from error


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
