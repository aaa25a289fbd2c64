"""Arrays in .npy and .npz files: what a file claims is compared with its size before anything is read."""

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

# what numpy, zipfile and zlib raise on files that are not whole, or not what they claim to be
DAMAGE = (
    *(ValueError, TypeError, LookupError, OSError, EOFError, OverflowError, MemoryError, RecursionError),
    *(NotImplementedError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error, struct.error),
)
DTYPE_KINDS = "fiubU"  # of numbers, truth values and text; never objects


class Header(NamedTuple):
    """What a .npy file says of its array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]
    offset: int  # of the first value, in bytes

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO) -> Header:
    """The header at the start of a .npy file; ValueError where it is none."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"array format {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.kind not in DTYPE_KINDS or any(n < 0 for n in shape):
        raise ValueError(f"an array of {dtype} and shape {shape}")
    return Header(shape, fortran, dtype, file.tell())


def read_array(file: BinaryIO, size: int) -> npt.NDArray[np.generic]:
    """The array of a .npy file of `size` bytes."""
    header = _checked(read_header(file), size)
    return _shaped(np.frombuffer(file.read(header.size), header.dtype), header)


def map_array(file: BinaryIO) -> npt.NDArray[np.generic]:
    """The same without reading it: mapped from the disk."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    header = _checked(read_header(file), size)
    order = "F" if header.fortran else "C"
    return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload]


def _checked(header: Header, size: int) -> Header:
    if header.offset + header.size != size:
        raise ValueError(f"an array of {header.size} bytes in a file that has {max(0, size - header.offset)} for it")
    return header


def _shaped(values: npt.NDArray[np.generic], header: Header) -> npt.NDArray[np.generic]:
    return values.reshape(header.shape, order="F" if header.fortran else "C")


class Npz:
    """An .npz file; failures are an InputError that names it."""

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
        """An array of at most `most` values."""
        try:
            info = self._zip.getinfo(f"{name}.npy")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{name} is compressed in another way than numpy does")
            with self._zip.open(info) as file:
                header = _checked(read_header(file), info.file_size)  # type: ignore[arg-type]
                if math.prod(header.shape) > most:
                    raise ValueError(f"{name} claims {math.prod(header.shape)} values, at most {most} can be needed")
                blob = file.read()  # to the end: its checksum is compared there
            return _shaped(np.frombuffer(blob, header.dtype), header)
        except DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self.path}: not a whole npz file ({one_line(error)})")
