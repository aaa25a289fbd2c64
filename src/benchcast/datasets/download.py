"""Public files at a pinned commit: downloaded, checked by sha256 and kept; a file is whole or absent."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from benchcast.errors import InputError, StudyError, one_line
from benchcast.storage.files import write_whole

ADDRESS = "https://raw.githubusercontent.com"
VARIABLE = "BENCHCAST_DATA"
SECONDS = 60.0  # without an answer


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
        """Where it lies below a data folder: repository's name, then its path there."""
        return Path(self.repository.partition("/")[2]) / self.path

    @property
    def url(self) -> str:
        """Its public address."""
        path = f"{self.repository}/{self.commit}/{self.path}"
        return f"{ADDRESS}/{urllib.parse.quote(path)}"


@cache
def public_files(name: str) -> tuple[PublicFile, ...]:
    """The files that a public study is read from."""
    return tuple(_listed(name))


def _listed(name: str) -> Iterator[PublicFile]:
    text = (files("benchcast.datasets") / "files.json").read_text(encoding="utf-8")
    for source in json.loads(text)[name]:
        for path, (size, sha256) in source["files"].items():
            yield PublicFile(source["repository"], source["commit"], path, size, sha256)


def cache_folder() -> Path:
    """Where downloads and studies made from them are kept: $XDG_CACHE_HOME/benchcast, else ~/.cache/benchcast."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "benchcast"


def data_folder(data_home: str | Path | None) -> Path:
    """Where public files lie: `data_home`, else $BENCHCAST_DATA, else a folder in the cache."""
    given = data_home or os.environ.get(VARIABLE, "")
    return Path(given).expanduser() if given else cache_folder() / "files"


def fetch_files(wanted: Iterable[PublicFile], folder: Path, on_file: Callable[[str], None]) -> None:
    """Make sure that public files lie in `folder`; those that are there are checked, not replaced."""
    for file in wanted:
        on_file(file.path)
        target = folder / file.place
        if target.exists():
            check_file(target, file)
        else:
            write_whole(target, partial(Path.write_bytes, data=download(file)))


def check_file(path: Path, file: PublicFile) -> None:
    """Refuse a file that is not the one of the pinned commit."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != file.sha256:
        raise InputError(
            f"{path}: not the file of {file.repository} at {file.commit[:12]}: sha256 {found[:16]}…, "
            f"expected {file.sha256[:16]}…; remove it to download it again"
        )


def download(file: PublicFile) -> bytes:
    """The content of a public file; anything but the pinned content is an error."""
    request = urllib.request.Request(file.url, headers={"User-Agent": "benchcast"})
    hint = f"set {VARIABLE} to a folder that has {file.place}, or try again"
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            content = reply.read(file.size + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise StudyError(f"{file.url}: cannot be downloaded ({error.code} {error.reason}); {hint}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or one_line(error)
        raise StudyError(f"{file.url}: cannot be downloaded ({reason}); {hint}") from error
    if len(content) != file.size:
        what = "more than" if len(content) > file.size else f"{len(content)} of"
        raise StudyError(f"{file.url}: {what} {file.size} bytes were received; {hint}")
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise StudyError(f"{file.url}: altered: its sha256 is not {file.sha256[:16]}…; {hint}")
    return bytes(content)
