"""One tree for every failure that a user can mend; the command line prints it as one line.

BenchcastError
├── InputError          a file or value handed in: where, what was found, what was needed
├── StudyError          the study folder: absent, damaged, of a newer version, in use
├── NotEnoughDataError  the study is sound but holds too little for what was asked
├── ClusterError        a cluster that is not there, or loses workers time and again
└── MissingExtraError   an optional dependency is not installed
"""


class BenchcastError(Exception):
    """Base of all deliberate failures; anything else that escapes is a bug."""


class InputError(BenchcastError):
    """A file or value that was handed in cannot be used."""


class StudyError(BenchcastError):
    """The study folder is absent, damaged or made by a newer version."""


class NotEnoughDataError(BenchcastError):
    """The study is sound but lacks what a fit, comparison or forecast needs."""


EvidenceError = NotEnoughDataError  # its name before


class MissingExtraError(BenchcastError):
    """An optional dependency is needed here and not installed."""


class ClusterError(BenchcastError):
    """A cluster is not there, or loses workers time and again."""


def one_line(error: Exception) -> str:
    """The first line of what a library has to say."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
