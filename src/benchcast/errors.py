"""Exceptions for errors that a user can fix; the command line prints each as one line.

BenchcastError
├── InputError          a file or argument is invalid
├── StudyError          the study folder is absent, damaged, in use, or of a newer version
├── NotEnoughDataError  the study has too little data for a fit, comparison or forecast
├── ClusterError        a cluster is not reachable, or loses workers repeatedly
└── MissingExtraError   an optional dependency is not installed
"""


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
