"""Features of the reference tokens: an npz made elsewhere, and the study's own folder of a scorer."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import benchcast
from benchcast.cells import need_file
from benchcast.errors import InputError, StudyError
from benchcast.records import Ints, TextSet
from benchcast.storage.folders import read_files

MOST_FEATURE = 1e9  # hidden states are far smaller


def read_folder(folder: Path, texts: TextSet) -> tuple[npt.NDArray[np.floating], Ints]:
    """A scorer's features, memory-mapped, and their edges."""
    meta = _meta(folder)
    if meta["texts"] != texts.digest:
        raise StudyError(
            f"{folder}: made for texts {meta['texts']}, the study's texts are {texts.digest}; make them again"
        )
    try:
        values = np.load(folder / "features.npy", mmap_mode="r", allow_pickle=False)
        return values, np.load(folder / "edges.npy", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise StudyError(f"{folder}: damaged; make or import these features again") from error


def fill_folder(folder: Path, values: npt.NDArray[np.floating], edges: Ints, meta: dict[str, Any]) -> None:
    """Write a scorer's features, one row per token, into an empty folder; `meta` names scorer and texts."""
    np.save(folder / "features.npy", values)
    np.save(folder / "edges.npy", edges)
    made = {"shape": values.shape, "dtype": str(values.dtype), "benchcast": benchcast.__version__}
    (folder / "meta.json").write_text(json.dumps({**made, **meta}, indent=1), encoding="utf-8")


def scorer_of(folder: Path) -> str:
    """Name of the scorer that made a folder of features."""
    return str(_meta(folder)["scorer"])


def _meta(folder: Path) -> dict[str, Any]:
    try:
        meta = json.loads(read_files(folder, ["meta.json"])[0].decode())
        return {"scorer": meta["scorer"], "texts": meta["texts"]}
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise StudyError(f"{folder}: damaged; make or import these features again") from error


def read_features(path: Path, texts: TextSet) -> tuple[npt.NDArray[np.floating], Ints]:
    """An npz with `features`, `bounds` and `counts` → (features, edges on the axis of all bytes)."""
    need_file(path)
    features, bounds, counts = _read_npz(path, ("features", "bounds", "counts"))
    for name, array, kinds in (("features", features, "fiu"), ("bounds", bounds, "iu"), ("counts", counts, "iu")):
        if array.dtype.kind not in kinds:
            wanted = "whole numbers" if kinds == "iu" else "numbers"
            raise InputError(f"{path}: {name} must hold {wanted}, found {array.dtype}")
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


def _read_npz(path: Path, names: Sequence[str]) -> list[npt.NDArray[Any]]:
    """The named arrays of an npz file."""
    try:
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: a single array, not an npz file with {', '.join(names)}")
            absent = set(names) - set(arrays.files)
            if absent:
                raise InputError(f"{path}: no array {', '.join(sorted(absent))}; found {', '.join(arrays.files)}")
            found = [arrays[name] for name in names]
    except (ValueError, OSError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole npz file") from error
    if not all(isinstance(array, np.ndarray) for array in found):
        raise InputError(f"{path}: not a whole npz file (a member is no array)")
    return found


def _check_values(path: Path, features: npt.NDArray[np.floating]) -> None:
    if not features.shape[1]:
        raise InputError(f"{path}: features have no columns")
    if not np.isfinite(features).all():
        raise InputError(f"{path}: features hold NaN or infinity")
    if float(np.abs(features).max(initial=0)) > MOST_FEATURE:
        raise InputError(f"{path}: features hold numbers beyond {MOST_FEATURE:g}, which no hidden state is")


def _edges(path: Path, bounds: Ints, counts: Ints, texts: TextSet) -> Ints:
    edges = [np.zeros(1, np.int64)]
    at = 0
    for text, count, start, stop in zip(texts, counts, texts.starts[:-1], texts.starts[1:], strict=True):
        own = bounds[at : at + count + 1]
        if own[0] != 0 or own[-1] != stop - start or (np.diff(own) < 0).any():
            raise InputError(
                f"{path}: bounds of text {text.id!r} must rise from 0 to {stop - start}, found {own[0]}..{own[-1]}"
            )
        edges.append(own[1:] + start)
        at += count + 1
    return np.concatenate(edges)
