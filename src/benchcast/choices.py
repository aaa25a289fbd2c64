"""Named choices (splits, units, executors), each a `Literal` type and a tuple; the default level."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from benchcast.errors import InputError
from benchcast.messages import brief, did_you_mean

Split = Literal["auto", "column", "size", "family"]
SPLITS: tuple[Split, ...] = get_args(Split)

RegroupUnit = Literal["byte", "char"]  # over which a token's loss is spread
LossUnit = Literal["nats", "bits-per-byte"]  # of a column in a table of losses
ScoreUnit = Literal["fraction", "percent"]  # of a table of scores
ExecutorName = Literal["local", "ray"]  # where jobs run
REGROUP_UNITS: tuple[RegroupUnit, ...] = get_args(RegroupUnit)
LOSS_UNITS: tuple[LossUnit, ...] = get_args(LossUnit)
SCORE_UNITS: tuple[ScoreUnit, ...] = get_args(ScoreUnit)
EXECUTORS: tuple[ExecutorName, ...] = get_args(ExecutorName)
DEFAULT_LEVEL = 0.90  # nominal coverage of prediction intervals on unseen families


def check_choice(what: str, value: str, known: Iterable[str]) -> None:
    """Raise an InputError if a value is not among the known ones; `what` names the choice in the message.

    >>> check_choice("unit", "chars", REGROUP_UNITS)
    Traceback (most recent call last):
    benchcast.errors.InputError: unknown unit 'chars'; known: byte, char; did you mean 'char'?
    """
    names = list(known)
    if value not in names:
        raise InputError(f"unknown {what} {value!r}; known: {', '.join(names)}{did_you_mean(str(value), names)}")


def check_level(level: float) -> float:
    """Return the level of a prediction interval; an InputError if it is not between 0 and 1."""
    try:
        share = float(0 + level)  # no text, such as "0.9"
    except (TypeError, ValueError):
        raise InputError(f"level {brief(level)}: a share between 0 and 1 is needed, as in 0.9") from None
    if not 0 < share < 1:
        raise InputError(f"level {share:g}: a share between 0 and 1 is needed, as in 0.9")
    return share


def level_text(level: float = DEFAULT_LEVEL) -> str:
    """A level in percent, as messages and headings show it.

    >>> level_text(0.9), level_text(0.975)
    ('90%', '97.5%')
    """
    return f"{round(100 * level, 6):g}%"
