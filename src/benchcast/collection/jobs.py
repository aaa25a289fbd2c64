"""The collection of one model: what its losses depend on, its unfinished results, and how its losses are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import benchcast
from benchcast.collection.backends import open_backend, open_scorer
from benchcast.collection.backends.base import Backend, ModelSettings, Nats
from benchcast.collection.backends.loaded import NO_METADATA, metadata_of, without_metadata
from benchcast.collection.shards import ShardStore, tidy
from benchcast.collection.windows import BackendInfo, EncodedTexts, Portion, PortionResult, ask, encode_texts, score
from benchcast.errors import BenchcastError, InputError
from benchcast.executors.local import Job
from benchcast.records import ModelInfo
from benchcast.study.atomic import file_name
from benchcast.study.parquet import read_metadata
from benchcast.study.study import Study
from benchcast.study.tables import blank

LIMIT = 0.5  # largest accepted mean difference in nats
TEXTS = 4
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


DEFAULT = CollectOptions()


@dataclass(frozen=True)
class CollectJob:
    """One model on all texts of a study."""

    study: Study
    backend: Backend
    model: str  # its name in the study
    metadata: ModelInfo = NO_METADATA  # values for blank cells of models.csv; its name is not used
    options: CollectOptions = DEFAULT

    @property
    def folder(self) -> Path:
        """Folder of the shards."""
        return self.study.root / "collecting" / file_name(self.model)

    @cached_property
    def encoded(self) -> EncodedTexts:
        """Ids and bounds of all texts."""
        texts = encode_texts(self.backend.vocabulary.tokenizer, self.study.texts)
        none_left = len(texts.refused) == len(texts.ids)
        if none_left or not self.options.skip_refused:
            advice = "none is left to score" if none_left else "--skip-refused stores the model without them"
            texts.require_all(f"model {self.model!r}", advice)
        return texts

    @property
    def refused(self) -> tuple[str, ...]:
        """Ids of the texts that are skipped."""
        return tuple(self.study.texts.texts[i].id for i in self.encoded.refused)

    @property
    def settings(self) -> dict[str, str]:
        """Settings that shards must share to be reused; known before the model is loaded."""
        return {
            **self.backend.vocabulary.about(),
            "benchcast": benchcast.__version__,
            "asked": f"{self.backend.name} {self.backend.asked}",
            "texts": self.study.texts.digest,
            "ids": self.encoded.digest,
        }

    def about(self, backend_info: BackendInfo) -> dict[str, str]:
        """Provenance that is stored with the losses."""
        longest = int(self.encoded.counts.max(initial=0)) + len(self.backend.vocabulary.prefix)
        return {
            **self.backend.vocabulary.about(),
            "benchcast": benchcast.__version__,
            **without_metadata(backend_info.about),
            **({"context": str(backend_info.context)} if longest > backend_info.context else {}),
            **({"refused": json.dumps(self.refused, ensure_ascii=False)} if self.refused else {}),
            "asked": self.backend.asked,
        }

    def begin(self) -> ShardStore | None:
        """Open the shard store with the results of earlier runs; None if the losses are stored already."""
        if self.study.losses_path(self.model).exists() and not self.options.force:
            self._require_same_settings()
            add_metadata(self.study, self.model, self.metadata, NO_METADATA)
            tidy(self.folder)
            return None
        return ShardStore(self.folder, self.settings, self.encoded.counts, force=self.options.force)

    def _require_same_settings(self) -> None:
        """Raise InputError if the stored losses came from another backend or other settings."""
        stored = read_metadata(self.study.losses_path(self.model))
        was = (stored.get("backend", "elsewhere"), stored.get("asked", ""))
        now = (self.backend.name, self.backend.asked)
        if was != now:
            raise InputError(
                f"model {self.model!r} has losses from {' '.join(was).strip()}, not from {' '.join(now).strip()}; "
                "give another --name, or --force to replace them"
            )

    def agreement(self) -> Agreement | None:
        """Difference from the reference backend on a few texts; None without a reference."""
        reference = self.options.reference
        if reference is None:
            return None
        prefix, context = self.backend.vocabulary.prefix, min(self.backend.context, reference.context)
        picked = pick(self.encoded.ids, context - len(prefix))
        portion = self.encoded.portion(self.model, picked)
        windows = portion.windows(prefix, context)
        return compare(lambda backend: ask(backend, portion, windows), self.backend, reference, len(picked))

    def store(self, shard_store: ShardStore, agreement: Agreement | None) -> tuple[str, ...]:
        """Store the losses of a finished model and delete its shards.

        Returns
        -------
        one line for each value of models.csv that contradicts the user's
        """
        backend_info = BackendInfo.parse(shard_store.backend_line)
        measured = metadata_of(backend_info.about)
        remarks = add_metadata(self.study, self.model, self.metadata, measured)  # safe to repeat after a kill
        check = {"check": json.dumps(asdict(agreement))} if agreement else {}
        by_text, about = dict(shard_store.results()), self.about(backend_info) | check
        losses = self.encoded.losses(self.model, by_text, about, where=f"collected from {self.backend.name}")
        self.study.add_losses([losses], force=self.options.force)
        shard_store.clear()
        return remarks


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


def pick(ids: Sequence[Sequence[int]], room: int) -> list[int]:
    """Indices of the shortest texts that have at least `FEWEST` tokens and fit into `room` tokens."""
    fitting = [i for i, token_ids in enumerate(ids) if FEWEST <= len(token_ids) <= room]
    if not fitting:
        raise InputError(f"no text has {FEWEST} to {room} tokens, which a comparison of backends needs")
    return sorted(fitting, key=lambda i: (len(ids[i]), i))[:TEXTS]


def compare(ask: Callable[[Backend], list[Nats]], backend: Backend, reference: Backend, texts: int) -> Agreement:
    """Difference between two backends on the sequences that `ask` sends to each; InputError if above `LIMIT`."""
    losses, reference_losses = (np.concatenate(ask(b)) for b in (backend, reference))
    differences = np.abs(losses - reference_losses)
    differences = differences[np.isfinite(differences)]
    agreement = Agreement(
        reference.name,
        reference.about()["dtype"],
        texts,
        len(differences),
        float(differences.mean()),
        float(differences.max()),
    )
    if agreement.mean_nats > LIMIT:
        raise InputError(
            f"model {backend.model!r}: {backend.name} is {agreement}; {LIMIT:g} on average is the limit, "
            "so they do not score the same model, or not the same tokens"
        )
    return agreement


def add_metadata(study: Study, model: str, user_info: ModelInfo, measured: ModelInfo) -> tuple[str, ...]:
    """Fill the blank cells of a model's row; the row is added if it is missing.

    Parameters
    ----------
    study : the study whose models.csv is edited
    model : the model's name
    user_info : values from the command line or the list of models; its name is not used
    measured : values read from the loaded model, used where the user gives none

    Returns
    -------
    one line for each existing value that differs from the user's
    """
    by_model = {row.model: row for row in study.models()}
    listed = by_model.get(model, ModelInfo(model))
    cells: dict[str, Any] = {}
    remarks = []
    for column in COLUMNS:
        listed_value, user_value = getattr(listed, column), getattr(user_info, column)
        if blank(listed_value):
            cells[column] = getattr(measured, column) if blank(user_value) else user_value
        elif not blank(user_value) and user_value != listed_value:
            remarks.append(
                f"models.csv has {column} {_shown(listed_value)}, which is kept; {_shown(user_value)} was given"
            )
    if model not in by_model or not all(map(blank, cells.values())):
        study.add_models([ModelInfo(model, **cells)])
    return tuple(remarks)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)


Work = tuple[Any, Portion]  # a model, opened or as a ModelSpec, and the texts to score with it


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
        return open_scorer(
            settings.values().get("pretrained", ""), settings, device=self.device, batch_size=self.batch_size
        )


_loaded: dict[ModelSpec, Any] = {}  # the one model that this process holds


def opened(model: Any) -> Any:
    """The backend of a job; a ModelSpec is opened once in each process."""
    if not isinstance(model, ModelSpec):
        return model
    if model not in _loaded:
        _loaded.clear()
        _loaded[model] = model.open()
    return _loaded[model]


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
