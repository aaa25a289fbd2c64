"""Shards: the results of an unfinished run, in files that are written atomically."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchcast.collection.backends.base import PerToken
from benchcast.errors import InputError
from benchcast.records import Ints
from benchcast.study.atomic import file_lock, write_text, write_whole
from benchcast.study.feature_files import MOST_DIMENSIONS, Npz

MARK = "settings.json"
SHARD_SECONDS = 5.0  # interval between shards; a kill loses about this much work
SHARD_BYTES = 256 << 20  # limit of the results held in memory


class ShardStore:
    """Finished texts of a run; new results are written to a shard every few seconds.

    Results are reused only while the settings and the backend's description stay the same. A damaged shard is
    removed and its texts are scored again.

    Parameters
    ----------
    folder : where the shards are written
    settings : everything the results depend on that is known before the model is loaded
    counts : number of rows of each text
    force : discard earlier results, except those of an interrupted forced run
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], counts: Ints, *, force: bool = False) -> None:
        self.folder, self.settings, self.counts, self.forced = folder, dict(settings), counts, force
        self.done: set[int] = set()  # indices of finished texts
        self.backend_line = ""  # description of the backend that made the results
        self.rows = 0  # tokens added by this run
        self._fresh: dict[int, PerToken] = {}
        self._bytes, self._wrote = 0, time.monotonic()
        self._open()
        self.resumed = len(self.done)

    def _open(self) -> None:
        stored = _settings(self.folder)
        forced = bool(stored.pop("forced", False))
        if stored == self.settings and (forced or not self.forced):
            made: set[tuple[str, tuple[int, ...]]] = set()
            done: set[int] = set()
            for path in self._shards():
                try:
                    shard = _read(path, self.counts)
                except InputError:  # damaged
                    path.unlink(missing_ok=True)
                    continue
                made.add((shard.backend_line, next(iter(shard.rows.values())).shape[1:]))
                done.update(shard.rows)
            if len(made) == 1:
                ((self.backend_line, _),) = made
                self.done, self.forced = done, forced
                return
        self._restart()

    def _restart(self) -> None:
        self.clear()
        text = json.dumps({**self.settings, "forced": self.forced}, sort_keys=True)
        write_text(self.folder / MARK, text)

    def take(self, backend_line: str, results: Mapping[int, PerToken]) -> None:
        """Add finished texts; results of a different backend are discarded first."""
        self.keep_only(backend_line)
        self.done.update(results)
        self._fresh.update(results)
        self.rows += sum(map(len, results.values()))
        self._bytes += sum(r.nbytes for r in results.values())
        if time.monotonic() - self._wrote > SHARD_SECONDS or self._bytes > SHARD_BYTES:
            self.flush()

    def keep_only(self, backend_line: str) -> None:
        """Discard all results if another backend, or another version of it, made them."""
        if self.backend_line != backend_line and self.done:
            self._restart()
            self.done, self._fresh, self.resumed, self.rows = set(), {}, 0, 0
        self.backend_line = backend_line

    def flush(self) -> None:
        """Write the results that are only in memory to a shard."""
        if self._fresh:
            order = sorted(self._fresh)
            counts = np.array([len(self._fresh[i]) for i in order], np.int64)
            rows = np.concatenate([self._fresh[i] for i in order])
            made = np.array(self.backend_line)

            def write(path: Path) -> None:
                with path.open("wb") as file:
                    np.savez(file, texts=np.array(order), counts=counts, rows=rows, made=made)

            write_whole(self.folder / f"{order[0]}-{order[-1]}-{len(order)}-{time.time_ns()}.npz", write)
        self._fresh, self._bytes, self._wrote = {}, 0, time.monotonic()

    def results(self) -> Iterator[tuple[int, PerToken]]:
        """Read every finished text once; one shard is in memory at a time."""
        self.flush()
        seen: set[int] = set()
        for shard in self._shards():
            for index, rows in _read(shard, self.counts).rows.items():
                if index not in seen:
                    yield index, rows
                seen.add(index)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.npz"))


def tidy(folder: Path) -> None:
    """Remove shards whose results are stored; those of an interrupted forced run are kept."""
    if not _settings(folder).get("forced"):
        shutil.rmtree(folder, ignore_errors=True)


def _settings(folder: Path) -> dict[str, Any]:
    """The settings that the shards of a folder depend on; empty if they cannot be read."""
    try:
        settings = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}


class Shard(NamedTuple):
    """Content of one file."""

    backend_line: str
    rows: dict[int, PerToken]  # by text index


def _read(shard: Path, counts: Ints) -> Shard:
    """Read a shard; InputError if it is damaged or its texts have other token counts."""
    total = int(counts.sum())
    with Npz(shard) as file:
        backend_line = file.read("made", most=1)
        texts, lengths = (file.read(name, most=len(counts)) for name in ("texts", "counts"))
        rows = file.read("rows", most=total * MOST_DIMENSIONS)
    sound = (
        backend_line.dtype.kind == "U"
        and texts.dtype.kind == lengths.dtype.kind == "i"
        and texts.ndim == lengths.ndim == 1
        and len(set(texts.tolist())) == len(lengths) > 0
        and set(texts.tolist()) <= set(range(len(counts)))
        and np.array_equal(lengths, counts[texts.astype(np.int64)])
        and rows.dtype.kind == "f"
        and 1 <= rows.ndim <= 2
        and len(rows) == lengths.sum()
        and not np.isinf(rows).any()  # NaN is allowed: the first token has no loss without BOS
    )
    if not sound:
        raise InputError(f"{shard}: not a shard of these texts")
    parts = np.split(rows, np.cumsum(lengths)[:-1])
    return Shard(str(backend_line), dict(zip(texts.tolist(), parts, strict=True)))


def exclusive(folder: Path, what: str) -> AbstractContextManager[None]:
    """Lock a folder of unfinished work; a second process gets a StudyError at once."""
    folder.parent.mkdir(exist_ok=True)
    busy = f"{folder.parent.parent}: another process is collecting {what}; let it finish"
    return file_lock(folder.with_name(f".{folder.name}.lock"), seconds=0, busy=busy)
