"""Hidden states of the scorer for every reference token, whole or reduced to fewer dimensions.

Axes: N tokens, D dimensions of the scorer, K kept dimensions.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchcast.backends.base import Backend
from benchcast.backends.windows import Window, batches, plan
from benchcast.collect import Encoded, Report, alone, encode_texts
from benchcast.errors import InputError
from benchcast.files import file_name
from benchcast.records import Floats
from benchcast.store import Study

Rows = npt.NDArray[np.floating]
BLOCK_BYTES = 64 << 20
ROUNDS = 6  # of the subspace iteration; hidden states have few large directions, so few rounds do
SPARE = 16  # extra directions that make the wanted ones exact sooner
DTYPES = ("float16", "float32")
LARGEST_HALF = 65504.0


class Scorer(Backend, Protocol):
    """A backend that also shows its hidden states."""

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        """Last hidden state at every id (tokens × dimensions)."""
        ...


def make_features(
    study: Study,
    scorer: Scorer,
    *,
    name: str = "",
    dims: int = 0,
    dtype: str = "float16",
    report: Report | None = None,
) -> dict[str, Any]:
    """Store the scorer's last hidden states of all texts; returns what is said about them."""
    if dtype not in DTYPES:
        raise InputError(f"--dtype {dtype}; features are stored as {' or '.join(DTYPES)}")
    encoded = encode_texts(scorer, study.texts)
    about: dict[str, Any] = {
        "tokenizer": scorer.vocabulary.tokenizer.name,
        "bos": scorer.vocabulary.bos,
        "layer": "last",
        **{f"scorer_{key}" if key == "dtype" else key: value for key, value in scorer.about().items()},
    }
    label = name or scorer.model
    folder = study.root / "collecting" / f"{file_name(label)}%states"  # `%s` is in no escaped name
    with alone(folder, f"the states of {label!r}"):
        folder.mkdir(exist_ok=True)
        kind = "float32" if dims else dtype
        values = hidden_states(scorer, encoded, folder / "states.npy", dtype=kind, report=report)
        about["dims"] = values.shape[1]
        if dims:
            values, kept = reduce(values, dims, seed=study.seed)
            about["reduced_to"], about["kept_variance"] = dims, round(kept, 6)
        study.add_features(label, narrow(values, dtype), encoded.edges(study.texts), about=about)
        shutil.rmtree(folder)
    return {**about, "tokens": len(values)}


def hidden_states(
    scorer: Scorer, encoded: Encoded, path: Path, *, dtype: str = "float32", report: Report | None = None
) -> Rows:
    """States of all tokens, texts end to end (N × D), memory-mapped from `path`.

    The state of a token is the one at its own position, when the model has just read it.
    """
    prefix, context = scorer.vocabulary.prefix, scorer.context
    starts = np.concatenate([[0], np.cumsum(encoded.counts)])
    windows = [w for i, ids in enumerate(encoded.ids) for w in plan(i, ids, prefix, context)]
    if not windows:
        raise InputError(f"scorer {scorer.model!r}: all texts are empty, there is nothing to make features of")
    states: Rows | None = None
    for batch in batches(windows, size=scorer.batch_size, tokens=scorer.batch_tokens):
        for window, found in zip(batch, scorer.hidden([w.ids for w in batch]), strict=True):
            if states is None:
                shape = (int(starts[-1]), found.shape[1])
                states = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
            _place(states, window, found, int(starts[window.text]), scorer.model)
        if report:
            report(sum(w.first == 0 for w in batch), sum(len(w.ids) - w.skip for w in batch))
    assert states is not None
    return states


def _place(states: Rows, window: Window, found: npt.NDArray[np.float32], start: int, model: str) -> None:
    if len(found) != len(window.ids) or not np.isfinite(found).all():
        raise InputError(f"scorer {model!r}: hidden states are missing or not finite; try dtype=float32")
    part = narrow(found[window.skip :], str(states.dtype))
    states[start + window.first : start + window.first + len(part)] = part


def narrow(values: Rows, dtype: str) -> Rows:
    """Values in the wanted precision; float16 ends at 65504, and what lies beyond is an error."""
    if str(values.dtype) == dtype:
        return values
    if dtype == "float16" and values.size and float(np.abs(values).max()) > LARGEST_HALF:
        raise InputError("hidden states are too large for float16; use --dtype float32, or --dims to reduce them")
    return values.astype(dtype)


def _blocks(values: Rows) -> list[Rows]:
    step = max(1, BLOCK_BYTES // (4 * values.shape[1]))
    return [values[at : at + step] for at in range(0, len(values), step)]


def reduce(values: Rows, dims: int, *, seed: int = 0) -> tuple[npt.NDArray[np.float32], float]:
    """Scores on the first `dims` principal components (N × K), and the share of variance they keep.

    Randomised subspace iteration: a few passes over blocks, and never a D × D matrix.
    """
    n, width = values.shape
    if not 1 <= dims <= min(width, n):
        raise InputError(f"--dims {dims}; from 1 to {min(width, n)} is possible ({n} tokens × {width} dimensions)")
    mean = sum(b.sum(axis=0, dtype=np.float64) for b in _blocks(values)) / n
    total = float(sum(((b - mean) ** 2).sum(dtype=np.float64) for b in _blocks(values)))
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((width, min(width, dims + SPARE))))[0]
    for _ in range(ROUNDS):
        basis = np.linalg.qr(_covariance_times(values, mean, basis))[0]
    small = basis.T @ _covariance_times(values, mean, basis)
    strength, turn = np.linalg.eigh((small + small.T) / 2)
    axes = basis @ turn[:, ::-1][:, :dims]
    scores = np.concatenate([((b - mean) @ axes).astype(np.float32) for b in _blocks(values)])
    return scores, min(1.0, float(strength[::-1][:dims].sum()) / total) if total > 0 else 1.0


def _covariance_times(values: Rows, mean: Floats, basis: Floats) -> Floats:
    out = np.zeros_like(basis)
    for block in _blocks(values):
        centred = block - mean
        out += centred.T @ (centred @ basis)
    return out
