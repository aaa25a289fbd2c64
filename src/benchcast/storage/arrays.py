"""Read .npy and .npz files; the shape in a header is compared with the file's size before values are read."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError, one_line

# Exceptions that numpy, zipfile and zlib raise on damaged files.
DAMAGE = (
    *(ValueError, TypeError, LookupError, OSError, EOFError, OverflowError, MemoryError, RecursionError),
    *(NotImplementedError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error, struct.error),
)
DTYPE_KINDS = "fiubU"  # numbers, booleans and text; never objects


class Header(NamedTuple):
    """The header of a .npy file."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]
    offset: int  # position of the first value, in bytes

    @property
    def size(self) -> int:
        """Size of the values, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO) -> Header:
    """Read the header at the start of a .npy file; ValueError if it is invalid."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"array format {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.kind not in DTYPE_KINDS or any(n < 0 for n in shape):
        raise ValueError(f"an array of {dtype} and shape {shape}")
    return Header(shape, fortran, dtype, file.tell())


def map_array(file: BinaryIO) -> npt.NDArray[np.generic]:
    """Memory-map the array of a .npy file."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    header = _checked(read_header(file), size)
    order = "F" if header.fortran else "C"
    return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload]


def _checked(header: Header, size: int) -> Header:
    if header.offset + header.size != size:
        raise ValueError(f"an array of {header.size} bytes in a file that has {max(0, size - header.offset)} for it")
    return header


class Npz:
    """An open .npz file; failures raise an InputError with its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise InputError(f"{path}: a single array, not an npz file of several")
        try:
            self._zip = zipfile.ZipFile(path)
        except DAMAGE as error:
            raise self._damaged(error) from error
        self.names = [n.removesuffix(".npy") for n in self._zip.namelist()]

    def __enter__(self) -> Npz:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def read(self, name: str, *, most: int) -> npt.NDArray[np.generic]:
        """Read an array by name; an error if it has more than `most` values."""
        try:
            info = self._zip.getinfo(f"{name}.npy")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{name} has a compression that numpy does not use")
            with self._zip.open(info) as file:
                header = _checked(read_header(file), info.file_size)  # type: ignore[arg-type]
                if math.prod(header.shape) > most:
                    raise ValueError(f"{name} claims {math.prod(header.shape)} values, at most {most} can be needed")
                blob = file.read()  # zipfile compares the checksum at the end
            return np.frombuffer(blob, header.dtype).reshape(header.shape, order="F" if header.fortran else "C")
        except DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self.path}: not a complete npz file ({one_line(error)})")
