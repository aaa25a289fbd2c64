"""Replace folders atomically, and read one version of a folder while another process replaces it."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from benchcast.errors import StudyError
from benchcast.storage.files import in_place_of, leftovers, place_of, sweep, sync

T = TypeVar("T")
Open = Callable[[str], BufferedReader]

TRIES = 1000  # attempts to read; one fails only if a writer replaces the folder during it
AT_WORKING_FOLDER = -100  # AT_FDCWD of Linux
EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)  # exchange is not supported
TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # errors of `rename` if the target exists


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


def from_folder(path: Path, read: Callable[[Open], T]) -> T:
    """Read files of one version of a folder, even while another process replaces it.

    Parameters
    ----------
    path : the folder
    read : receives a function that opens a file of the folder by name; called again if the folder was replaced

    Returns
    -------
    The result of `read`. FileNotFoundError if the folder, or a file in it, does not exist.
    """
    for _ in range(TRIES):
        handle = -1
        try:
            handle = os.open(present(path), os.O_RDONLY | os.O_DIRECTORY)
            return read(partial(_open, handle))
        except FileNotFoundError:
            if _gone(path) if handle < 0 else _same(handle, path):
                raise
        finally:
            if handle >= 0:
                os.close(handle)
    raise StudyError(f"{path}: replaced repeatedly by another process; try again")


def read_files(path: Path, names: Sequence[str]) -> list[bytes]:
    """The content of some files of a folder (see `from_folder`)."""

    def read(opened: Open) -> list[bytes]:
        contents = []
        for name in names:
            with opened(name) as file:
                contents.append(file.read())
        return contents

    return from_folder(path, read)


def _open(folder: int, name: str) -> BufferedReader:
    return open(name, "rb", opener=partial(os.open, dir_fd=folder))


def _same(handle: int, path: Path) -> bool:
    """Whether an open folder is still the current version."""
    try:
        return os.path.samestat(os.fstat(handle), present(path).stat())
    except FileNotFoundError:
        return _gone(path)


def _gone(path: Path) -> bool:
    """Whether a folder is absent for longer than a replacement takes."""
    for _ in range(5):
        if present(path).exists():
            return False
        time.sleep(0.001)
    return True
