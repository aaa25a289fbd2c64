"""What every backend offers, how its settings are read, and what its numbers must pass.

A backend turns sequences of token ids into nats per token, nothing else: texts, bounds, BOS and windows
are settled before it is asked, the same way for all of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from benchcast.bounds import Tokenizer
from benchcast.errors import InputError, MissingExtraError
from benchcast.formatting import did_you_mean

Nats = npt.NDArray[np.float32]
Row = TypeVar("Row")  # of one sequence: its nats, or its hidden states
SECRETS = ("api_key", "token", "key", "password", "auth_token", "hf_token")
DECISIVE = (
    *("pretrained", "model", "path", "revision", "gguf_file", "tokenizer", "dtype"),
    *("add_bos_token", "max_length", "engine"),
)
LARGEST = 1e30  # numbers beyond it are no losses and not for float32
MINUS_INFINITY = -9998.0  # servers write −9999 where JSON has no −inf


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A model's tokenizer, and what it puts in front of every text."""

    tokenizer: Tokenizer
    prefix: tuple[int, ...]  # ids before the text: one BOS, or nothing
    bos: str  # the policy in words, stored with the losses


class Backend(Protocol):
    """Scores sequences of token ids."""

    name: str
    model: str  # what is loaded, for messages and as the default name
    asked: str  # the settings that losses depend on, as they were given
    batch_size: int  # sequences that fit into one call of `score`

    @property
    def batch_tokens(self) -> int:
        """Padded tokens that fit into one call of `score`."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer; cheap, so that texts are checked before the model is loaded."""
        ...

    @property
    def context(self) -> int:
        """The longest sequence it takes; loads the model where that is needed to know."""
        ...

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given those before it; the first of each sequence is NaN."""
        ...

    def about(self) -> dict[str, str]:
        """backend, backend_version and dtype, as stored with the losses."""
        ...


class SequenceError(InputError):
    """Something is wrong with one sequence of those that were sent."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(what)
        self.index = index


class DeviceFullError(InputError):
    """The device has no room for so many sequences at a time."""


def in_halves(score: Callable[[Sequence[Sequence[int]]], list[Row]], sequences: Sequence[Sequence[int]]) -> list[Row]:
    """What `score` makes of the sequences; what does not fit into memory together is tried in halves."""
    try:
        return score(sequences)
    except DeviceFullError:
        if len(sequences) == 1:
            raise
    middle = len(sequences) // 2  # outside the handler: the error's frames hold on to memory
    first = in_halves(score, sequences[:middle])
    try:
        return first + in_halves(score, sequences[middle:])
    except SequenceError as error:
        raise SequenceError(middle + error.index, str(error)) from error


def numbered(index: int, score_one: Callable[..., Nats], *given: Any) -> Nats:
    """Score one sequence; what is wrong with it is raised with its number."""
    try:
        return score_one(*given)
    except InputError as error:
        raise SequenceError(index, str(error)) from error


def library(name: str, extra: str) -> Any:
    """An optional library, or a line that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{name} is needed here: pip install 'benchcast[{extra}]' ({error})") from error


class ModelSettings:
    """`key=value` settings of one model; a key nobody asked for is an error."""

    def __init__(self, values: dict[str, str], where: str = "--model_args") -> None:
        self.where = where
        self._values = {k: str(v) for k, v in values.items()}
        self._asked: list[str] = []
        for key in self._values:
            if key.lower() in SECRETS:
                raise InputError(
                    f"{where}: {key} must not be written down; set OPENAI_API_KEY or HF_TOKEN in the environment"
                )

    @classmethod
    def parse(cls, line: str, where: str = "--model_args") -> ModelSettings:
        """`pretrained=…,dtype=…`, as lm-eval writes it."""
        values: dict[str, str] = {}
        for part in filter(None, (p.strip() for p in line.split(","))):
            key, sign, value = part.partition("=")
            if not sign:
                raise InputError(f"{where}: {part!r} is not key=value")
            values[key.strip()] = value.strip()
        return cls(values, where)

    def text(self, key: str, default: str = "") -> str:
        """A setting as text."""
        self._asked.append(key)
        return self._values.get(key, default)

    def needed(self, key: str, example: str) -> str:
        """A setting that must be there."""
        value = self.text(key)
        if not value:
            raise InputError(f"{self.where}: no {key}; add {key}={example}")
        return value

    def whole(self, key: str, default: int) -> int:
        """A positive whole number."""
        value = self.text(key)
        if not value:
            return default
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise InputError(f"{self.where}: {key}={value}; a whole number from 1 is needed")
        return int(value)

    def number(self, key: str, default: float) -> float:
        """A positive number."""
        value = self.text(key)
        try:
            found = float(value) if value else default
        except ValueError:
            found = 0.0
        if not 0 < found < float("inf"):
            raise InputError(f"{self.where}: {key}={value}; a number above 0 is needed")
        return found

    def flag(self, key: str, default: bool | None = None) -> bool | None:
        """true or false, `default` where it is not set."""
        value = self.text(key).lower()
        if not value:
            return default
        if value not in ("true", "false", "yes", "no", "1", "0"):
            raise InputError(f"{self.where}: {key}={value}; true or false is needed")
        return value in ("true", "yes", "1")

    def finish(self) -> None:
        """Refuse what was set and not asked for."""
        for key in self._values:
            if key not in self._asked:
                known = ", ".join(dict.fromkeys(self._asked))
                raise InputError(
                    f"{self.where}: unknown setting {key!r}{did_you_mean(key, self._asked)} (known: {known})"
                )

    @property
    def line(self) -> str:
        """The settings that losses depend on, in one line."""
        return ",".join(f"{key}={self._values[key]}" for key in DECISIVE if key in self._values)

    def values(self) -> dict[str, str]:
        """All settings."""
        return dict(self._values)

    def having(self, **more: str) -> ModelSettings:
        """The same settings and some more."""
        return ModelSettings({**self._values, **more}, self.where)


def from_logprobs(values: Iterable[Any], ids: Sequence[int], where: str) -> Nats:
    """Nats from what a server calls log-probabilities: one for each id, none for the first."""
    found = list(values)
    if len(found) != len(ids):
        raise InputError(f"{where} gave {len(found)} log-probabilities for {len(ids)} tokens")
    nats = np.full(len(ids), np.nan, np.float32)
    for position, value in enumerate(found[1:], start=1):
        if value is None:
            raise InputError(f"{where} gave no log-probability for token {position} of {len(ids)}")
        if not is_number(value):
            raise InputError(f"{where} gave {shown(value)} for token {position}, a log-probability is needed")
        if value <= MINUS_INFINITY:
            raise InputError(
                f"{where} gave {float(value):g} for token {position}: probability 0, which no loss can stand for"
            )
        nats[position] = -float(value)
    return nats


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value of a reply is a finite number that a float32 can hold; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def shown(value: Any) -> str:
    """A value of a reply for a message: short, printable, and whatever it is."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int):
        return str(value) if abs(value) < LARGEST else "a very large number"
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return value[:40]
    return ascii(value[:40] if isinstance(value, str) else value)


def checked(nats: Nats, ids: Sequence[int], where: str) -> Nats:
    """Nats that may be stored; anything a backend makes up instead is an error that names it."""
    if len(nats) != len(ids):
        raise InputError(f"{where} gave {len(nats)} losses for {len(ids)} tokens")
    given = nats[1:]
    if np.isnan(given).any():
        raise InputError(f"{where} gave NaN for token {int(np.argmax(np.isnan(given))) + 1} of {len(ids)}")
    if np.isinf(given).any():
        raise InputError(f"{where} gave an infinite loss for token {int(np.argmax(np.isinf(given))) + 1}")
    if (given < -1e-4).any():
        raise InputError(f"{where} gave a negative loss ({given.min():.4g}); a probability cannot exceed 1")
    if len(given) > 1 and not given.any():
        raise InputError(f"{where} gave 0 for all {len(given)} tokens; it does not score prompts")
    return np.maximum(nats, 0.0, dtype=np.float32)
