"""A study at a URL of fsspec (s3://, gs://, file://, …): a local copy whose changes are uploaded.

Changed files are uploaded every few seconds and at the end. If a machine is lost, the same command continues from
the URL on another machine. Several commands may add different models at once; if two of them change the same
table, the second raises an error.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from benchcast.errors import BenchcastError, InputError, MissingExtraError, StudyError, one_line
from benchcast.extras import library

SEND_SECONDS = 10.0
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "r2", "memory"}  # a put is atomic there
S3 = {"s3", "s3a"}
CHANGED = "another command changed it in the meantime; run this one again"
Stamp = tuple[int, int]  # size and modification time of a local file


@contextmanager
def local_copy(url: str) -> Iterator[Path]:
    """Yield a local copy of the study at a URL and upload its changes."""
    system, root = _open(url)
    holder = Path(tempfile.mkdtemp(prefix="benchcast-"))
    mirror = Mirror(system, root, holder / (PurePosixPath(root).name or "study"))
    try:
        with _store_errors(f"{url}: cannot be read"):
            mirror.fetch()
    except BaseException:
        shutil.rmtree(holder, ignore_errors=True)
        raise
    stop = threading.Event()
    sender = threading.Thread(target=_keep_sending, args=(mirror, stop), daemon=True)
    sender.start()
    try:
        yield mirror.folder
    except BenchcastError as error:
        raise type(error)(str(error).replace(str(mirror.folder), url)) from error
    finally:
        stop.set()
        sender.join()
        with _store_errors(f"{url}: cannot be written", f"; the local results are in {mirror.folder}"):
            mirror.send()
        shutil.rmtree(holder, ignore_errors=True)


@contextmanager
def _store_errors(problem: str, kept: str = "") -> Iterator[None]:
    """Raise a failure of the store as a StudyError of one line, with what is kept at its end."""
    try:
        yield
    except StudyError as error:
        raise StudyError(f"{error}{kept}") from error
    except Exception as error:
        if not _is_of_store(error):
            raise
        text = one_line(error)
        refused = isinstance(error, PermissionError) or "credentials" in text.lower()
        advice = "; check the credentials of the store" if refused else ""
        raise StudyError(f"{problem} ({text}{advice}){kept}") from error


def _is_of_store(error: Exception) -> bool:
    """Whether it comes from a store: an OSError, or an exception of its client library, each of which has its own."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] not in ("builtins", "benchcast")


def _open(url: str) -> tuple[Any, str]:
    try:
        system, root = library("fsspec.core", "ray").url_to_fs(url)
    except ImportError as error:
        raise MissingExtraError(f"{url}: {error}") from error
    except ValueError as error:
        raise InputError(f"{url}: {error}") from error
    return system, str(root).rstrip("/")


def _keep_sending(mirror: Mirror, stop: threading.Event) -> None:
    while not stop.wait(SEND_SECONDS):
        with suppress(StudyError), _store_errors(""):  # the final upload raises it
            mirror.send()


class Mirror:
    """A local folder and its copy on a file system of fsspec."""

    def __init__(self, system: Any, root: str, folder: Path) -> None:
        self.system, self.root, self.folder = system, root, folder
        self._sent: dict[str, Stamp] = {}  # stamp of each local file at its last transfer
        self._theirs: dict[str, str] = {}  # key of each remote file at its last transfer
        self._protocols = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)

    def fetch(self) -> None:
        """Download all files."""
        self.system.invalidate_cache()
        for path in self.system.find(self.root) if self.system.exists(self.root) else []:
            name = str(PurePosixPath(path).relative_to(self.root))
            if any(part.startswith(".") for part in PurePosixPath(name).parts):
                continue
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            self.system.get_file(path, str(target))
            self._sent[name], self._theirs[name] = _stamp(target), self._key(path)

    def send(self) -> None:
        """Upload new and changed files and remove deleted ones, unless the whole local study was deleted."""
        self.system.invalidate_cache()
        for name in sorted(self._local(), key=lambda n: ("/" not in n, n)):  # tables last
            with suppress(FileNotFoundError):  # a shard that is no longer needed
                self._send_one(name)
        if not (self.folder / "study.toml").is_file():  # no command removes it: the local copy was deleted
            return
        for name in set(self._sent) - set(self._local()):
            with suppress(FileNotFoundError):
                self.system.rm_file(f"{self.root}/{name}")
            del self._sent[name], self._theirs[name]

    def _local(self) -> list[str]:
        names = [p.relative_to(self.folder) for p in self.folder.rglob("*") if p.is_file()]
        return [n.as_posix() for n in names if not any(part.startswith(".") for part in n.parts)]

    def _send_one(self, name: str) -> None:
        source, target = self.folder / name, f"{self.root}/{name}"
        stamp = _stamp(source)
        if self._sent.get(name) == stamp:
            return
        is_table = "/" not in name
        if is_table and self.system.exists(target) and self._key(target) != self._theirs.get(name):
            raise StudyError(f"{target}: {CHANGED}")
        self.system.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH120
        if self._protocols & S3 and is_table:
            self._put_if_unchanged(source, target, self._theirs.get(name))
        elif self._protocols & OBJECT_STORES:
            self.system.put_file(str(source), target)
        else:
            unfinished = (
                f"{os.path.dirname(target)}/.{PurePosixPath(name).name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"  # noqa: PTH120
            )
            self.system.put_file(str(source), unfinished)
            self.system.mv(unfinished, target)
        self.system.invalidate_cache()
        self._sent[name], self._theirs[name] = stamp, self._key(target)

    def _key(self, path: str) -> str:
        """A string that changes with a remote file."""
        return str(self.system.info(path)["ETag"] if self._protocols & S3 else self.system.ukey(path))

    def _put_if_unchanged(self, source: Path, target: str, tag: str | None) -> None:
        """Upload a table to S3 if it is the one that was read; the server compares, so two writers cannot both win."""
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            self.system.put_file(str(source), target, **condition)
        except OSError as error:
            answer = getattr(error.__cause__, "response", {})  # of botocore's ClientError
            if answer.get("Error", {}).get("Code") not in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise
            if self.system.cat_file(target) != source.read_bytes():  # equal: ours, whose first answer was lost
                raise StudyError(f"{target}: {CHANGED}") from error


def _stamp(path: Path) -> Stamp:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
