"""Shards: what an unfinished run has done so far, in files that are whole or not there."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError, StudyError
from benchcast.records import Ints
from benchcast.storage.arrays import Npz
from benchcast.storage.features import MOST_DIMENSIONS
from benchcast.storage.files import write_text, write_whole

PerToken = npt.NDArray[Any]
MARK = "settings.json"
SHARD_SECONDS = 5.0  # about this much work is lost to a kill
SHARD_BYTES = 256 << 20  # results are not held in memory beyond this


class ShardStore:
    """Results by text as they come in; every few seconds what is new goes into a shard.

    `counts` are the tokens of each text. `made` is what the maker of the results says of itself. Results are kept only
    as long as settings and maker stay the same; a damaged shard is removed, and its texts are done again. `force`
    starts anew, but goes on with what a forced run before it had done.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], counts: Ints, *, force: bool = False) -> None:
        self.folder, self.settings, self.counts, self.forced = folder, dict(settings), counts, force
        self.done: set[int] = set()  # indices of texts
        self.made = ""
        self.rows = 0  # taken in by this run
        self._fresh: dict[int, PerToken] = {}
        self._bytes, self._wrote = 0, time.monotonic()
        self._open()
        self.resumed = len(self.done)

    def _open(self) -> None:
        was = _settings(self.folder)
        forced = bool(was.pop("forced", False))
        if was == self.settings and (forced or not self.forced):
            heads = [found for shard in self._shards() if (found := self._head(shard))]
            if len({(made, width) for made, width, _ in heads}) == 1:
                self.made, self.done = heads[0][0], {i for *_, own in heads for i in own}
                self.forced = forced
                return
        self._start_anew()

    def _start_anew(self) -> None:
        self.clear()
        text = json.dumps({**self.settings, "forced": self.forced}, sort_keys=True)
        write_text(self.folder / MARK, text)

    def take(self, made: str, results: Mapping[int, PerToken]) -> None:
        """Add finished texts; what another maker did before is forgotten."""
        self.keep_only(made)
        self.done.update(results)
        self._fresh.update(results)
        self.rows += sum(map(len, results.values()))
        self._bytes += sum(r.nbytes for r in results.values())
        if time.monotonic() - self._wrote > SHARD_SECONDS or self._bytes > SHARD_BYTES:
            self.flush()

    def keep_only(self, made: str) -> None:
        """Forget what was made in another way, such as by an older version of a library."""
        if self.made != made and self.done:
            self._start_anew()
            self.done, self._fresh, self.resumed, self.rows = set(), {}, 0, 0
        self.made = made

    def flush(self) -> None:
        """Put what is new into a shard."""
        if self._fresh:
            _write(self.folder, self.made, self._fresh)
        self._fresh, self._bytes, self._wrote = {}, 0, time.monotonic()

    def results(self) -> Iterator[tuple[int, PerToken]]:
        """Every finished text once, from the files; one shard is in memory at a time."""
        self.flush()
        seen: set[int] = set()
        for shard in self._shards():
            for index, rows in _read(shard, self.counts).rows.items():
                if index not in seen:
                    yield index, rows
                seen.add(index)

    def clear(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _head(self, shard: Path) -> tuple[str, tuple[int, ...], list[int]] | None:
        """Who made a shard, how wide its rows are, and its texts; a damaged one is removed."""
        try:
            found = _read(shard, self.counts)
        except InputError:
            shard.unlink(missing_ok=True)
            return None
        return found.made, next(iter(found.rows.values())).shape[1:], [*found.rows]

    def _shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.npz"))


def tidy(folder: Path) -> None:
    """Remove shards whose results are stored; a forced run that was killed is still to be finished."""
    if not _settings(folder).get("forced"):
        shutil.rmtree(folder, ignore_errors=True)


def _settings(folder: Path) -> dict[str, Any]:
    """What the shards of a folder depend on; nothing where that cannot be read."""
    try:
        found = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Shard(NamedTuple):
    """The content of one file."""

    made: str
    rows: dict[int, PerToken]  # by the index of the text


def _read(shard: Path, counts: Ints) -> Shard:
    """A shard whose texts have as many tokens as they should; InputError where it is damaged."""
    total = int(counts.sum())
    with Npz(shard) as file:
        made = file.read("made", most=1)
        texts, own = (file.read(name, most=len(counts)) for name in ("texts", "counts"))
        rows = file.read("rows", most=total * MOST_DIMENSIONS)
    sound = (
        made.dtype.kind == "U"
        and texts.dtype.kind == own.dtype.kind == "i"
        and texts.ndim == own.ndim == 1
        and len(set(texts.tolist())) == len(own) > 0
        and set(texts.tolist()) <= set(range(len(counts)))
        and np.array_equal(own, counts[texts.astype(np.int64)])
        and rows.dtype.kind == "f"
        and 1 <= rows.ndim <= 2
        and len(rows) == own.sum()
        and not np.isinf(rows).any()  # NaN: a first token without BOS has no loss
    )
    if not sound:
        raise InputError(f"{shard}: not a shard of these texts")
    parts = np.split(rows, np.cumsum(own)[:-1])
    return Shard(str(made), dict(zip(texts.tolist(), parts, strict=True)))


def _write(folder: Path, made: str, results: Mapping[int, PerToken]) -> None:
    order = sorted(results)
    counts = np.array([len(results[i]) for i in order], np.int64)
    rows = np.concatenate([results[i] for i in order])

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, texts=np.array(order), counts=counts, rows=rows, made=np.array(made))

    write_whole(folder / f"{order[0]}-{order[-1]}-{len(order)}-{time.time_ns()}.npz", write)


@contextmanager
def exclusive(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder of unfinished work; a second process is told so at once."""
    from filelock import FileLock, Timeout

    folder.parent.mkdir(exist_ok=True)
    try:
        with FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0):
            yield
    except Timeout as error:
        raise StudyError(f"{folder.parent.parent}: another process is collecting {what}; let it finish") from error
