"""Features of the reference tokens: an npz made elsewhere, and the study's own folder of a scorer."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import benchcast
from benchcast.errors import InputError, StudyError, one_line
from benchcast.formatting import need_file
from benchcast.records import Ints, TextSet
from benchcast.storage.arrays import DAMAGE, Npz, map_array
from benchcast.storage.folders import Open, from_folder
from benchcast.storage.hashes import hash_holds, hashed
from benchcast.storage.loss_rows import most_tokens

ARRAYS = ("features.npy", "edges.npy")
MOST_FEATURE = 1e9  # hidden states are far smaller
MOST_DIMENSIONS = 1 << 17
SPARE = 1000  # entries more than there are texts are read, to say how many they are


def read_folder(folder: Path, texts: TextSet) -> tuple[npt.NDArray[np.floating], Ints]:
    """A scorer's features, memory-mapped, and their edges."""
    try:
        meta, values, edges = from_folder(folder, _read_all)
        if meta["texts"] != texts.digest:
            raise StudyError(
                f"{folder}: made for texts {meta['texts']}, the study's texts are {texts.digest}; make them again"
            )
        _check(values, edges, texts)
    except DAMAGE as error:
        raise _damaged(folder, error) from error
    return values, edges.astype(np.int64)


def _read_all(opened: Open) -> tuple[dict[str, Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The files of a folder, compared with the hashes that lie beside them."""
    meta = _meta(opened)
    for name in ARRAYS if "files" in meta else ():  # an older folder has no hashes
        with opened(name) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != meta["files"][name]:
                raise ValueError(f"{name} is not what its hash says")
    with opened("features.npy") as file:
        values = map_array(file)
    with opened("edges.npy") as file:
        return meta, values, np.array(map_array(file))


def _check(values: npt.NDArray[Any], edges: npt.NDArray[Any], texts: TextSet) -> None:
    """Refuse arrays that no features of these texts can be."""
    if values.ndim != 2 or values.dtype.kind != "f" or edges.ndim != 1 or edges.dtype.kind not in "iu":
        raise ValueError(f"features {values.shape} of {values.dtype}, edges {edges.shape} of {edges.dtype}")
    if len(edges) != len(values) + 1 or not values.shape[1]:
        raise ValueError(f"{len(values)} rows of features and {len(edges)} edges")
    whole = edges.astype(np.int64)
    if (np.diff(whole) < 0).any() or not np.isin(texts.starts, whole).all() or whole[-1] != texts.starts[-1]:
        raise ValueError("edges do not follow the texts")


def fill_folder(folder: Path, values: npt.NDArray[np.floating], edges: Ints, meta: dict[str, Any]) -> None:
    """Write a scorer's features, one row per token, into an empty folder; `meta` names scorer and texts."""
    np.save(folder / "features.npy", values)
    np.save(folder / "edges.npy", edges)
    files = {name: _file_digest(folder / name) for name in ARRAYS}
    made = {"shape": values.shape, "dtype": str(values.dtype), "benchcast": benchcast.__version__, "files": files}
    (folder / "meta.json").write_text(json.dumps(hashed({**made, **meta}), indent=1), encoding="utf-8")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scorer_of(folder: Path) -> str:
    """Name of the scorer that made a folder of features."""
    try:
        return str(from_folder(folder, _meta)["scorer"])
    except DAMAGE as error:
        raise _damaged(folder, error) from error


def _meta(opened: Open) -> dict[str, Any]:
    with opened("meta.json") as file:
        meta = json.loads(file.read().decode())
    if not (isinstance(meta["scorer"], str) and isinstance(meta["texts"], str) and hash_holds(meta)):
        raise ValueError("meta.json is not what its hash says, or was edited")
    return dict(meta)


def _damaged(folder: Path, error: Exception) -> StudyError:
    return StudyError(f"{folder}: damaged; make or import these features again ({one_line(error)})")


def read_features(path: Path, texts: TextSet) -> tuple[npt.NDArray[np.floating], Ints]:
    """An npz with `features`, `bounds` and `counts` → (features, edges on the axis of all bytes)."""
    need_file(path)
    features, bounds, counts = _read_npz(path, texts)
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


def _read_npz(path: Path, texts: TextSet) -> list[npt.NDArray[Any]]:
    """The arrays of an npz file, none larger than the texts can need."""
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
