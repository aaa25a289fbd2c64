"""Download public files of a pinned commit, check their sha256 and store them atomically."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from benchcast.errors import InputError, StudyError, one_line
from benchcast.steps import steps
from benchcast.study.atomic import write_whole

ADDRESS = "https://raw.githubusercontent.com"
VARIABLE = "BENCHCAST_DATA"
SECONDS = 60.0  # without any answer
MOST_SECONDS = 300.0  # of one file; the largest has 1.8 MB


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A file of a public repository."""

    repository: str  # owner/name
    commit: str
    path: str  # inside the repository
    size: int  # in bytes
    sha256: str

    @property
    def place(self) -> Path:
        """Its path in a data folder: the repository's name, then the path in the repository."""
        return Path(self.repository.partition("/")[2]) / self.path

    @property
    def url(self) -> str:
        """Its public address."""
        path = f"{self.repository}/{self.commit}/{self.path}"
        return f"{ADDRESS}/{urllib.parse.quote(path)}"


@cache
def public_files(name: str) -> tuple[PublicFile, ...]:
    """The files that a public study is read from; in files.json one study may name another with the same files."""
    by_study = json.loads((files("benchcast.datasets") / "files.json").read_text(encoding="utf-8"))
    sources = by_study[name]
    return tuple(
        PublicFile(repository=source["repository"], commit=source["commit"], path=path, size=size, sha256=sha256)
        for source in (by_study[sources] if isinstance(sources, str) else sources)
        for path, (size, sha256) in source["files"].items()
    )


def cache_folder() -> Path:
    """Folder for downloads and the studies built from them: $XDG_CACHE_HOME/benchcast, else ~/.cache/benchcast."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "benchcast"


def data_folder(data_home: str | Path | None) -> Path:
    """Folder of the public files: `data_home`, else $BENCHCAST_DATA, else a folder in the cache."""
    folder = data_home or os.environ.get(VARIABLE, "")
    return Path(folder).expanduser() if folder else cache_folder() / "files"


def fetch_files(needed: Iterable[PublicFile], folder: Path, on_file: Callable[[str], None]) -> None:
    """Download the public files that `folder` lacks and check the others; `on_file` is called with each path."""
    for file in steps(list(needed), "files read"):
        on_file(file.path)
        target = folder / file.place
        if target.exists():
            check_file(target, file)
        else:
            write_whole(target, partial(Path.write_bytes, data=download(file)))


def check_file(path: Path, file: PublicFile) -> None:
    """Raise an error if a file is not that of the pinned commit."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 != file.sha256:
        raise InputError(
            f"{path}: not the file of {file.repository} at {file.commit[:12]}: sha256 {sha256[:16]}…, "
            f"expected {file.sha256[:16]}…; remove it to download it again"
        )


def _read(reply: http.client.HTTPResponse, size: int) -> bytes:
    """At most `size` bytes of an answer; an error if they take too long, although each part comes in time."""
    content, end = bytearray(), time.monotonic() + MOST_SECONDS
    while len(content) < size and (part := reply.read1(size - len(content))):
        content += part
        if time.monotonic() > end:
            raise TimeoutError(f"{len(content)} bytes in {MOST_SECONDS:g} seconds")
    return bytes(content)


def download(file: PublicFile) -> bytes:
    """Download the content of a public file; an error if it is not the pinned content."""
    request = urllib.request.Request(file.url, headers={"User-Agent": "benchcast"})
    now = f" (now {os.environ[VARIABLE]})" if os.environ.get(VARIABLE) else ""
    hint = f"set {VARIABLE}{now} to a folder that has {file.place}, or try again"
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            content = _read(reply, file.size + 1)
    except urllib.error.HTTPError as error:
        error.close()
        reason = " ".join(f"{error.code} {error.reason}".split())  # that of a redirect loop has several lines
        raise StudyError(f"{file.url}: cannot be downloaded ({reason}); {hint}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or one_line(error)
        raise StudyError(f"{file.url}: cannot be downloaded ({reason}); {hint}") from error
    if len(content) != file.size:
        what = "more than" if len(content) > file.size else f"{len(content)} of"
        raise StudyError(f"{file.url}: {what} {file.size} bytes were received; {hint}")
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise StudyError(f"{file.url}: altered: its sha256 is not {file.sha256[:16]}…; {hint}")
    return content
