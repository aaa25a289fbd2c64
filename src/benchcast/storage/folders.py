"""Folders that are replaced in one step, and read whole while somebody replaces them."""

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

TRIES = 1000  # of a reader; each fails only where a writer replaced the folder at that very moment
AT_WORKING_FOLDER = -100  # AT_FDCWD of Linux
EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)  # system or file system knows no exchange
TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # what `rename` says where something is in the way


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` make a temporary folder, then put it in place of whatever was there.

    Killed at any moment, the old or the new folder is in place, or, where the file system cannot exchange two
    folders, the old one is set aside under a name from which `from_folder` reads it and `sweep` puts it back.
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
    """Put a folder in place of another; in the end the old one has the temporary name, or is gone."""
    try:
        exchange(temporary, path)
    except OSError as error:
        if error.errno not in CANNOT:
            raise
        replace_in_two_steps(temporary, path)


def exchange(one: Path, two: Path) -> None:
    """Let two paths change places in one step; OSError where system or file system cannot."""
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
    """Set the old folder aside, then put the new one in place."""
    with in_place_of(path, "old") as old:
        path.rename(old)
        try:
            temporary.rename(path)
        except OSError:
            old.rename(path)
            raise


def present(path: Path) -> Path:
    """The folder, or the one that was set aside for it while another takes its place."""
    if not path.exists():
        for old in leftovers(path.parent, kind="old", name=path.name):
            return old
    return path


def stored_folders(parent: Path) -> list[Path]:
    """Every visible folder, and those that are set aside at this moment, by the path they belong to."""
    visible = [p for p in parent.iterdir() if p.is_dir() and not p.name.startswith(".")] if parent.is_dir() else []
    return sorted({*visible, *map(place_of, leftovers(parent, kind="old"))})


def from_folder(path: Path, read: Callable[[Open], T]) -> T:
    """What `read` makes of a folder's files, all of the same version of it; it gets a function to open them by name.

    FileNotFoundError where there is no such folder, or no such file in it.
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
    raise StudyError(f"{path}: replaced over and over by another process; try again")


def read_files(path: Path, names: Sequence[str]) -> list[bytes]:
    """The content of some files of a folder (see `from_folder`)."""

    def read(opened: Open) -> list[bytes]:
        found = []
        for name in names:
            with opened(name) as file:
                found.append(file.read())
        return found

    return from_folder(path, read)


def _open(folder: int, name: str) -> BufferedReader:
    return open(name, "rb", opener=partial(os.open, dir_fd=folder))


def _same(handle: int, path: Path) -> bool:
    """Whether an open folder is still the one in place."""
    try:
        return os.path.samestat(os.fstat(handle), present(path).stat())
    except FileNotFoundError:
        return _gone(path)


def _gone(path: Path) -> bool:
    """Whether a folder is absent for longer than it takes to replace one."""
    for _ in range(5):
        if present(path).exists():
            return False
        time.sleep(0.001)
    return True
