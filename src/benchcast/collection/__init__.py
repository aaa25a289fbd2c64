"""Score the texts of a study with a model and store the losses; scores only the texts that are missing.

Finished texts are written to shards in collecting/<model>/, each atomically. After a kill the same command reads the
shards and continues. Once all texts are finished, the losses are stored in one step and the shards are deleted.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

import benchcast
from benchcast.backends.agreement import Agreement, compare, pick
from benchcast.backends.base import Backend, Nats
from benchcast.backends.stated import metadata_of, without_metadata
from benchcast.bounds import Tokenizer, locate
from benchcast.collection.metadata import add_metadata
from benchcast.collection.portions import BackendInfo, Portion, ask, cut, score
from benchcast.collection.shards import ShardStore, exclusive, tidy
from benchcast.errors import InputError
from benchcast.records import Ints, ModelInfo, TextSet, TokenLosses
from benchcast.storage.files import file_name
from benchcast.storage.loss_rows import LossRows, lay_out
from benchcast.storage.parquet import read_metadata
from benchcast.store import Study, StudyLike

Report = Callable[[int, int], None]  # called with the number of texts and of tokens just finished
NOTHING = ModelInfo("")


@dataclass(frozen=True)
class EncodedTexts:
    """All texts under one tokenizer."""

    ids: list[list[int]]
    bounds: list[Ints]
    refused: dict[int, str] = field(default_factory=dict)  # reason why a text has no tokens, by text index

    @cached_property
    def digest(self) -> str:
        """Hash of all ids; detects shards of another tokenizer."""
        return hashlib.sha256(json.dumps(self.ids).encode()).hexdigest()[:16]

    @property
    def counts(self) -> Ints:
        """Number of tokens of each text."""
        return np.array([len(token_ids) for token_ids in self.ids], np.int64)

    def require_all(self, who: str, advice: str) -> None:
        """Raise InputError if any text was refused."""
        if self.refused:
            first = next(iter(self.refused.values()))
            raise InputError(f"{who}, {first} ({len(self.refused)} of {len(self.ids)} texts are refused; {advice})")

    def edges(self, texts: TextSet) -> Ints:
        """Token boundaries in bytes of all texts concatenated."""
        ends = [b[1:] + start for b, start in zip(self.bounds, texts.starts[:-1], strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *ends])


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
    remarks: tuple[str, ...] = ()  # one line for each conflict with models.csv


@dataclass(frozen=True)
class CollectJob:
    """One model on all texts of a study."""

    study: Study
    backend: Backend
    model: str  # its name in the study
    skip_refused: bool = False  # skip texts that the tokenizer cannot cover, instead of raising an error
    metadata: ModelInfo = NOTHING  # the user's values for models.csv

    @property
    def folder(self) -> Path:
        """Folder of the shards."""
        return self.study.root / "collecting" / file_name(self.model)

    @cached_property
    def encoded(self) -> EncodedTexts:
        """Ids and bounds of all texts."""
        texts = encode_texts(self.backend.vocabulary.tokenizer, self.study.texts)
        none_left = len(texts.refused) == len(texts.ids)
        if none_left or not self.skip_refused:
            advice = "none is left to score" if none_left else "--skip-refused stores the model without them"
            texts.require_all(f"model {self.model!r}", advice)
        return texts

    @property
    def refused(self) -> tuple[str, ...]:
        """Ids of the texts that are skipped."""
        return tuple(self.study.texts.texts[i].id for i in self.encoded.refused)

    def about(self, backend_info: BackendInfo) -> dict[str, str]:
        """Provenance that is stored with the losses."""
        vocabulary = self.backend.vocabulary
        longest = int(self.encoded.counts.max(initial=0)) + len(vocabulary.prefix)
        return {
            "tokenizer": vocabulary.tokenizer.name,
            "bos": vocabulary.bos,
            **without_metadata(backend_info.about),
            **({"context": str(backend_info.context)} if longest > backend_info.context else {}),
            **({"refused": json.dumps(self.refused, ensure_ascii=False)} if self.refused else {}),
            "asked": self.backend.asked,
            "benchcast": benchcast.__version__,
        }

    @property
    def settings(self) -> dict[str, str]:
        """Settings that shards must share to be reused; known before the model is loaded."""
        vocabulary = self.backend.vocabulary
        return {
            "tokenizer": vocabulary.tokenizer.name,
            "bos": vocabulary.bos,
            "asked": f"{self.backend.name} {self.backend.asked}",
            "benchcast": benchcast.__version__,
            "texts": self.study.texts.digest,
            "ids": self.encoded.digest,
        }


def encode_texts(tokenizer: Tokenizer, texts: TextSet) -> EncodedTexts:
    """Tokenize all texts; a text that the tokenizer cannot cover exactly is refused and has no tokens."""
    texts.require_texts("scoring a model")
    encoded = EncodedTexts([], [])
    for i, text in enumerate(texts):
        try:
            token_ids, edges = locate(tokenizer, text.text)
        except InputError as error:
            encoded.refused[i] = f"text {text.id!r}: {error}"
            token_ids, edges = [], np.zeros(1, np.int64)
        encoded.ids.append(token_ids)
        encoded.bounds.append(edges)
    return encoded


def portions(model: str, texts: TextSet, encoded: EncodedTexts, done: set[int]) -> list[Portion]:
    """Portions with unfinished texts; their boundaries do not depend on `done`."""
    finished = done | encoded.refused.keys()
    open_portions = [indices for indices in cut(texts) if not finished >= set(indices)]
    return [make_portion(model, texts, encoded, indices, finished) for indices in open_portions]


def make_portion(
    model: str, texts: TextSet, encoded: EncodedTexts, indices: Sequence[int], done: Collection[int] = ()
) -> Portion:
    """Build the portion that holds the texts with the given indices."""
    names = {i: texts.texts[i].id for i in indices}
    return Portion(model, names, {i: tuple(encoded.ids[i]) for i in indices}, frozenset(done) & set(indices))


def collect(
    study: StudyLike,
    backend: Backend,
    *,
    name: str = "",
    metadata: ModelInfo = NOTHING,
    force: bool = False,
    skip_refused: bool = False,
    reference: Backend | None = None,
    report: Report | None = None,
) -> CollectResult | None:
    """Score every text that has no stored loss yet and store the losses of the model.

    Parameters
    ----------
    study : an opened study or its folder, whose texts are scored
    backend : scores token ids, for example from `open_backend`
    name : the model's name in the study; default: the backend's name for it
    metadata : values for blank cells of models.csv; its `model` field is not used
    force : replace losses that are already stored
    skip_refused : skip texts that the tokenizer cannot cover, instead of raising InputError
    reference : a second backend; a few texts are scored by both and the difference is stored with the losses
    report : called with the number of texts and tokens just finished

    Returns
    -------
    a summary of the run, or None if the losses were stored already
    """
    job = CollectJob(Study.of(study), backend, (name or backend.model).strip(), skip_refused, metadata)
    with exclusive(job.folder, repr(job.model)):
        shard_store = begin(job, force=force)
        if shard_store is None:
            return None
        backend_line, began = BackendInfo.of(backend).line, time.monotonic()  # time without loading the model
        shard_store.keep_only(backend_line)
        if report:
            report(shard_store.resumed + len(job.refused), 0)
        agreement = _agreement(job, reference) if reference else None
        for portion in portions(job.model, job.study.texts, job.encoded, shard_store.done):
            for part in score(backend, portion):
                shard_store.take(backend_line, part.rows)
                if report:
                    report(len(part.rows), part.tokens)
        remarks = store(job, shard_store, force=force, agreement=agreement)
        return CollectResult(
            job.model,
            texts=len(shard_store.done) - shard_store.resumed,
            resumed=shard_store.resumed,
            tokens=shard_store.rows,
            seconds=time.monotonic() - began,
            refused=job.refused,
            agreement=agreement,
            remarks=remarks,
        )


def begin(job: CollectJob, *, force: bool = False) -> ShardStore | None:
    """Open the shard store with the results of earlier runs; None if the losses are stored already."""
    if job.study.losses_path(job.model).exists() and not force:
        _require_same_settings(job)
        add_metadata(job.study, job.model, job.metadata, NOTHING)
        tidy(job.folder)
        return None
    return ShardStore(job.folder, job.settings, job.encoded.counts, force=force)


def store(
    job: CollectJob, shard_store: ShardStore, *, force: bool = False, agreement: Agreement | None = None
) -> tuple[str, ...]:
    """Store the losses of a finished model and delete its shards.

    Returns
    -------
    one line for each value of models.csv that contradicts the user's
    """
    backend_info = BackendInfo.parse(shard_store.backend_line)
    remarks = add_metadata(
        job.study, job.model, job.metadata, metadata_of(backend_info.about)
    )  # first: safe to repeat after a kill
    losses = _losses(job, dict(shard_store.results()), backend_info, agreement)
    job.study.add_losses([losses], force=force)
    shard_store.clear()
    return remarks


def _require_same_settings(job: CollectJob) -> None:
    """Raise InputError if the stored losses came from another backend or other settings."""
    stored = read_metadata(job.study.losses_path(job.model))
    was = (stored.get("backend", "elsewhere"), stored.get("asked", ""))
    now = (job.backend.name, job.backend.asked)
    if was != now:
        raise InputError(
            f"model {job.model!r} has losses from {' '.join(was).strip()}, not from {' '.join(now).strip()}; "
            "give another --name, or --force to replace them"
        )


def _losses(
    job: CollectJob, done: dict[int, Nats], backend_info: BackendInfo, agreement: Agreement | None
) -> TokenLosses:
    about = job.about(backend_info) | ({"check": json.dumps(agreement.as_json())} if agreement else {})
    texts, kept = job.study.texts, [i for i in range(len(job.study.texts)) if i not in job.encoded.refused]
    nats, bounds = [done[i].astype(np.float64) for i in kept], [job.encoded.bounds[i] for i in kept]
    where = f"collected from {job.backend.name}"
    rows = LossRows.of(where, job.model, [texts.texts[i].id for i in kept], bounds, nats)
    return lay_out(rows, texts, about)


def _agreement(job: CollectJob, reference: Backend) -> Agreement:
    prefix, context = job.backend.vocabulary.prefix, min(job.backend.context, reference.context)
    picked = pick(job.encoded.ids, context - len(prefix))
    portion = make_portion(job.model, job.study.texts, job.encoded, picked)
    windows = portion.windows(prefix, context)

    def ask_windows(backend: Backend) -> list[Nats]:
        return ask(backend, portion, windows)

    return compare(ask_windows, job.backend, reference, len(picked))
