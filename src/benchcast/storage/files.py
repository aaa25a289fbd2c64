"""Files that are whole or absent, and names that stay inside the study."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchcast.errors import StudyError

LOCK_SECONDS = 60.0
LONGEST_NAME = 120  # bytes; room for an ending and a temporary mark on any file system
PLAIN = "-_.@+=,()[] "  # beside letters and digits of any script


def file_name(name: str) -> str:
    """A file name for any model or task: the name itself where that is safe, else an escaped form.

    Different names give different file names; none can leave its folder, hide or grow too long.
    """
    ends = len(name) - len(name.strip(" ."))  # a leading dot hides a file, an ending space or dot may vanish
    escaped = "".join(_escape(c) if (ends and c in " .") or not (c.isalnum() or c in PLAIN) else c for c in name)
    if len(escaped.encode()) <= LONGEST_NAME:
        return escaped
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    short = escaped.encode()[: LONGEST_NAME - 18].decode(errors="ignore")
    return f"{short}%-{digest}"  # `%-` is in no escaped name


def _escape(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name[:60]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _set_aside(path: Path) -> Path:
    """Where a folder lies for the moment in which another takes its place; holds the whole name, to find back."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.old")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file, then put it in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        write(temporary)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="")

    write_whole(path, write)


def write_new(path: Path, text: str) -> None:
    """Write a small text file whole where there is none yet; FileExistsError where there is, nothing lost."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        temporary.write_text(text, encoding="utf-8", newline="")
        _sync(temporary)
        os.link(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` make a temporary folder, then put it in place of whatever was there.

    Between the two renames neither is in place; killed there, `sweep` puts the old one back.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = _temporary(path), _set_aside(path)
    temporary.mkdir()
    try:
        fill(temporary)
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        if path.exists():
            path.rename(old)
        try:
            temporary.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _still_written(temporary: Path) -> bool:
    """Whether the process that names itself in a temporary name is alive."""
    writer = temporary.name.split(".")[-2].split("-")[0]
    if not writer.isdigit() or int(writer) == os.getpid():
        return False
    try:
        os.kill(int(writer), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sweep(folder: Path) -> None:
    """Remove what a killed process left unfinished, and put back what it had set aside; call it with the lock held."""
    for old in folder.glob(".*.old"):
        place = old.with_name(old.name[1:].rsplit(".", 2)[0])
        if _still_written(old):
            continue
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(place)
    for left in folder.glob(".*.tmp"):
        if _still_written(left):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the study's lock: one writer at a time, others wait their turn."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(root / ".lock", timeout=LOCK_SECONDS):
            for folder in (root, *(d for d in root.iterdir() if d.is_dir())):
                sweep(folder)
            yield
    except Timeout as error:
        raise StudyError(f"{root}: another process has been writing for {LOCK_SECONDS:g} s; try again") from error
