"""Models × texts → losses in the study; does only what is missing.

Texts that are done go to shards in collecting/<model>/, each written whole. The same command after a
kill reads them and goes on; when all texts are there the losses appear in one step and the shards go.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import benchcast
from benchcast.backends.agreement import Agreement, compare, pick
from benchcast.backends.base import Backend, Nats, SequenceError, checked
from benchcast.backends.windows import Window, batches, plan
from benchcast.bounds import locate
from benchcast.errors import InputError, StudyError
from benchcast.files import file_name, write_text, write_whole
from benchcast.loss_rows import check_losses
from benchcast.records import Ints, TextSet, TokenLosses
from benchcast.store import Study

SHARD_SECONDS = 5.0  # about this much work is lost to a kill

Report = Callable[[int, int], None]  # texts and tokens just done


@dataclass(frozen=True)
class Encoded:
    """All texts under one tokenizer."""

    ids: list[list[int]]
    bounds: list[Ints]

    @cached_property
    def digest(self) -> str:
        """Hash of all ids: shards made under another tokenizer are told by it."""
        return hashlib.sha256(json.dumps(self.ids).encode()).hexdigest()[:16]

    @property
    def counts(self) -> Ints:
        """Tokens of each text."""
        return np.array([len(own) for own in self.ids], np.int64)

    def edges(self, texts: TextSet) -> Ints:
        """Token edges on the axis of all bytes."""
        ends = [b[1:] + start for b, start in zip(self.bounds, texts.starts[:-1], strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *ends])


@dataclass(frozen=True, slots=True)
class Collected:
    """What a run did."""

    model: str
    texts: int  # scored now
    resumed: int  # found in shards of an earlier run
    tokens: int  # scored now
    seconds: float
    agreement: Agreement | None = None


@dataclass(frozen=True)
class Job:
    """One model on all texts of a study."""

    study: Study
    backend: Backend
    model: str  # its name in the study

    @property
    def folder(self) -> Path:
        """Where the shards lie."""
        return self.study.root / "collecting" / file_name(self.model)

    @cached_property
    def encoded(self) -> Encoded:
        """Ids and bounds of all texts."""
        return encode_texts(self.backend, self.study.texts)

    @cached_property
    def about(self) -> dict[str, str]:
        """What the losses depend on, as stored with them."""
        vocabulary, context = self.backend.vocabulary, self.backend.context
        longest = int(self.encoded.counts.max(initial=0)) + len(vocabulary.prefix)
        return {
            "tokenizer": vocabulary.tokenizer.name,
            "bos": vocabulary.bos,
            **self.backend.about(),
            **({"context": str(context)} if longest > context else {}),
            "asked": self.backend.asked,
            "benchcast": benchcast.__version__,
        }

    def ask(self, batch: Sequence[Window], backend: Backend) -> list[Nats]:
        """A backend's answer for one batch; every number in it is checked."""
        texts, who = self.study.texts.texts, f"model {self.model!r}, backend {backend.name}"
        try:
            found = backend.score([w.ids for w in batch])
        except SequenceError as error:
            raise InputError(f"{who}, text {texts[batch[error.index].text].id!r}: {error}") from error
        except InputError as error:
            raise InputError(f"{who}, {len(batch)} texts from {texts[batch[0].text].id!r} on: {error}") from error
        if len(found) != len(batch):
            raise InputError(f"{who}: {len(found)} answers for {len(batch)} sequences")
        where = [f"{who}, text {texts[w.text].id!r}: the backend" for w in batch]
        return [checked(nats, w.ids, at) for nats, w, at in zip(found, batch, where, strict=True)]


def encode_texts(backend: Backend, texts: TextSet) -> Encoded:
    """Ids and bounds of all texts; those that cannot be covered exactly are an error that names the first."""
    ids, bounds, refused = [], [], []
    for text in texts:
        try:
            own, edges = locate(backend.vocabulary.tokenizer, text.text)
        except InputError as error:
            refused.append(f"text {text.id!r}: {error}")
            continue
        ids.append(own)
        bounds.append(edges)
    if refused:
        more = f" ({len(refused)} of {len(texts)} texts are refused)" if len(refused) > 1 else ""
        raise InputError(f"model {backend.model!r}, {refused[0]}{more}")
    return Encoded(ids, bounds)


def collect(
    study: Study,
    backend: Backend,
    *,
    name: str = "",
    family: str = "",
    force: bool = False,
    reference: Backend | None = None,
    report: Report | None = None,
) -> Collected | None:
    """Score every text that is not scored yet and store the losses; None where they are there already.

    With a `reference` backend a few texts are scored by both, and the difference is stored.
    """
    job = Job(study, backend, (name or backend.model).strip())
    with alone(job.folder, repr(job.model)):
        if study.losses_path(job.model).exists() and not force:
            _refuse_other(job)
            shutil.rmtree(job.folder, ignore_errors=True)
            return None
        if force:
            shutil.rmtree(job.folder, ignore_errors=True)
        began, done = time.monotonic(), resume(job)
        todo = [i for i in range(len(study.texts)) if i not in done]
        resumed = len(done)
        if report:
            report(resumed, 0)
        agreement = _agreement(job, reference) if reference else None
        for shard in score(job, todo, report):
            write_shard(job, shard)
            done.update(shard)
        study.add_losses([_losses(job, done, agreement)], family=family, force=force)
        shutil.rmtree(job.folder, ignore_errors=True)
        tokens = int(job.encoded.counts[todo].sum())
        return Collected(job.model, len(todo), resumed, tokens, time.monotonic() - began, agreement)


def score(job: Job, todo: Sequence[int], report: Report | None = None) -> Iterator[dict[int, Nats]]:
    """Nats of the texts `todo`, by index, handed over whenever some seconds' worth are finished."""
    backend, encoded = job.backend, job.encoded
    prefix, context = backend.vocabulary.prefix, backend.context
    windows = {i: plan(i, encoded.ids[i], prefix, context) for i in todo}
    nats = {i: np.full(len(encoded.ids[i]), np.nan, np.float32) for i in todo}
    left = {i: len(own) for i, own in windows.items()}
    ready, last = {i: nats[i] for i in todo if not left[i]}, time.monotonic()
    everything = [w for own in windows.values() for w in own]
    for batch in batches(everything, size=backend.batch_size, tokens=backend.batch_tokens):
        before = len(ready)
        for window, found in zip(batch, job.ask(batch, backend), strict=True):
            part = found[window.skip :]
            nats[window.text][window.first : window.first + len(part)] = part
            left[window.text] -= 1
            if not left[window.text]:
                ready[window.text] = nats[window.text]
        if report:
            report(len(ready) - before, sum(len(w.ids) - w.skip for w in batch))
        if time.monotonic() - last > SHARD_SECONDS:
            yield ready
            ready, last = {}, time.monotonic()
    yield ready


def _refuse_other(job: Job) -> None:
    """Losses that are there must have been asked for in the same way; else this is another model."""
    stored = pq.read_schema(job.study.losses_path(job.model)).metadata or {}
    was = (stored.get(b"backend", b"elsewhere").decode(), stored.get(b"asked", b"").decode())
    now = (job.backend.name, job.backend.asked)
    if was != now:
        raise InputError(
            f"model {job.model!r} has losses from {' '.join(was).strip()}, not from {' '.join(now).strip()}; "
            "give another --name, or --force to replace them"
        )


def _losses(job: Job, done: dict[int, Nats], agreement: Agreement | None) -> TokenLosses:
    about = job.about | ({"check": json.dumps(agreement.as_json())} if agreement else {})
    texts = job.study.texts
    nats = [done[i].astype(np.float64) for i in range(len(texts))]
    where = f"collected from {job.backend.name}"
    return check_losses(where, job.model, [t.id for t in texts], job.encoded.bounds, nats, texts, about)


def _agreement(job: Job, reference: Backend) -> Agreement:
    prefix, context = job.backend.vocabulary.prefix, min(job.backend.context, reference.context)
    picked = pick(job.encoded.ids, context - len(prefix))
    windows = [w for i in picked for w in plan(i, job.encoded.ids[i], prefix, context)]
    return compare(partial(job.ask, windows), job.backend, reference, len(picked))


# ---- shards: what a killed run had finished


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder of unfinished work; a second process is told so at once."""
    from filelock import FileLock, Timeout

    folder.parent.mkdir(exist_ok=True)
    try:
        with FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0):
            yield
    except Timeout as error:
        raise StudyError(f"{folder.parent.parent}: another process is collecting {what}; let it finish") from error


def resume(job: Job) -> dict[int, Nats]:
    """Nats of the texts that an earlier run with the same settings finished; anything else is cleared away."""
    settings = {**job.about, "texts": job.study.texts.digest, "ids": job.encoded.digest}
    mark, line = job.folder / "settings.json", json.dumps(settings, sort_keys=True)
    if not mark.is_file() or mark.read_text(encoding="utf-8") != line:
        shutil.rmtree(job.folder, ignore_errors=True)
        write_text(mark, line)
        return {}
    done: dict[int, Nats] = {}
    for shard in sorted(job.folder.glob("*.npz")):
        with np.load(shard, allow_pickle=False) as arrays:
            parts = np.split(arrays["nats"], np.cumsum(arrays["counts"])[:-1])
            done.update(zip(arrays["texts"].tolist(), parts, strict=True))
    return done


def write_shard(job: Job, shard: dict[int, Nats]) -> None:
    """Keep finished texts; the file is whole or not there."""
    if not shard:
        return
    order = sorted(shard)
    counts = np.array([len(shard[i]) for i in order], np.int64)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, texts=np.array(order), counts=counts, nats=np.concatenate([shard[i] for i in order]))

    write_whole(job.folder / f"{order[0]}-{order[-1]}-{len(order)}-{time.time_ns()}.npz", write)
