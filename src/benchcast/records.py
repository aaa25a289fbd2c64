"""Records of a study: texts, token losses, tasks, rows of models.csv and scores.csv, and the metadata of models.

Axes: S texts, N tokens, M models.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from benchcast.display import html_table
from benchcast.errors import InputError, MissingExtraError
from benchcast.messages import counted, nan_to_none

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# What is stored of the options of an item: −ln of the right answer's share of the probability of all options, from
# log-likelihoods as they are, and from log-likelihoods per character of the option.
CHOICE_LOSSES = ("choice", "choice_norm")
CHOICE_COLUMN = "column"  # where choice losses of a table's columns are, beside those of `CHOICE_LOSSES`


@dataclass(frozen=True, slots=True)
class Text:
    """One validation example."""

    id: str
    source: str
    text: str
    answer_start: int | None = None  # in bytes; the answer runs from here to the end
    unit: str | None = None  # label of the loss unit; set only for a text that is known by name only
    options: tuple[str, ...] = ()  # wrong continuations: each replaces the answer

    @property
    def prompt(self) -> str:
        """The text before its answer; all of it where there is no answer."""
        return self.text.encode()[: self.answer_start].decode()

    @property
    def answer(self) -> str:
        """The answer; empty where there is none."""
        return "" if self.answer_start is None else self.text.encode()[self.answer_start :].decode()

    def as_row(self) -> dict[str, Any]:
        """Return the text as a row of texts.jsonl."""
        if self.unit is not None:
            return {"id": self.id, "source": self.source, "unit": self.unit}
        row: dict[str, Any] = {"id": self.id, "source": self.source, "text": self.text}
        if self.answer_start is not None:
            row["answer_start"] = self.answer_start
        return {**row, "options": list(self.options)} if self.options else row

    def check_options(self) -> None:
        """Raise an error unless each option is a wrong continuation that can replace the answer."""
        where = f"texts: {self.id!r}"
        if self.answer_start is None:
            raise InputError(f"{where} has options and no answer_start; options replace the answer")
        try:
            answer = self.answer
        except UnicodeDecodeError as error:
            raise InputError(
                f"{where} has options, and answer_start {self.answer_start} is inside a character; "
                "let the answer start at a whole character"
            ) from error
        if not answer.strip():
            raise InputError(f"{where} has options and an empty answer; options replace the answer")
        for option in self.options:
            if not option.strip():
                raise InputError(f"{where} has an empty option; each needs a character that is no white space")
            if option == answer:
                raise InputError(f"{where}: option {option!r} is the answer itself; options are the wrong ones")


@dataclass(frozen=True)
class TextSet:
    """The validation set: an ordered set of texts with distinct ids."""

    texts: tuple[Text, ...]

    @classmethod
    def of(cls, texts: Iterable[Text]) -> Self:
        """Build a set after checking that ids are distinct and that each answer starts inside its text."""
        text_set = cls(tuple(texts))
        if not text_set.texts:
            raise InputError("texts: none found; a study needs at least one")
        if len(text_set.index) < len(text_set.texts):
            duplicate = next(t.id for i, t in enumerate(text_set.texts) if text_set.index[t.id] != i)
            raise InputError(f"texts: id {duplicate!r} occurs twice; ids must be distinct")
        for text, length in zip(text_set.texts, np.diff(text_set.starts), strict=True):
            if text.answer_start is not None and not 0 <= text.answer_start <= length:
                raise InputError(
                    f"texts: {text.id!r} has answer_start {text.answer_start}, "
                    f"the text has {length} bytes (answer_start counts UTF-8 bytes)"
                )
            if text.options:
                text.check_options()
        return text_set

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.texts)} texts from {len(self.sources)} sources>"

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Text]:
        return iter(self.texts)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each text id."""
        return {text.id: i for i, text in enumerate(self.texts)}

    @cached_property
    def utf8(self) -> npt.NDArray[np.uint8]:
        """The bytes of all texts, concatenated."""
        return np.frombuffer(b"".join(t.text.encode() for t in self.texts), np.uint8)

    @cached_property
    def starts(self) -> Ints:
        """The first byte of each text on the axis of all bytes, and the end of the last text (S + 1)."""
        return np.cumsum([0] + [len(t.text.encode()) for t in self.texts], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """Hash of the inputs of a loss: ids and texts, in order."""
        return _hash_rows([t.id, t.text] for t in self.texts)

    @cached_property
    def annotated_digest(self) -> str:
        """Hash of the inputs of a fit: `digest`, and the source and answer start of each text."""
        return _hash_rows([self.digest, *([t.id, t.source, t.answer_start] for t in self.texts)])

    @cached_property
    def options_digest(self) -> str:
        """Hash of the options, and of where they begin; empty if no text has options."""
        rows = [[t.id, t.answer_start, *t.options] for t in self.texts if t.options]
        return _hash_rows(rows) if rows else ""

    @property
    def sources(self) -> tuple[str, ...]:
        """Distinct sources in order of first appearance."""
        return tuple(dict.fromkeys(t.source for t in self.texts))

    def require_texts(self, what: str) -> None:
        """Raise an error if only the names or lengths of the texts are known; `what` names the task at hand."""


def _hash_rows(rows: Iterable[Any]) -> str:
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@dataclass(frozen=True, repr=False)
class TextOutlines(TextSet):
    """Ids, sources and lengths of texts without their content: enough to read losses, not to compute them."""

    lengths: tuple[int, ...]  # in bytes
    known_digest: str

    @cached_property
    def starts(self) -> Ints:
        """As in `TextSet`, from the stored lengths."""
        return np.cumsum([0, *self.lengths], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """As in `TextSet`, from the stored hash."""
        return self.known_digest

    @cached_property
    def utf8(self) -> npt.NDArray[np.uint8]:
        """Raise an error: the content is unknown."""
        raise InputError("the texts are not available: this fit was shared without them")

    def require_texts(self, what: str) -> None:
        """Raise an error that asks for the texts."""
        raise InputError(
            f"{what} needs the texts themselves, and the fit was shared without its texts; give them with texts=…"
        )


@dataclass(frozen=True, repr=False)
class NamedTexts(TextSet):
    """Texts that are known by name only: the columns of a table of losses.

    Each text counts as one token of one character, so all-token loss is the mean of the columns.
    """

    @cached_property
    def starts(self) -> Ints:
        """As in `TextSet`, with one byte per text."""
        return np.arange(len(self.texts) + 1, dtype=np.int64)

    @cached_property
    def utf8(self) -> npt.NDArray[np.uint8]:
        """One placeholder character per text."""
        return np.full(len(self.texts), ord("?"), np.uint8)

    @cached_property
    def digest(self) -> str:
        """Hash of the names, in order; the unit is a label and does not enter."""
        return _hash_rows([t.id] for t in self.texts)

    def require_texts(self, what: str) -> None:
        """Raise an error that explains what a table of losses can do."""
        raise InputError(
            f"{what} needs the texts themselves; this study is a table of losses, whose texts are known by name only "
            "(`benchcast import losses STUDY FILE.csv` adds models)"
        )


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """Token losses of one model on every text of a set, concatenated over texts."""

    model: str
    counts: Ints  # tokens of each text (S)
    edges: Ints  # token edges on the axis of all bytes (N + 1)
    nats: Floats  # −log p of each token; NaN where the model has no loss (N)
    about: dict[str, str] = field(default_factory=dict)  # tokenizer, backend, dtype, digest of the texts, …
    info: ModelInfo | None = None  # the model's row of models.csv, if it has one
    scores: tuple[Score, ...] = ()  # the model's rows of scores.csv
    choice: Floats | None = None  # choice loss of each text (S), NaN without one; None: of no text
    choice_norm: Floats | None = None  # the same from log-likelihoods per character

    def __repr__(self) -> str:
        return f"<TokenLosses of {self.model!r}: {len(self.nats)} tokens of {len(self.counts)} texts>"

    @property
    def texts_digest(self) -> str:
        """`TextSet.digest` of the scored texts; empty if it was not recorded."""
        return self.about.get("texts", "")

    @property
    def lacks_first_tokens(self) -> bool:
        """Whether the first token of each text has no loss, and all others have one: no BOS stood before the texts."""
        missing = np.isnan(self.nats)
        firsts = (np.cumsum(self.counts) - self.counts)[self.counts > 0]
        return 0 < len(firsts) == int(missing.sum()) < len(missing) and bool(missing[firsts].all())

    @property
    def choices(self) -> dict[str, Floats]:
        """The choice losses that the model has, by name of `CHOICE_LOSSES`."""
        return {name: values for name in CHOICE_LOSSES if (values := getattr(self, name)) is not None}

    def choice_inputs(self) -> dict[str, Floats]:
        """What a fit may read as choice losses (S): `choices`, and the whole loss of each text, for tables."""
        starts = np.cumsum(self.counts) - self.counts
        whole = np.zeros(len(self.counts))
        whole[self.counts > 0] = np.add.reduceat(self.nats, starts[self.counts > 0]) if self.counts.any() else 0.0
        return {**self.choices, CHOICE_COLUMN: whole}

    def with_choices(self, choices: Mapping[str, Floats]) -> TokenLosses:
        """The same losses of tokens with these choice losses, by name of `CHOICE_LOSSES`, in place of its own."""
        return replace(self, choice=choices.get("choice"), choice_norm=choices.get("choice_norm"))

    def text_bounds(self, starts: Ints) -> list[Ints]:
        """Bounds of the tokens of each text, in bytes from the start of that text.

        `starts` is `TextSet.starts` of the scored texts.
        """
        ends = np.cumsum(self.counts)
        return [
            self.edges[end - n : end + 1] - start for end, n, start in zip(ends, self.counts, starts[:-1], strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark to forecast, as in study.toml; scores and `chance` are from 0 to 1.

    >>> import benchcast as bc
    >>> task = bc.Study.open("study").task("facts")
    >>> task.chance, task.sources
    (0.25, ('source0',))
    """

    name: str
    chance: float = 0.0  # accuracy of random guessing; 0 for open-ended tasks
    sources: tuple[str, ...] = ()  # sources of the texts that belong to the task
    answers: tuple[str, ...] = ()  # ids of texts that consist of correct answers to the task
    members: tuple[str, ...] = ()  # of an aggregate: the tasks that it is the mean of
    centred: bool = False  # whether chance is taken out of the members before their mean
    metric: str = ""  # metric of score files that is the score; empty: the one that is usually reported
    choices: tuple[str, ...] = ()  # columns of a table that hold choice losses of the task


UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kKMBT]?)(?![A-Za-z])")


def natural_key(name: str) -> tuple[tuple[float, str], ...]:
    """Sort key of a name whose numbers count as numbers, also with a unit.

    >>> sorted(["run@10.8M", "run@2.2M", "run@900k"], key=natural_key)
    ['run@900k', 'run@2.2M', 'run@10.8M']
    """
    words, numbers = NUMBER.split(name)[::3], [float(m[1]) * UNITS[m[2]] for m in NUMBER.finditer(name)]
    return tuple(zip([-1.0, *numbers], words, strict=True))


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One row of models.csv; unknown values are NaN or empty.

    >>> import benchcast as bc
    >>> bc.ModelInfo("my-7b", family="mine", params=7e9, tokens=2e12).compute        # training FLOPs
    8.4e+22
    """

    model: str
    family: str = ""
    params: float = float("nan")
    tokens: float = float("nan")  # training tokens
    flops: float = float("nan")  # training FLOPs
    split: str = ""  # train, validation, test or empty
    base: str = ""  # the model or family that it was made from, of the study or not
    seed: str = ""  # seed of the training run; runs that differ in nothing else show the noise of seeds

    @property
    def family_name(self) -> str:
        """The family; a model without a family forms its own."""
        return self.family or f"model {self.model}"

    @property
    def compute(self) -> float:
        """Training FLOPs, estimated as 6 × params × tokens if they are not given."""
        return self.flops if np.isfinite(self.flops) else 6 * self.params * self.tokens

    @property
    def training_order(self) -> tuple[Any, ...]:
        """Sort key: family, size, training tokens, and the name with its numbers as numbers (2.2M before 10.8M)."""
        known = [x if np.isfinite(x) else 0.0 for x in (self.params, self.tokens)]
        return (self.family_name, *known, natural_key(self.model))


@dataclass(frozen=True, slots=True)
class Score:
    """One row of scores.csv: the accuracy of a model on a task.

    >>> import benchcast as bc
    >>> study = bc.Study.open("study")
    >>> study.add_scores([bc.Score("my-7b", "code", 0.61, n_items=500)])          # the number of new rows
    1
    >>> [s.accuracy for s in study.scores() if s.model == "my-7b"]
    [0.61]
    """

    model: str
    task: str
    accuracy: float  # 0..1
    n_items: float = float("nan")  # number of test items
    harness: str = ""
    version: str = ""
    shots: str = ""
    right_even: float = float("nan")  # correct answers among even-numbered items, for split-half noise
    stderr: float = float("nan")  # standard error of the accuracy, as reported by the harness


Row = TypeVar("Row", bound=ModelInfo | Score)


class Rows(list[Row], Generic[Row]):
    """A list of rows of models.csv or scores.csv that is also a table.

    >>> import benchcast as bc
    >>> models = bc.Study.open("study").models()
    >>> models[0].model, models.to_arrow().column_names[:3]
    ('ash-1M@2B', ['model', 'family', 'params'])
    """

    def __init__(self, kind: type[Row], rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self.kind = kind

    def to_arrow(self) -> Any:
        """A pyarrow.Table with the columns of the file; unknown values are null."""
        types = {f.name: "double" if f.type == "float" else "string" for f in fields(self.kind)}
        return arrow_table([{name: getattr(row, name) for name in types} for row in self], types)

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame; needs pandas."""
        return pandas_frame(self.to_arrow())

    def _repr_html_(self) -> str:
        names = [f.name for f in fields(self.kind)]
        filled = [name for name in names if any(getattr(row, name) not in ("", None) for row in self)]
        kept = [name for name in filled if not all(getattr(r, name) != getattr(r, name) for r in self)]
        title = counted(len(self), self.kind.__name__)
        return html_table(title, kept, [[getattr(row, name) for name in kept] for row in self])


def family_names(models: Sequence[ModelInfo]) -> npt.NDArray[np.str_]:
    """The family of each model; a model without a family forms its own."""
    return np.array([m.family_name for m in models], dtype=str)


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Metadata of M models; NaN where unknown."""

    families: npt.NDArray[np.str_]  # never empty
    flops: Floats  # training FLOPs
    params: Floats
    training_tokens: Floats
    scores: Floats  # M × benchmarks, accuracy
    benchmarks: tuple[str, ...]
    # Choice losses (M × S, NaN without one) by name of `CHOICE_LOSSES` or `CHOICE_COLUMN`; None: not looked at.
    choices: Mapping[str, Floats] | None = None

    @classmethod
    def of(
        cls, models: Sequence[ModelInfo], scores: Sequence[Score], choices: Mapping[str, Floats] | None = None
    ) -> ModelMetadata:
        """Build from rows of models.csv and scores.csv, with all benchmarks of the scores, and from choice losses."""
        benchmarks = tuple(dict.fromkeys(s.task for s in scores))
        table, row_of = np.full((len(models), len(benchmarks)), np.nan), {m.model: i for i, m in enumerate(models)}
        for score in scores:
            if score.model in row_of:
                table[row_of[score.model], benchmarks.index(score.task)] = score.accuracy
        return cls(
            families=family_names(models),
            flops=np.array([m.compute for m in models], np.float64),
            params=np.array([m.params for m in models], np.float64),
            training_tokens=np.array([m.tokens for m in models], np.float64),
            scores=table,
            benchmarks=benchmarks,
            choices=choices,
        )

    @classmethod
    def of_losses(cls, losses: TokenLosses) -> ModelMetadata:
        """Metadata of one model, as stored with its losses."""
        info = losses.info if losses.info is not None and losses.info.model == losses.model else ModelInfo(losses.model)
        scores = [s for s in losses.scores if s.model == losses.model]
        return cls.of([info], scores, {name: values[None] for name, values in losses.choice_inputs().items()})

    def take(self, rows: Bools | Ints) -> ModelMetadata:
        """Metadata of some of the models."""
        return replace(
            self,
            families=self.families[rows],
            flops=self.flops[rows],
            params=self.params[rows],
            training_tokens=self.training_tokens[rows],
            scores=self.scores[rows],
            choices=None if self.choices is None else {name: values[rows] for name, values in self.choices.items()},
        )

    def for_texts(self, numbers: Ints) -> ModelMetadata:
        """The same with the choice losses of some of the texts."""
        return (
            replace(self, choices={name: values[:, numbers] for name, values in self.choices.items()})
            if self.choices
            else self
        )

    def score(self, benchmark: str) -> Floats:
        """Accuracy of each model on a benchmark; NaN where unknown."""
        if benchmark not in self.benchmarks:
            return np.full(len(self.flops), np.nan)
        return self.scores[:, self.benchmarks.index(benchmark)]

    def known_score(self, benchmark: str) -> float:
        """Accuracy of the first model on a benchmark; `math.nan` where unknown, so that forecasts compare as equal."""
        score = float(self.score(benchmark)[0])
        return score if math.isfinite(score) else math.nan


def arrow_table(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> Any:
    """Rows as a pyarrow.Table with the named columns and types; NaN becomes null."""
    import pyarrow as pa

    columns = {k: [nan_to_none(row[k]) for row in rows] for k in types}
    return pa.table({k: pa.array(columns[k], pa.type_for_alias(kind)) for k, kind in types.items()})


def pandas_frame(table: Any) -> Any:
    """A pyarrow.Table as a pandas.DataFrame."""
    if find_spec("pandas") is None:
        raise MissingExtraError("to_pandas() needs pandas; pip install pandas (to_arrow() works without it)")
    return table.to_pandas()
