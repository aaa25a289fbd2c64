"""Whole files and folders: safe names, atomic writes under a lock, one version of a folder, hashes of documents.

A file or folder is replaced, never written in place, so a reader sees the old or the new content, and a killed process
leaves behind only temporary names that the next writer sweeps.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchcast.errors import BenchcastError, InputError, StudyError, one_line
from benchcast.messages import brief

HASH = "sha256"

LOCK_SECONDS = 60.0
READ_ONLY = "READ-ONLY"  # name of a file that marks a read-only study; it contains the name of the public study
LONGEST_NAME = 120  # bytes; leaves space for a suffix and a temporary mark on any file system
PLAIN = "-_.@+=,()[] "  # allowed in file names, besides letters and digits of any script
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<pid>[1-9][0-9]{0,9})-[0-9a-f]{8}\.(?P<kind>tmp|old)", re.DOTALL)
URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+")  # one slash: Path drops the second
TRIES = 1000  # attempts to read a folder; one fails only if a writer replaces the folder during it
AT_WORKING_FOLDER = -100  # AT_FDCWD of Linux
EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)  # exchange is not supported
TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # errors of `rename` if the target exists
T = TypeVar("T")
_in_use: set[str] = set()  # names of temporary files that this process is writing


class Stamp(NamedTuple):
    """Tells a file or folder of a study from what replaces it, even within one tick of the clock."""

    inode: int
    mtime_ns: int
    size: int


def stamp(path: Path) -> Stamp | None:
    """The stamp of a file or folder, as a key of what was read from it; None where there is none."""
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Stamp(state.st_ino, state.st_mtime_ns, state.st_size)


def local_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a study at a path; an InputError for a URL such as s3://bucket/study."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a study is needed, or the path of its folder; found {brief(path)}")
    text = os.fspath(path)
    if match := URL.match(text):
        url = text if "://" in text else f"{match['scheme']}://{text[match.end() :]}"
        syncs = f"`aws s3 sync {url} study` and `aws s3 sync study {url}`"
        such = f", such as {syncs}" if match["scheme"] == "s3" else ""
        raise InputError(f"{url}: a study is a folder on this machine; two sync commands copy it here and back{such}")
    return Path(text)


def file_name(name: str) -> str:
    """A file name for any model or task: the name itself if it is safe, else an escaped form.

    Different names give different file names. None leaves its folder, is hidden, or exceeds `LONGEST_NAME`.
    """
    ends = len(name) - len(name.strip(" ."))  # a leading dot hides a file; some systems drop a final space or dot
    escaped = "".join(
        "".join(f"%{byte:02X}" for byte in c.encode()) if (ends and c in " .") or not (c.isalnum() or c in PLAIN) else c
        for c in name
    )
    if len(escaped.encode()) <= LONGEST_NAME:
        return escaped
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    short = escaped.encode()[: LONGEST_NAME - 18].decode(errors="ignore")
    return f"{short}%-{digest}"  # no escaped name contains `%-`


def _short(name: str) -> str:
    return name.encode(errors="surrogateescape")[:150].decode(errors="ignore")


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def in_place_of(path: Path, kind: str = "tmp") -> Iterator[Path]:
    """Yield a temporary path beside `path`, named as in `TEMPORARY`, and remove it at the end; errors name `path`."""
    name = _short(path.name) if kind == "tmp" else path.name  # `sweep` restores an "old" path to its full name
    temporary = path.with_name(f".{name}.{os.getpid()}-{secrets.token_hex(4)}.{kind}")
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
    """Remove a file, folder or symbolic link (not its target), ignoring errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def write_whole(path: Path, write: Callable[[Path], object], *, check: Callable[[Path], object] | None = None) -> None:
    """Write a file atomically: the old or the new content is complete at any moment.

    Parameters
    ----------
    path : the file
    write : writes the content to the temporary path that it receives
    check : reads the temporary file before it replaces `path`; if it raises an error, the old file is kept
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
        message = str(error).replace(str(temporary), path.name)
        raise StudyError(f"{path}: not changed, since the new one could not be read back: {message}") from error


def write_text(path: Path, text: str, *, check: Callable[[Path], object] | None = None) -> None:
    """Write a text file atomically (see `write_whole`)."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="")

    write_whole(path, write, check=check)


def write_new(path: Path, text: str) -> None:
    """Write a new text file atomically; FileExistsError if the path exists, which is then unchanged."""
    exists = False
    with in_place_of(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
        sync(temporary)
        try:
            os.link(temporary, path)
        except FileExistsError:
            exists = True
        sync(path.parent)
    if exists:
        raise FileExistsError(path)


def leftovers(folder: Path, *, kind: str, name: str | None = None) -> list[Path]:
    """Temporary files and folders written by benchcast, newest first; never symbolic links.

    `kind` is "tmp" (unfinished) or "old" (set aside); with `name`, only those made for that file name.
    """
    paths = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = TEMPORARY.fullmatch(path.name)
        if match is None or match["kind"] != kind or path.is_symlink():
            continue
        if name is None or match["name"] in (name, _short(name)):
            paths.append(path)
    return sorted(paths, key=_changed, reverse=True)


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_ctime
    except FileNotFoundError:  # removed meanwhile
        return 0.0


def place_of(temporary: Path) -> Path:
    """The path that a temporary path was made for."""
    match = TEMPORARY.fullmatch(temporary.name)
    assert match is not None
    return temporary.with_name(match["name"])


def _abandoned(temporary: Path) -> bool:
    """Whether the process whose id is in a temporary name has ended."""
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
    """Remove unfinished files of killed processes and restore files that they set aside; requires the lock.

    With `name`, only those made for that file name. Only paths that `leftovers` lists are touched.
    """
    for old in filter(_abandoned, leftovers(folder, kind="old", name=name)):
        if os.path.lexists(place_of(old)):
            remove(old)
        else:
            old.rename(place_of(old))
    for left in filter(_abandoned, leftovers(folder, kind="tmp", name=name)):
        remove(left)


def is_read_only(root: Path) -> bool:
    """Whether a study is a public or the embedded one, in which nothing is stored."""
    return (root / READ_ONLY).is_file()


def require_writable(root: Path) -> None:
    """Raise an error for a read-only study that names the command to copy it."""
    mark = root / READ_ONLY
    if is_read_only(root):
        name = mark.read_text(encoding="utf-8").strip()
        raise StudyError(
            f"{root}: the public study {name} is read-only; "
            f"`benchcast init STUDY --from {name}` makes a copy to work on"
        )


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the study's lock; other writers wait up to `LOCK_SECONDS`."""
    require_writable(root)
    busy = f"{root}: another process has been writing for {LOCK_SECONDS:g} s; try again"
    with file_lock(root / ".lock", seconds=LOCK_SECONDS, busy=busy):
        for folder in (root, *(d for d in root.iterdir() if d.is_dir() and not d.is_symlink())):
            sweep(folder)
        yield


@contextmanager
def file_lock(path: Path, *, seconds: float, busy: str) -> Iterator[None]:
    """Hold the lock of a file; StudyError with the message `busy` if another process keeps it for `seconds`."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=seconds):
            yield
    except Timeout as error:
        raise StudyError(busy) from error


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Write or replace a folder atomically; `fill` writes the files into the empty folder that it receives.

    If the process is killed, the old or the new folder is in place. If the file system cannot exchange two
    folders, the old one may be set aside; `from_folder` still reads it and `sweep` restores it.
    """
    sweep(path.parent, name=path.name)
    with in_place_of(path) as temporary:
        temporary.mkdir()
        fill(temporary)
        for file in temporary.iterdir():
            sync(file)
        sync(temporary)
        try:
            temporary.rename(path)
        except OSError as error:
            if error.errno not in TAKEN:
                raise
            _replace(temporary, path)
        sync(path.parent)


def _replace(temporary: Path, path: Path) -> None:
    """Replace a folder by another; the old one then has the temporary name, or is removed."""
    try:
        exchange(temporary, path)
    except OSError as error:
        if error.errno not in CANNOT:
            raise
        replace_in_two_steps(temporary, path)


def exchange(one: Path, two: Path) -> None:
    """Exchange two paths atomically; OSError if the system or file system does not support it."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(os.fsencode(one), os.fsencode(two), EXCHANGE)
    elif hasattr(library, "renameat2"):
        here = AT_WORKING_FOLDER
        failed = library.renameat2(here, os.fsencode(one), here, os.fsencode(two), EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, "no call that exchanges two paths")
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(two))


def replace_in_two_steps(temporary: Path, path: Path) -> None:
    """Rename the old folder to a temporary name, then move the new one into place."""
    with in_place_of(path, "old") as old:
        path.rename(old)
        try:
            temporary.rename(path)
        except OSError:
            old.rename(path)
            raise


def present(path: Path) -> Path:
    """The folder, or its old version that is set aside during a replacement."""
    if not path.exists():
        for old in leftovers(path.parent, kind="old", name=path.name):
            return old
    return path


def stored_folders(parent: Path) -> list[Path]:
    """Paths of all visible folders, including those whose old version is set aside during a replacement."""
    visible = [p for p in parent.iterdir() if p.is_dir() and not p.name.startswith(".")] if parent.is_dir() else []
    return sorted({*visible, *map(place_of, leftovers(parent, kind="old"))})


def from_folder(path: Path, read: Callable[[Path], T]) -> T:
    """Read files of one version of a folder, even while another process replaces it.

    Parameters
    ----------
    path : the folder
    read : receives the folder that is there; called again if it was replaced meanwhile, whatever it raised

    Returns
    -------
    The result of `read`. FileNotFoundError if the folder, or a file in it, does not exist.
    """
    for _ in range(TRIES):
        folder = present(path)
        version = stamp(folder)
        try:
            result = read(folder)
        except Exception:
            now = present(path)  # another path while a writer has set the folder aside
            if _gone(path) if version is None else (now, stamp(now)) == (folder, version):
                raise
        else:
            if stamp(present(path)) == version:
                return result
    raise StudyError(f"{path}: replaced repeatedly by another process; try again")


def read_files(path: Path, names: Sequence[str]) -> list[bytes]:
    """The content of some files of a folder (see `from_folder`)."""
    return from_folder(path, lambda folder: [(folder / name).read_bytes() for name in names])


def _gone(path: Path) -> bool:
    """Whether a folder is absent for longer than a replacement takes."""
    for _ in range(5):
        if present(path).exists():
            return False
        time.sleep(0.001)
    return True


def content_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document without its hash field: JSON with sorted keys, no white space, UTF-8."""
    rest = {k: v for k, v in document.items() if k != HASH}
    plain = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(plain.encode()).hexdigest()


def hashed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its hash added."""
    return {**document, HASH: content_digest(document)}


def hash_holds(document: Mapping[str, Any]) -> bool:
    """Whether the content matches its hash; true without one, as in documents of older versions."""
    return bool(document.get(HASH, "") in ("", content_digest(document)))
