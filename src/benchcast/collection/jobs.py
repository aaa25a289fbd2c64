"""One model on all texts of a study: what its losses depend on, its unfinished results, how its losses are stored.

`Collection` is the driver's side. The worker's side opens a `ModelSpec` and scores one portion of the texts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import benchcast
from benchcast.collection.backends import open_backend, open_scorer
from benchcast.collection.backends.base import Backend, ModelSettings, PerToken
from benchcast.collection.backends.loaded import NO_METADATA, metadata_of, without_metadata
from benchcast.collection.results import add_options, model_losses
from benchcast.collection.shards import ShardStore, exclusive, tidy
from benchcast.collection.windows import BackendInfo, EncodedTexts, Portion, PortionResult, ask, encode_texts, score
from benchcast.errors import BenchcastError, InputError
from benchcast.executors.local import Job
from benchcast.messages import counted, few
from benchcast.records import ModelInfo, TokenLosses
from benchcast.study.atomic import file_name
from benchcast.study.loss_files import is_half
from benchcast.study.model_names import former_name, renamed
from benchcast.study.parquet import read_metadata
from benchcast.study.study import Study
from benchcast.study.tables import blank

LIMIT = 0.5  # largest accepted mean difference between two backends, in nats
TEXTS = 4  # on which two backends are compared
FEWEST = 8  # tokens a compared text must have
COLUMNS = tuple(f.name for f in fields(ModelInfo) if f.name != "model")


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What `collect` does with losses that are stored, texts that a tokenizer refuses, and a reference backend.

    >>> import benchcast as bc
    >>> study, backend = bc.create_study("new", "texts.jsonl").study, bc.open_backend("hf", "pretrained=checkpoint")
    >>> bc.collect(study, backend, name="my-7b") is not None
    True
    >>> bc.collect(study, backend, name="my-7b") is None                 # stored already
    True
    >>> bc.collect(study, backend, name="my-7b", options=bc.CollectOptions(force=True)).texts
    6
    """

    force: bool = False  # replace losses that are already stored
    skip_refused: bool = False  # skip texts that the tokenizer cannot cover, instead of raising an error
    reference: Backend | None = None  # a second backend whose losses on a few texts are compared
    renames: Mapping[str, str] = field(default_factory=dict)  # usual name of a model → another; one * on each side


DEFAULT = CollectOptions()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model that a worker opens by itself: a backend's name and settings, as plain data that can be sent to it.

    >>> import benchcast as bc
    >>> bc.ModelSpec("hf", "pretrained=checkpoint,dtype=float32", batch_size=8).open().name
    'hf'
    """

    backend: str  # empty: open as a scorer
    settings: str | tuple[tuple[str, str], ...]  # "pretrained=…,dtype=…", or pairs of key and value
    device: str = ""
    batch_size: int = 0  # 0: the backend's default
    gpus: float = 0.0  # GPUs that each worker reserves

    def open(self) -> Any:
        """Open the backend; the model itself is loaded when it first scores."""
        given = self.settings
        settings = ModelSettings.parse(given) if isinstance(given, str) else ModelSettings(dict(given))
        if self.backend:
            return open_backend(self.backend, settings, device=self.device, batch_size=self.batch_size)
        source = settings.values().get("pretrained", "")
        return open_scorer(source, settings, device=self.device, batch_size=self.batch_size)


@dataclass(frozen=True, slots=True)
class CollectResult:
    """Summary of one `collect` run."""

    model: str
    texts: int  # scored in this run
    resumed: int  # texts read from shards of an earlier run
    tokens: int  # scored in this run
    seconds: float
    refused: tuple[str, ...] = ()  # ids of texts without losses, because the tokenizer cannot cover them
    agreement: Agreement | None = None
    remarks: tuple[str, ...] = ()  # one line for each conflict with models.csv, and for refused options
    options: int = 0  # texts whose options have been scored
    only_options: bool = False  # whether the losses of the texts were stored before


Report = Callable[[int, int], None]  # called with the number of texts and of tokens just finished
OnDone = Callable[[str, CollectResult | None], None]  # called with a model and its summary; None: stored before


@dataclass
class Collection:
    """One model that is collected: `begin`, `take` the results of its `jobs`, `finish`."""

    study: Study
    model: ModelSpec | Backend  # a ModelSpec is opened by the workers, a backend runs in this process
    name: str = ""  # in the study; empty: the backend's name for it
    metadata: ModelInfo = NO_METADATA  # values for blank cells of models.csv; its name is not used
    options: CollectOptions = DEFAULT
    shards: ShardStore = field(init=False)  # unfinished results
    agreement: Agreement | None = field(init=False)  # with the reference; None without one
    began: float = field(init=False)  # seconds of the monotonic clock
    backend_line: str = field(init=False, default="")  # description of the backend in this run's results
    only_options: bool = field(init=False, default=False)  # whether the losses of the texts are stored already
    failure: BenchcastError | None = field(init=False, default=None)
    stored: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.backend: Backend = self.model.open() if isinstance(self.model, ModelSpec) else self.model
        self.name = self.name.strip() or self._usual_name()

    def _usual_name(self) -> str:
        """The backend's name for the model, renamed; an earlier version's name if the study has the same losses."""
        name = renamed(self.backend.model, self.options.renames) or self.backend.model.strip()
        if not self.study.losses_path(name).exists():
            settings = [value.partition("=")[2] for value in self.backend.asked.split(",")]
            for former in dict.fromkeys(former_name(value) for value in settings if value):
                if self.study.losses_path(former).exists() and not self._other_settings(former):
                    return former
        return name

    @property
    def folder(self) -> Path:
        """Folder of the shards."""
        return self.study.root / "collecting" / file_name(self.name)

    @cached_property
    def encoded(self) -> EncodedTexts:
        """Ids and bounds of all texts."""
        texts = encode_texts(self.backend.vocabulary.tokenizer, self.study.texts, options=True)
        none_left = len(texts.refused) == len(texts.ids)
        if none_left or not self.options.skip_refused:
            advice = "none is left to score" if none_left else "--skip-refused stores the model without them"
            texts.require_all(f"model {self.name!r}", advice)
        return replace(texts, only_options=self.only_options)

    @property
    def refused(self) -> tuple[str, ...]:
        """Ids of the texts that are skipped."""
        return tuple(self.study.texts.texts[i].id for i in self.encoded.refused)

    @property
    def settings(self) -> dict[str, str]:
        """Settings that shards must share to be reused; known before the model is loaded."""
        options = self.study.texts.options_digest
        return {
            **self.backend.vocabulary.about(),
            "benchcast": benchcast.__version__,
            "asked": f"{self.backend.name} {self.backend.asked}",
            "texts": self.study.texts.digest,
            "ids": self.encoded.digest,
            **({"options": options, "scored": "options" if self.only_options else "texts"} if options else {}),
        }

    def begin(self, stack: ExitStack) -> bool:
        """Lock the model until `stack` closes, and open its shards; False if everything is stored already.

        If only the choice losses of the present options are missing, only the options are scored.
        """
        stack.enter_context(exclusive(self.folder, repr(self.name)))
        path = self.study.losses_path(self.name)
        if path.exists() and not self.options.force:
            self._require_same_settings()
            add_metadata(self.study, self.name, given=self.metadata)
            if self.study.texts.options_digest in ("", read_metadata(path).get("options")):
                tidy(self.folder)
                return False
            self.only_options = True
        self.shards = ShardStore(self.folder, self.settings, self.encoded.row_counts, force=self.options.force)
        stack.callback(self.shards.flush)
        if not isinstance(self.model, ModelSpec):
            self.shards.keep_only(BackendInfo.of(self.backend).line)  # loads the model, before the clock starts
        reference = self.options.reference
        self.agreement = None if reference is None else compare(self.backend, reference, self.encoded, name=self.name)
        self.began = time.monotonic()
        return True

    def _require_same_settings(self) -> None:
        """Raise InputError if the stored losses came from another backend or other settings."""
        was = self._other_settings(self.name)
        if was:
            now = f"{self.backend.name} {self.backend.asked}".strip()
            raise InputError(
                f"model {self.name!r} has losses from {was}, not from {now}; "
                "give another --name, or --force to replace them"
            )

    def _other_settings(self, name: str) -> str:
        """Backend and settings of the stored losses of a model; empty where they are those of this one."""
        stored = read_metadata(self.study.losses_path(name))
        was = (stored.get("backend", "elsewhere"), stored.get("asked", ""))
        return "" if was == (self.backend.name, self.backend.asked) else " ".join(was).strip()

    @property
    def jobs(self) -> list[Job]:
        """Jobs for the unfinished portions."""
        return portion_jobs(self.model, self.encoded.portions(self.name, self.shards.done))

    def take(self, answer: tuple[str, PortionResult] | BenchcastError, report: Report) -> None:
        """Add a batch's results; the model fails if workers differ in backend, version or dtype."""
        if isinstance(answer, BenchcastError):
            self.failure = self.failure or answer
            return
        backend_line, part = answer
        if self.backend_line and backend_line != self.backend_line:
            self.failure = InputError(
                f"model {self.name!r}: workers differ, {self.backend_line} and {backend_line}; give all nodes the same"
            )
        self.backend_line = backend_line
        self.shards.take(backend_line, part.rows)
        report(len(part.rows), part.tokens)

    def finish(self, on_done: OnDone) -> None:
        """Once all texts are finished, store the losses and delete the shards."""
        if self.stored or self.failure or len(self.shards.done) + len(self.refused) < len(self.study.texts):
            return
        info, rows = BackendInfo.parse(self.shards.backend_line), dict(self.shards.results())
        try:
            losses, half = self._losses(info, rows)
        except InputError as error:
            self.failure = error
            self.shards.clear()  # they may come from other weights
            return
        # models.csv first: after a kill between the two, the same command repeats this line without effect
        remarks = add_metadata(self.study, self.name, given=self.metadata, measured=metadata_of(info.about))
        added = self.only_options  # to losses that are stored, whatever they are
        self.study.add_losses([losses], force=self.options.force or added, half=half, allow_implausible=added)
        self.shards.clear()
        self.stored = True
        result = CollectResult(
            self.name,
            texts=len(self.shards.done) - self.shards.resumed,
            resumed=self.shards.resumed,
            tokens=self.shards.rows,
            seconds=time.monotonic() - self.began,
            refused=self.refused,
            agreement=self.agreement,
            remarks=(*remarks, *self._refused_options()),
            options=len(self.encoded.options.answers),
            only_options=self.only_options,
        )
        on_done(self.name, result)

    def _losses(self, info: BackendInfo, rows: dict[int, PerToken]) -> tuple[TokenLosses, bool]:
        """The losses to store, and whether as float16; stored losses of texts stay as they are."""
        if self.only_options:
            path = self.study.losses_path(self.name)
            return add_options(self.encoded, self.study.losses(self.name), rows), is_half(path)
        where = f"collected from {self.backend.name}"
        return model_losses(self.encoded, self.name, rows, about=self._about(info), where=where), False

    def _refused_options(self) -> tuple[str, ...]:
        """A line on the texts whose options were refused and skipped."""
        names = [self.study.texts.texts[i].id for i in self.encoded.options.refused]
        return (f"options of {counted(len(names), 'text')} refused and skipped: {few(names)}",) if names else ()

    def _about(self, info: BackendInfo) -> dict[str, str]:
        """Provenance that is stored with the losses."""
        longest = self.encoded.longest + len(self.backend.vocabulary.prefix)
        return {
            **self.backend.vocabulary.about(),
            "benchcast": benchcast.__version__,
            **without_metadata(info.about),
            **({"context": str(info.context)} if longest > info.context else {}),
            **({"refused": json.dumps(self.refused, ensure_ascii=False)} if self.refused else {}),
            "asked": self.backend.asked,
            **({"check": json.dumps(asdict(self.agreement))} if self.agreement else {}),
        }


@dataclass(frozen=True, slots=True)
class Agreement:
    """Difference between the losses of two backends."""

    against: str  # name of the reference backend
    dtype: str  # of the reference backend
    texts: int
    tokens: int
    mean_nats: float
    most_nats: float

    def __str__(self) -> str:
        return (
            f"{self.mean_nats:.2g} nats from {self.against} ({self.dtype}) on average, "
            f"at most {self.most_nats:.2g}, on {self.tokens} tokens of {self.texts} texts"
        )


def compare(backend: Backend, reference: Backend, encoded: EncodedTexts, *, name: str) -> Agreement:
    """Difference between two backends on the shortest texts of `FEWEST` tokens or more; InputError above `LIMIT`."""
    prefix, context = backend.vocabulary.prefix, min(backend.context, reference.context)
    room = context - len(prefix)
    fitting = [i for i, token_ids in enumerate(encoded.ids) if FEWEST <= len(token_ids) <= room]
    if not fitting:
        raise InputError(f"no text has {FEWEST} to {room} tokens, which a comparison of backends needs")
    picked = sorted(fitting, key=lambda i: (len(encoded.ids[i]), i))[:TEXTS]
    portion = Portion(name, {i: encoded.texts.texts[i].id for i in picked}, {i: tuple(encoded.ids[i]) for i in picked})
    windows = portion.groups(prefix, context)
    losses, reference_losses = (np.concatenate(ask(b, portion, windows)) for b in (backend, reference))
    differences = np.abs(losses - reference_losses)
    differences = differences[np.isfinite(differences)]
    agreement = Agreement(
        against=reference.name,
        dtype=reference.about()["dtype"],
        texts=len(picked),
        tokens=len(differences),
        mean_nats=float(differences.mean()),
        most_nats=float(differences.max()),
    )
    if agreement.mean_nats > LIMIT:
        raise InputError(
            f"model {backend.model!r}: {backend.name} is {agreement}; {LIMIT:g} on average is the limit, "
            "so they do not score the same model, or not the same tokens"
        )
    return agreement


def add_metadata(study: Study, model: str, *, given: ModelInfo, measured: ModelInfo = NO_METADATA) -> tuple[str, ...]:
    """Fill the blank cells of a model's row; the row is added if it is missing.

    Parameters
    ----------
    study : the study whose models.csv is edited
    model : the model's name
    given : values from the command line or the list of models; its name is not used
    measured : values read from the loaded model, used where the user gives none

    Returns
    -------
    one line for each existing value that differs from the given one
    """
    by_model = {row.model: row for row in study.models()}
    listed = by_model.get(model, ModelInfo(model))
    cells: dict[str, Any] = {}
    remarks = []
    for column in COLUMNS:
        listed_value, given_value = getattr(listed, column), getattr(given, column)
        if blank(listed_value):
            cells[column] = getattr(measured, column) if blank(given_value) else given_value
        elif not blank(given_value) and given_value != listed_value:
            kept, refused = (f"{v:g}" if isinstance(v, float) else repr(v) for v in (listed_value, given_value))
            remarks.append(f"models.csv has {column} {kept}, which is kept; {refused} was given")
    if model not in by_model or not all(map(blank, cells.values())):
        study.add_models([ModelInfo(model, **cells)])
    return tuple(remarks)


Work = tuple[Any, Portion]  # a model, opened or as a ModelSpec, and the texts to score with it


def portion_jobs(model: ModelSpec | Backend, work: Sequence[Portion]) -> list[Job]:
    """One job for each portion; the jobs of a model run on the same workers."""
    gpus = model.gpus if isinstance(model, ModelSpec) else 0.0
    return [
        Job(
            f"{portion.model}, {len(portion.ids)} texts from {next(iter(portion.names.values()))!r} on",
            (model, portion),
            group=portion.model,
            cost=portion.left * max(1.0, gpus),
            gpus=gpus,
        )
        for portion in work
    ]


_loaded: dict[ModelSpec, Any] = {}  # the one model that this process holds


def opened(model: Any) -> Any:
    """The backend of a job; a ModelSpec is opened once in each process."""
    if not isinstance(model, ModelSpec):
        return model
    if model not in _loaded:
        _loaded.clear()
        _loaded[model] = model.open()
    return _loaded[model]


def score_portion(_: None, work: Work) -> Iterator[tuple[str, PortionResult] | BenchcastError]:
    """Run one job of `collect`: yield the backend's description with each batch, or the error of this model."""
    model, portion = work
    try:
        backend = opened(model)
        backend_line = BackendInfo.of(backend).line
        for part in score(backend, portion):
            yield backend_line, part
    except BenchcastError as error:
        yield error
