"""Hidden states of a scorer: folders of a study, and .npz files from elsewhere.

The size that an array claims is compared with the size of its file before values are read.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

import benchcast
from benchcast.errors import InputError, StudyError, one_line
from benchcast.records import Ints, TextSet
from benchcast.study.atomic import Stamp, from_folder, hash_holds, hashed, stamp
from benchcast.study.loss_files import most_tokens
from benchcast.study.reading import need_file

# Exceptions that numpy, zipfile and zlib raise on damaged files.
DAMAGE = (
    *(ValueError, TypeError, LookupError, OSError, EOFError, OverflowError, MemoryError, RecursionError),
    *(NotImplementedError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error, struct.error),
)
DTYPE_KINDS = "fiubU"  # numbers, booleans and text; never objects
ARRAYS = ("features.npy", "edges.npy")
MOST_FEATURE = 1e9  # hidden states are far smaller
MOST_DIMENSIONS = 1 << 17
SPARE = 1000  # most excess entries that are read, so that the message can state their number


def read_folder(folder: Path, texts: TextSet) -> tuple[npt.NDArray[np.floating], Ints]:
    """Read a scorer's features from a study.

    Parameters
    ----------
    folder : folder of the features
    texts : texts of the study; features of other texts raise an error

    Returns
    -------
    The features, memory-mapped, one row per token of the scorer, and the edges of these tokens in bytes.
    """
    try:
        version = from_folder(folder, lambda present: tuple(stamp(present / name) for name in ("meta.json", *ARRAYS)))
        meta, values, edges = _read_whole(folder, version)
        if meta["texts"] != texts.digest:
            raise StudyError(
                f"{folder}: made for texts {meta['texts']}, the study's texts are {texts.digest}; compute them again"
            )
        _check(values, edges, texts)
    except DAMAGE as error:
        raise _damaged(folder, error) from error
    return values, edges.astype(np.int64)


@lru_cache(maxsize=2)
def _read_whole(
    folder: Path, version: tuple[Stamp | None, ...]
) -> tuple[dict[str, Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The files of this version of a folder, after comparing them with the stored hashes; the features are mapped."""

    def read(present: Path) -> tuple[dict[str, Any], npt.NDArray[Any], npt.NDArray[Any]]:
        meta, arrays = _meta(present), []
        for name in ARRAYS:
            with (present / name).open("rb") as file:
                # An older folder has no hashes.
                if "files" in meta and hashlib.file_digest(file, "sha256").hexdigest() != meta["files"][name]:
                    raise ValueError(f"{name} does not match its hash")
                arrays.append(map_array(file))
        return meta, arrays[0], np.array(arrays[1])

    return from_folder(folder, read)


def _check(values: npt.NDArray[Any], edges: npt.NDArray[Any], texts: TextSet) -> None:
    """Raise an error if the shapes, types or edges cannot belong to features of these texts."""
    if values.ndim != 2 or values.dtype.kind != "f" or edges.ndim != 1 or edges.dtype.kind not in "iu":
        raise ValueError(f"features {values.shape} of {values.dtype}, edges {edges.shape} of {edges.dtype}")
    if len(edges) != len(values) + 1 or not values.shape[1]:
        raise ValueError(f"{len(values)} rows of features and {len(edges)} edges")
    edges = edges.astype(np.int64)
    if (np.diff(edges) < 0).any() or not np.isin(texts.starts, edges).all() or edges[-1] != texts.starts[-1]:
        raise ValueError("edges do not match the texts")


def fill_folder(folder: Path, values: npt.NDArray[np.floating], edges: Ints, meta: dict[str, Any]) -> None:
    """Write a scorer's features, one row per token, into an empty folder; `meta` names scorer and texts."""
    files = {}
    for name, array in zip(ARRAYS, (values, edges), strict=True):
        np.save(folder / name, array)
        with (folder / name).open("rb") as file:
            files[name] = hashlib.file_digest(file, "sha256").hexdigest()
    origin = {"shape": values.shape, "dtype": str(values.dtype), "benchcast": benchcast.__version__, "files": files}
    (folder / "meta.json").write_text(json.dumps(hashed({**origin, **meta}), indent=1), encoding="utf-8")


def read_meta(folder: Path) -> dict[str, Any]:
    """What is known of a scorer's features: scorer, texts, shape, type and hashes."""
    try:
        return from_folder(folder, _meta)
    except DAMAGE as error:
        raise _damaged(folder, error) from error


def _meta(folder: Path) -> dict[str, Any]:
    meta = json.loads((folder / "meta.json").read_bytes())
    if not (isinstance(meta["scorer"], str) and isinstance(meta["texts"], str) and hash_holds(meta)):
        raise ValueError("meta.json does not match its hash")
    return dict(meta)


def _damaged(folder: Path, error: Exception) -> StudyError:
    return StudyError(f"{folder}: damaged; compute or import these features again ({one_line(error)})")


def read_features(path: Path, texts: TextSet) -> tuple[npt.NDArray[np.floating], Ints]:
    """Read features from an npz with the arrays `features`, `bounds` and `counts`.

    Parameters
    ----------
    path : the npz file; docs/formats.md describes its arrays
    texts : texts of the study, in the order of the arrays

    Returns
    -------
    The features, one row per token, and the edges of the tokens on the axis of all bytes.
    """
    need_file(path)
    features, bounds, counts = _read_npz(path, texts)
    for name, array, kinds in (("features", features, "fiu"), ("bounds", bounds, "iu"), ("counts", counts, "iu")):
        if array.dtype.kind not in kinds:
            needed = "whole numbers" if kinds == "iu" else "numbers"
            raise InputError(f"{path}: {name} must hold {needed}, found {array.dtype}")
    if counts.min(initial=0) < 0:
        raise InputError(f"{path}: counts are negative ({counts.min()})")
    if counts.shape != (len(texts),):
        raise InputError(f"{path}: counts for {counts.size} texts, the study has {len(texts)}")
    if features.ndim != 2 or len(features) != counts.sum() or bounds.shape != (counts.sum() + len(texts),):
        raise InputError(
            f"{path}: counts sum to {counts.sum()}, so features need {counts.sum()} rows and bounds "
            f"{counts.sum() + len(texts)} entries; found {features.shape} and {bounds.shape}"
        )
    if features.dtype not in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            features = features.astype(np.float32)
    _check_values(path, features)
    return features, _edges(path, bounds.astype(np.int64), counts.astype(np.int64), texts)


def _read_npz(path: Path, texts: TextSet) -> list[npt.NDArray[Any]]:
    """Features, bounds and counts of an npz file; an error if one is larger than the texts permit."""
    names = ("features", "bounds", "counts")
    with Npz(path) as file:
        absent = set(names) - set(file.names)
        if absent:
            raise InputError(f"{path}: no array {', '.join(sorted(absent))}; found {', '.join(file.names)}")
        counts = file.read("counts", most=len(texts) + SPARE)
        tokens = most_tokens(texts)
        bounds = file.read("bounds", most=tokens + len(texts))
        return [file.read("features", most=min(tokens, bounds.size) * MOST_DIMENSIONS), bounds, counts]


def _check_values(path: Path, features: npt.NDArray[np.floating]) -> None:
    if not features.shape[1]:
        raise InputError(f"{path}: features have no columns")
    if not np.isfinite(features).all():
        raise InputError(f"{path}: features contain NaN or infinity")
    if float(np.abs(features).max(initial=0)) > MOST_FEATURE:
        raise InputError(f"{path}: features contain values beyond {MOST_FEATURE:g}; hidden states are far smaller")


def _edges(path: Path, bounds: Ints, counts: Ints, texts: TextSet) -> Ints:
    edges = [np.zeros(1, np.int64)]
    at = 0
    for text, count, start, stop in zip(texts, counts, texts.starts[:-1], texts.starts[1:], strict=True):
        of_text = bounds[at : at + count + 1]
        if of_text[0] != 0 or of_text[-1] != stop - start or (np.diff(of_text) < 0).any():
            raise InputError(
                f"{path}: bounds of text {text.id!r} must increase from 0 to {stop - start}, "
                f"found {of_text[0]}..{of_text[-1]}"
            )
        edges.append(of_text[1:] + start)
        at += count + 1
    return np.concatenate(edges)


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
