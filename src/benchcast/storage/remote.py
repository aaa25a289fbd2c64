"""A study at a URL (s3://, gs://, file://, whatever fsspec opens): worked on in a local copy that is sent back.

Files are whole when they appear, so each can be sent as it is. What is new goes out every few seconds and at the
end: a machine that is lost takes no more than that with it, and the same command goes on from the URL elsewhere.
Several commands may add different models at a time; a table that two of them changed is an error for the second.
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

from benchcast.errors import InputError, MissingExtraError, StudyError

SEND_SECONDS = 10.0
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "r2", "memory"}  # a put appears whole there
Stamp = tuple[int, int]  # size and time of a local file


@contextmanager
def local_copy(url: str) -> Iterator[Path]:
    """The folder to work in; what changes in it is sent to the URL."""
    system, root = _open(url)
    holder = Path(tempfile.mkdtemp(prefix="benchcast-"))
    mirror = Mirror(system, root, holder / (PurePosixPath(root).name or "study"))
    try:
        mirror.fetch()
    except OSError as error:
        shutil.rmtree(holder, ignore_errors=True)
        raise StudyError(f"{url}: cannot be read ({error})") from error
    stop = threading.Event()
    sender = threading.Thread(target=_keep_sending, args=(mirror, stop), daemon=True)
    sender.start()
    try:
        yield mirror.folder
    finally:
        stop.set()
        sender.join()
        try:
            mirror.send()
        except OSError as error:
            raise StudyError(f"{url}: cannot be written ({error}); what was done lies in {mirror.folder}") from error
        except StudyError as error:
            raise StudyError(f"{error}; what was done lies in {mirror.folder}") from error
        shutil.rmtree(holder, ignore_errors=True)


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"{url}: fsspec is needed here: pip install 'benchcast[ray]' ({error})") from error
    try:
        system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingExtraError(f"{url}: {error}") from error
    except ValueError as error:
        raise InputError(f"{url}: {error}") from error
    return system, str(root).rstrip("/")


def _keep_sending(mirror: Mirror, stop: threading.Event) -> None:
    while not stop.wait(SEND_SECONDS):
        with suppress(OSError, StudyError):  # the last sending tells
            mirror.send()


class Mirror:
    """A local folder and its place at a file system of fsspec."""

    def __init__(self, system: Any, root: str, folder: Path) -> None:
        self.system, self.root, self.folder = system, root, folder
        self._sent: dict[str, Stamp] = {}  # local files as the other side has them
        self._theirs: dict[str, str] = {}  # what the other side's files were when last seen

    def fetch(self) -> None:
        """Bring everything here."""
        self.system.invalidate_cache()
        for path in self.system.find(self.root) if self.system.exists(self.root) else []:
            name = str(PurePosixPath(path).relative_to(self.root))
            if any(part.startswith(".") for part in PurePosixPath(name).parts):
                continue
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            self.system.get_file(path, str(target))
            self._sent[name], self._theirs[name] = _stamp(target), self.system.ukey(path)

    def send(self) -> None:
        """Put what is new or changed there, and remove there what was removed here, unless the study itself is gone."""
        self.system.invalidate_cache()
        for name in sorted(self._local(), key=lambda n: ("/" not in n, n)):  # tables last
            with suppress(FileNotFoundError):  # a shard that is no longer needed
                self._send_one(name)
        if not (self.folder / "study.toml").is_file():  # no command removes it: somebody cleaned up here
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
        if "/" not in name and self.system.exists(target) and self.system.ukey(target) != self._theirs.get(name):
            raise StudyError(f"{target}: was changed by another command meanwhile; run this one again")
        self.system.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH120
        protocols = {self.system.protocol} if isinstance(self.system.protocol, str) else set(self.system.protocol)
        if protocols & OBJECT_STORES:
            self.system.put_file(str(source), target)
        else:
            unfinished = (
                f"{os.path.dirname(target)}/.{PurePosixPath(name).name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"  # noqa: PTH120
            )
            self.system.put_file(str(source), unfinished)
            self.system.mv(unfinished, target)
        self.system.invalidate_cache()
        self._sent[name], self._theirs[name] = stamp, self.system.ukey(target)


def _stamp(path: Path) -> Stamp:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
