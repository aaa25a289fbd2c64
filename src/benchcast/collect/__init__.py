"""Models × texts → losses in the study; does only what is missing.

Texts that are done go to shards in collecting/<model>/, each written whole. The same command after a
kill reads them and goes on; when all texts are there the losses appear in one step and the shards go.
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
from benchcast.collect.metadata import add_metadata
from benchcast.collect.portions import BackendInfo, Portion, ask, cut, score
from benchcast.collect.shards import ShardStore, exclusive, tidy
from benchcast.errors import InputError
from benchcast.records import Ints, ModelInfo, TextSet, TokenLosses
from benchcast.storage.files import file_name
from benchcast.storage.loss_rows import LossRows, lay_out
from benchcast.storage.parquet import read_metadata
from benchcast.store import Study

Report = Callable[[int, int], None]  # texts and tokens just done
NOTHING = ModelInfo("")


@dataclass(frozen=True)
class EncodedTexts:
    """All texts under one tokenizer."""

    ids: list[list[int]]
    bounds: list[Ints]
    refused: dict[int, str] = field(default_factory=dict)  # why a text has no tokens here, by its index

    @cached_property
    def digest(self) -> str:
        """Hash of all ids: shards made under another tokenizer are told by it."""
        return hashlib.sha256(json.dumps(self.ids).encode()).hexdigest()[:16]

    @property
    def counts(self) -> Ints:
        """Tokens of each text."""
        return np.array([len(own) for own in self.ids], np.int64)

    def insist(self, who: str, way_out: str) -> None:
        """Stop where texts are refused."""
        if self.refused:
            first = next(iter(self.refused.values()))
            raise InputError(f"{who}, {first} ({len(self.refused)} of {len(self.ids)} texts are refused; {way_out})")

    def edges(self, texts: TextSet) -> Ints:
        """Token edges on the axis of all bytes."""
        ends = [b[1:] + start for b, start in zip(self.bounds, texts.starts[:-1], strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *ends])


@dataclass(frozen=True, slots=True)
class CollectResult:
    """What a run did."""

    model: str
    texts: int  # scored now
    resumed: int  # found in shards of an earlier run
    tokens: int  # scored now
    seconds: float
    refused: tuple[str, ...] = ()  # ids of the texts that were left out
    agreement: Agreement | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CollectJob:
    """One model on all texts of a study."""

    study: Study
    backend: Backend
    model: str  # its name in the study
    skip_refused: bool = False  # leave out texts that the tokenizer cannot cover, instead of stopping
    metadata: ModelInfo = NOTHING  # what the user says of the model, for models.csv

    @property
    def folder(self) -> Path:
        """Where the shards lie."""
        return self.study.root / "collecting" / file_name(self.model)

    @cached_property
    def encoded(self) -> EncodedTexts:
        """Ids and bounds of all texts."""
        made = encode_texts(self.backend.vocabulary.tokenizer, self.study.texts)
        none_left = len(made.refused) == len(made.ids)
        if none_left or not self.skip_refused:
            way_out = "none is left to score" if none_left else "--skip-refused stores the model without them"
            made.insist(f"model {self.model!r}", way_out)
        return made

    @property
    def refused(self) -> tuple[str, ...]:
        """Ids of the texts that are left out."""
        return tuple(self.study.texts.texts[i].id for i in self.encoded.refused)

    def about(self, made: BackendInfo) -> dict[str, str]:
        """What the losses depend on, as stored with them."""
        vocabulary = self.backend.vocabulary
        longest = int(self.encoded.counts.max(initial=0)) + len(vocabulary.prefix)
        return {
            "tokenizer": vocabulary.tokenizer.name,
            "bos": vocabulary.bos,
            **without_metadata(made.about),
            **({"context": str(made.context)} if longest > made.context else {}),
            **({"refused": json.dumps(self.refused, ensure_ascii=False)} if self.refused else {}),
            "asked": self.backend.asked,
            "benchcast": benchcast.__version__,
        }

    @property
    def settings(self) -> dict[str, str]:
        """What decides, before the model is loaded, whether shards are of use."""
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
    """Ids and bounds of all texts; those that cannot be covered exactly are refused and have no tokens."""
    texts.require_texts("scoring a model")
    made = EncodedTexts([], [])
    for i, text in enumerate(texts):
        try:
            own, edges = locate(tokenizer, text.text)
        except InputError as error:
            made.refused[i] = f"text {text.id!r}: {error}"
            own, edges = [], np.zeros(1, np.int64)
        made.ids.append(own)
        made.bounds.append(edges)
    return made


def portions(model: str, texts: TextSet, encoded: EncodedTexts, done: set[int]) -> list[Portion]:
    """What is left to do, cut as it always is."""
    settled = done | encoded.refused.keys()
    left = [indices for indices in cut(texts) if not settled >= set(indices)]
    return [make_portion(model, texts, encoded, indices, settled) for indices in left]


def make_portion(
    model: str, texts: TextSet, encoded: EncodedTexts, indices: Sequence[int], done: Collection[int] = ()
) -> Portion:
    """Some texts, ready to be scored anywhere."""
    names = {i: texts.texts[i].id for i in indices}
    return Portion(model, names, {i: tuple(encoded.ids[i]) for i in indices}, frozenset(done) & set(indices))


def collect(
    study: Study,
    backend: Backend,
    *,
    name: str = "",
    metadata: ModelInfo = NOTHING,
    force: bool = False,
    skip_refused: bool = False,
    reference: Backend | None = None,
    report: Report | None = None,
) -> CollectResult | None:
    """Score every text that is not scored yet and store the losses; None where they are there already.

    With a `reference` backend a few texts are scored by both, and the difference is stored. `metadata` fills blank
    cells of models.csv.
    """
    job = CollectJob(study, backend, (name or backend.model).strip(), skip_refused, metadata)
    with exclusive(job.folder, repr(job.model)):
        shard_store = begin(job, force=force)
        if shard_store is None:
            return None
        made, began = BackendInfo.of(backend).line, time.monotonic()  # the clock runs from when the model is loaded
        shard_store.keep_only(made)
        if report:
            report(shard_store.resumed + len(job.refused), 0)
        agreement = _agreement(job, reference) if reference else None
        for portion in portions(job.model, study.texts, job.encoded, shard_store.done):
            for part in score(backend, portion):
                shard_store.take(made, part.rows)
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
    """A ledger with what an earlier run has done; None where the losses are stored already."""
    if job.study.losses_path(job.model).exists() and not force:
        _refuse_other(job)
        add_metadata(job.study, job.model, job.metadata, NOTHING)
        tidy(job.folder)
        return None
    return ShardStore(job.folder, job.settings, job.encoded.counts, force=force)


def store(
    job: CollectJob, shard_store: ShardStore, *, force: bool = False, agreement: Agreement | None = None
) -> tuple[str, ...]:
    """All texts are done: the losses appear in the study, the shards go. Returns what is to be said of models.csv."""
    made = BackendInfo.parse(shard_store.made)
    remarks = add_metadata(job.study, job.model, job.metadata, metadata_of(made.about))  # a kill after it is mended
    losses = _losses(job, dict(shard_store.results()), made, agreement)
    job.study.add_losses([losses], force=force)
    shard_store.clear()
    return remarks


def _refuse_other(job: CollectJob) -> None:
    """Losses that are there must have been asked for in the same way; else this is another model."""
    stored = read_metadata(job.study.losses_path(job.model))
    was = (stored.get("backend", "elsewhere"), stored.get("asked", ""))
    now = (job.backend.name, job.backend.asked)
    if was != now:
        raise InputError(
            f"model {job.model!r} has losses from {' '.join(was).strip()}, not from {' '.join(now).strip()}; "
            "give another --name, or --force to replace them"
        )


def _losses(job: CollectJob, done: dict[int, Nats], made: BackendInfo, agreement: Agreement | None) -> TokenLosses:
    about = job.about(made) | ({"check": json.dumps(agreement.as_json())} if agreement else {})
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
