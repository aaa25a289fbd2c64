"""Files that are whole or absent, and names that stay inside the study."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchcast.errors import BenchcastError, StudyError, one_line

LOCK_SECONDS = 60.0
READ_ONLY = "READ-ONLY"  # a file in a study that is not to be changed; it holds the name of the public study
LONGEST_NAME = 120  # bytes; room for an ending and a temporary mark on any file system
PLAIN = "-_.@+=,()[] "  # beside letters and digits of any script
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<pid>[1-9][0-9]{0,9})-[0-9a-f]{8}\.(?P<kind>tmp|old)", re.DOTALL)
_in_use: set[str] = set()  # names of temporaries that this process is writing


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


def _temporary(path: Path, kind: str = "tmp") -> Path:
    """A name beside `path` that no other process takes; `leftovers` and `sweep` know it again."""
    name = _short(path.name) if kind == "tmp" else path.name  # what is set aside must find its way back
    return path.with_name(f".{name}.{os.getpid()}-{secrets.token_hex(4)}.{kind}")


def _short(name: str) -> str:
    return name.encode(errors="surrogateescape")[:150].decode(errors="ignore")


def sync(path: Path) -> None:
    """Make sure that a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def in_place_of(path: Path, kind: str = "tmp") -> Iterator[Path]:
    """A temporary name beside `path`; whatever has that name in the end is removed. Failures name `path`."""
    temporary = _temporary(path, kind)
    _in_use.add(temporary.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
    except OSError as error:
        raise StudyError(f"{path}: cannot be written ({error.strerror or one_line(error)})") from error
    finally:
        remove(temporary)
        _in_use.discard(temporary.name)


def remove(path: Path) -> None:
    """Remove a file or a folder as far as that is possible; of a symbolic link, the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def write_whole(path: Path, write: Callable[[Path], object], *, check: Callable[[Path], object] | None = None) -> None:
    """Let `write` fill a temporary file, then put it in place in one step.

    `check` reads the new file before that; where it fails, the old file stays.
    """
    with in_place_of(path) as temporary:
        write(temporary)
        sync(temporary)
        if check is not None:
            _check(path, temporary, check)
        temporary.replace(path)
        sync(path.parent)


def _check(path: Path, temporary: Path, check: Callable[[Path], object]) -> None:
    try:
        check(temporary)
    except BenchcastError as error:
        said = str(error).replace(str(temporary), path.name)
        raise StudyError(f"{path}: not changed, since the new one could not be read back: {said}") from error


def write_text(path: Path, text: str, *, check: Callable[[Path], object] | None = None) -> None:
    """Write a small text file whole (see `write_whole`)."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="")

    write_whole(path, write, check=check)


def write_new(path: Path, text: str) -> None:
    """Write a small text file whole where there is none yet; FileExistsError where there is, nothing lost."""
    taken = False
    with in_place_of(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
        sync(temporary)
        try:
            os.link(temporary, path)
        except FileExistsError:
            taken = True
        sync(path.parent)
    if taken:
        raise FileExistsError(path)


def leftovers(folder: Path, *, kind: str, name: str | None = None) -> list[Path]:
    """Temporary files and folders of our own making, by their exact names, newest first; never symbolic links."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = TEMPORARY.fullmatch(path.name)
        if match is None or match["kind"] != kind or path.is_symlink():
            continue
        if name is None or match["name"] in (name, _short(name)):
            found.append(path)
    return sorted(found, key=_changed, reverse=True)


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_ctime
    except FileNotFoundError:  # removed meanwhile
        return 0.0


def place_of(temporary: Path) -> Path:
    """The path that a temporary name was made for."""
    match = TEMPORARY.fullmatch(temporary.name)
    assert match is not None
    return temporary.with_name(match["name"])


def _abandoned(temporary: Path) -> bool:
    """Whether the process that names itself in a temporary name is gone."""
    match = TEMPORARY.fullmatch(temporary.name)
    assert match is not None
    if int(match["pid"]) == os.getpid():
        return temporary.name not in _in_use
    try:
        os.kill(int(match["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def sweep(folder: Path, *, name: str | None = None) -> None:
    """Remove what killed processes left unfinished, and put back what they had set aside; call it with the lock held.

    With `name`, only what was meant for that file. Nothing but our own temporary names is touched, and no symbolic
    link is followed.
    """
    for old in filter(_abandoned, leftovers(folder, kind="old", name=name)):
        if os.path.lexists(place_of(old)):
            remove(old)
        else:
            old.rename(place_of(old))
    for left in filter(_abandoned, leftovers(folder, kind="tmp", name=name)):
        remove(left)


def require_writable(root: Path) -> None:
    """Refuse a study that is only to be read, and name the command that makes a copy of it."""
    mark = root / READ_ONLY
    if mark.is_file():
        name = mark.read_text(encoding="utf-8").strip()
        raise StudyError(
            f"{root}: the public study {name} is read-only; "
            f"`benchcast init STUDY --from {name}` makes a copy to work on"
        )


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the study's lock: one writer at a time, others wait their turn."""
    from filelock import FileLock, Timeout

    require_writable(root)
    try:
        with FileLock(root / ".lock", timeout=LOCK_SECONDS):
            for folder in (root, *(d for d in root.iterdir() if d.is_dir() and not d.is_symlink())):
                sweep(folder)
            yield
    except Timeout as error:
        raise StudyError(f"{root}: another process has been writing for {LOCK_SECONDS:g} s; try again") from error
