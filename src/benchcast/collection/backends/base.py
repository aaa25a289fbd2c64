"""The backend protocol, the parser of its settings, and the checks of its numbers.

A backend only turns sequences of token ids into nats per token. Texts, bounds, BOS and windows are handled before,
in the same way for all backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from benchcast.collection.tokenizers import Tokenizer
from benchcast.errors import InputError
from benchcast.messages import refuse_unknown

Nats = npt.NDArray[np.float32]
PerToken = npt.NDArray[Any]  # nats or hidden states, one row for each token
Ids = Sequence[int]
Sent = TypeVar("Sent")  # one sequence, or a group of them
Row = TypeVar("Row")  # its result: nats or hidden states
SECRETS = ("api_key", "token", "key", "password", "auth_token", "hf_token")
DECISIVE = (  # settings that change losses
    *("pretrained", "model", "path", "revision", "gguf_file", "tokenizer", "dtype"),
    *("add_bos_token", "max_length", "engine"),
)
LARGEST = 1e30  # larger numbers are not losses and may overflow float32
MINUS_INFINITY = -9998.0  # servers write −9999 where JSON has no −inf


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A model's tokenizer and its BOS policy."""

    tokenizer: Tokenizer
    prefix: tuple[int, ...]  # ids put before every text: one BOS, or empty
    bos: str  # description of the policy, stored with the losses
    habit: str = ""  # what the tokenizer puts before a text by itself, if that is something else

    def about(self) -> dict[str, str]:
        """Entries that are stored with losses and features."""
        habit = {"bos_habit": self.habit} if self.habit else {}
        return {"tokenizer": self.tokenizer.name, "bos": self.bos, **habit}


class Backend(Protocol):
    """Scores sequences of token ids."""

    name: str
    model: str  # name of the model, for messages and as its default name in a study
    asked: str  # the settings that losses depend on, as the user wrote them
    batch_size: int  # maximum number of sequences in one call of `score`

    @property
    def batch_tokens(self) -> int:
        """Maximum number of padded tokens in one call of `score`."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer; does not load the model, so that texts are checked first."""
        ...

    @property
    def context(self) -> int:
        """Longest sequence in tokens; may load the model."""
        ...

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given the ids before it, one array per sequence; the first id has NaN."""
        ...

    def about(self) -> dict[str, str]:
        """Entries `backend`, `backend_version` and `dtype`, as stored with the losses."""
        ...


@runtime_checkable
class SharesPrefixes(Protocol):
    """A backend that computes what several sequences begin with once."""

    @property
    def shared_context(self) -> int:
        """Longest group, in tokens as `packed_length` counts them, that is scored together; 0 if the model cannot."""
        ...

    def score_groups(self, groups: Sequence[Sequence[Ids]]) -> list[list[Nats]]:
        """As `Backend.score`, for groups of sequences that begin alike."""
        ...


def shared_length(group: Sequence[Ids]) -> int:
    """Number of tokens with which all sequences of a group begin.

    >>> shared_length([[1, 2, 3], [1, 2, 4, 5]])
    2
    """
    rows = [tuple(ids) for ids in group]
    first, last = min(rows), max(rows)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def packed_length(group: Sequence[Ids]) -> int:
    """Tokens that a model reads to score a group: the common start once, then each rest without its last token.

    The last token of a sequence predicts nothing. A sequence alone is read whole.

    >>> packed_length([[1, 2, 3], [1, 2, 4, 5]])
    3
    """
    if len(group) == 1:
        return len(group[0])
    start = shared_length(group)
    return start + sum(max(0, len(ids) - start - 1) for ids in group)


class SequenceError(InputError):
    """An error in one sequence of a batch; `index` is its position in the batch."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(what)
        self.index = index


class DeviceFullError(InputError):
    """The batch does not fit into the device's memory."""


def in_halves(score: Callable[[Sequence[Sent]], list[Row]], sequences: Sequence[Sent]) -> list[Row]:
    """Score sequences or groups of them; a batch that does not fit into memory is halved, down to a single one."""
    try:
        return score(sequences)
    except DeviceFullError:
        if len(sequences) == 1:
            raise
    middle = len(sequences) // 2  # outside the handler, because the error's frames keep tensors alive
    first = in_halves(score, sequences[:middle])
    try:
        return first + in_halves(score, sequences[middle:])
    except SequenceError as error:
        raise SequenceError(middle + error.index, str(error)) from error


def read_each(read: Callable[..., Nats], *columns: Iterable[Any]) -> list[Nats]:
    """Call `read` with the values of each sequence; an InputError becomes a SequenceError with the index."""
    nats: list[Nats] = []
    for values in zip(*columns, strict=True):
        try:
            nats.append(read(*values))
        except InputError as error:
            raise SequenceError(len(nats), str(error)) from error
    return nats


class ModelSettings:
    """`key=value` settings of one model; `finish` rejects keys that were never read."""

    def __init__(self, values: dict[str, str], where: str = "--model_args") -> None:
        self.where = where
        self._values = {k: str(v) for k, v in values.items()}
        self._known: list[str] = []
        for key in self._values:
            if key.lower() in SECRETS:
                raise InputError(
                    f"{where}: {key} must not be a setting; set OPENAI_API_KEY or HF_TOKEN in the environment"
                )

    @classmethod
    def parse(cls, line: str, where: str = "--model_args") -> ModelSettings:
        """Parse `pretrained=…,dtype=…`, the notation of lm-eval."""
        values: dict[str, str] = {}
        for part in filter(None, (p.strip() for p in line.split(","))):
            key, sign, value = part.partition("=")
            if not sign:
                raise InputError(f"{where}: {part!r} is not key=value")
            values[key.strip()] = value.strip()
        return cls(values, where)

    @classmethod
    def of(cls, settings: ModelSettings | str) -> ModelSettings:
        """Settings as they are, or parsed from `pretrained=…,dtype=…`."""
        return cls.parse(settings) if isinstance(settings, str) else settings

    def text(self, key: str, default: str = "") -> str:
        """The setting as text, or `default`."""
        self._known.append(key)
        return self._values.get(key, default)

    def needed(self, key: str, example: str) -> str:
        """A required setting; InputError if it is missing."""
        value = self.text(key)
        if not value:
            raise InputError(f"{self.where}: no {key}; add {key}={example}")
        return value

    def whole(self, key: str, default: int) -> int:
        """The setting as a positive integer, or `default`."""
        value = self.text(key)
        if not value:
            return default
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise InputError(f"{self.where}: {key}={value}; a whole number from 1 is needed")
        return int(value)

    def number(self, key: str, default: float) -> float:
        """The setting as a positive number, or `default`."""
        value = self.text(key)
        try:
            number = float(value) if value else default
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise InputError(f"{self.where}: {key}={value}; a number above 0 is needed")
        return number

    def flag(self, key: str, default: bool | None = None) -> bool | None:
        """The setting as true or false, or `default`."""
        value = self.text(key).lower()
        if not value:
            return default
        if value not in ("true", "false", "yes", "no", "1", "0"):
            raise InputError(f"{self.where}: {key}={value}; true or false is needed")
        return value in ("true", "yes", "1")

    def finish(self) -> None:
        """Raise InputError for a setting that nothing has read."""
        refuse_unknown(self._values, dict.fromkeys(self._known), f"{self.where}: unknown setting")

    @property
    def line(self) -> str:
        """The settings that losses depend on, as one `key=value,…` line."""
        return ",".join(f"{key}={self._values[key]}" for key in DECISIVE if key in self._values)

    def values(self) -> dict[str, str]:
        return dict(self._values)

    def having(self, **more: str) -> ModelSettings:
        """A copy with additional settings."""
        return ModelSettings({**self._values, **more}, self.where)


def from_logprobs(values: Iterable[Any], ids: Sequence[int], where: str) -> Nats:
    """Nats from a server's log-probabilities, one for each id; the first id has none (NaN).

    Parameters
    ----------
    values : log-probabilities as the reply contains them; anything but finite numbers is an InputError
    ids : the token ids that were sent
    where : start of error messages

    Returns
    -------
    array of nats, as long as `ids`
    """
    logprobs = list(values)
    if len(logprobs) != len(ids):
        raise InputError(f"{where} gave {len(logprobs)} log-probabilities for {len(ids)} tokens")
    nats = np.full(len(ids), np.nan, np.float32)
    for position, value in enumerate(logprobs[1:], start=1):
        if value is None:
            raise InputError(f"{where} gave no log-probability for token {position} of {len(ids)}")
        if not is_number(value):
            raise InputError(f"{where} gave {shown(value)} for token {position}, a log-probability is needed")
        if value <= MINUS_INFINITY:
            raise InputError(
                f"{where} gave {float(value):g} for token {position}: probability 0, whose loss is infinite"
            )
        nats[position] = -float(value)
    return nats


def from_logits(logits: npt.NDArray[np.floating], ids: Sequence[int]) -> Nats:
    """Nats of a sequence from its logits (tokens × words); row i predicts token i + 1, and the first token has NaN."""
    nats = np.full(len(ids), np.nan, np.float32)
    for i in range(1, len(ids)):
        row = logits[i - 1].astype(np.float64)
        top = row.max()
        nats[i] = top + np.log(np.exp(row - top).sum()) - row[ids[i]]
    return nats


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a finite number in the range of float32; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def shown(value: Any) -> str:
    """A JSON value as short printable text for a message."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int):
        return str(value) if abs(value) < LARGEST else "a very large number"
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return value[:40]
    return ascii(value[:40] if isinstance(value, str) else value)


def checked(nats: Nats, ids: Sequence[int], where: str) -> Nats:
    """The nats clipped at 0; InputError if they are too few, NaN, infinite, negative or all zero."""
    if len(nats) != len(ids):
        raise InputError(f"{where} gave {len(nats)} losses for {len(ids)} tokens")
    losses = nats[1:]
    if np.isnan(losses).any():
        raise InputError(f"{where} gave NaN for token {int(np.argmax(np.isnan(losses))) + 1} of {len(ids)}")
    if np.isinf(losses).any():
        raise InputError(f"{where} gave an infinite loss for token {int(np.argmax(np.isinf(losses))) + 1}")
    if (losses < -1e-4).any():
        raise InputError(f"{where} gave a negative loss ({losses.min():.4g}); a probability cannot exceed 1")
    if len(losses) > 1 and not losses.any():
        raise InputError(f"{where} gave 0 for all {len(losses)} tokens; it does not score prompts")
    return np.maximum(nats, 0.0, dtype=np.float32)
