"""Hidden states of the scorer for every reference token, whole or reduced to fewer dimensions.

Axes: N tokens, D dimensions of the scorer, K kept dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchcast.backends.base import Backend, in_halves
from benchcast.backends.stated import without_metadata
from benchcast.backends.windows import Window
from benchcast.collect import EncodedTexts, Report, encode_texts, portions
from benchcast.collect.portions import BackendInfo, Portion, PortionResult, walk
from benchcast.collect.shards import PerToken, ShardStore, exclusive
from benchcast.errors import InputError
from benchcast.records import Floats
from benchcast.storage.files import file_name
from benchcast.store import Study

BLOCK_BYTES = 64 << 20
ROUNDS = 6  # of the subspace iteration; hidden states have few large directions, so few rounds do
SPARE = 16  # extra directions that make the wanted ones exact sooner
DTYPES = ("float16", "float32")
LARGEST_HALF = 65504.0

# portions and the precision of states → who made them, and batches of states
RemoteStates = Callable[[Sequence[Portion], str], Iterator[tuple[str, PortionResult]]]


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
    remote: RemoteStates | None = None,
) -> dict[str, Any]:
    """Store the scorer's last hidden states of all texts; returns what is said about them.

    With `remote` the work is done elsewhere, and this process does not load the scorer.
    """
    if dtype not in DTYPES:
        raise InputError(f"--dtype {dtype}; features are stored as {' or '.join(DTYPES)}")
    encoded = encode_texts(scorer.vocabulary.tokenizer, study.texts)
    encoded.insist(f"scorer {scorer.model!r}", "every text needs reference tokens: take another scorer")
    if not encoded.counts.any():
        raise InputError(f"scorer {scorer.model!r}: all texts are empty, there is nothing to make features of")
    label, kind = name or scorer.model, "float32" if dims else dtype
    folder = study.root / "collecting" / f"{file_name(label)}%states"  # `%s` is in no escaped name
    settings = {"asked": scorer.asked, "texts": study.texts.digest, "ids": encoded.digest, "dtype": kind}
    with exclusive(folder, f"the states of {label!r}"):
        shard_store = ShardStore(folder, settings, encoded.counts)
        if remote is None:
            shard_store.keep_only(BackendInfo.of(scorer).line)
        if report:
            report(shard_store.resumed, 0)
        work = [p for p in portions(label, study.texts, encoded, shard_store.done) if p.left]
        for made, part in (remote or partial(_here, scorer))(work, kind):
            shard_store.take(made, part.rows)
            if report:
                report(len(part.rows), part.tokens)
        values = _lay_out(shard_store, encoded, folder / "states.npy")
        about = _about(scorer, BackendInfo.parse(shard_store.made)) | {"dims": values.shape[1]}
        if dims:
            values, kept = reduce(values, dims, seed=study.seed)
            about |= {"reduced_to": dims, "kept_variance": round(kept, 6)}
        study.add_features(label, narrow(values, dtype), encoded.edges(study.texts), about=about)
        shard_store.clear()
    return {**about, "tokens": len(values)}


def _about(scorer: Scorer, made: BackendInfo) -> dict[str, Any]:
    vocabulary = scorer.vocabulary
    own = {f"scorer_{key}" if key == "dtype" else key: value for key, value in without_metadata(made.about).items()}
    return {"tokenizer": vocabulary.tokenizer.name, "bos": vocabulary.bos, "layer": "last", **own}


def _here(scorer: Scorer, work: Sequence[Portion], dtype: str) -> Iterator[tuple[str, PortionResult]]:
    """The states of all portions, one after the other."""
    made = BackendInfo.of(scorer).line
    for portion in work:
        for part in states(scorer, portion, dtype):
            yield made, part


def states(scorer: Scorer, portion: Portion, dtype: str) -> Iterator[PortionResult]:
    """Hidden states of the portion's texts, batch by batch.

    The state of a token is the one at its own position, when the model has just read it.
    """

    def answer(batch: Sequence[Window]) -> list[PerToken]:
        found = in_halves(scorer.hidden, [w.ids for w in batch])
        for window, rows in zip(batch, found, strict=True):
            if len(rows) != len(window.ids) or not np.isfinite(rows).all():
                raise InputError(f"scorer {scorer.model!r}: hidden states are missing or not finite; try dtype=float32")
        return [narrow(rows, dtype) for rows in found]

    return walk(scorer, portion, answer)


def _lay_out(shard_store: ShardStore, encoded: EncodedTexts, path: Path) -> PerToken:
    """States of all tokens, texts end to end (N × D), memory-mapped from `path`."""
    starts = np.concatenate([[0], np.cumsum(encoded.counts)])
    values: PerToken | None = None
    for index, rows in shard_store.results():
        if values is None:
            shape = (int(starts[-1]), rows.shape[1])
            values = np.lib.format.open_memmap(path, mode="w+", dtype=rows.dtype, shape=shape)
        values[starts[index] : starts[index + 1]] = rows
    assert values is not None
    return values


def narrow(values: PerToken, dtype: str) -> PerToken:
    """Values in the wanted precision; float16 ends at 65504, and what lies beyond is an error."""
    if str(values.dtype) == dtype:
        return values
    if dtype == "float16" and values.size and float(np.abs(values).max()) > LARGEST_HALF:
        raise InputError("hidden states are too large for float16; use --dtype float32, or --dims to reduce them")
    return values.astype(dtype)


def _blocks(values: PerToken) -> list[PerToken]:
    step = max(1, BLOCK_BYTES // (4 * values.shape[1]))
    return [values[at : at + step] for at in range(0, len(values), step)]


def reduce(values: PerToken, dims: int, *, seed: int = 0) -> tuple[npt.NDArray[np.float32], float]:
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


def _covariance_times(values: PerToken, mean: Floats, basis: Floats) -> Floats:
    out = np.zeros_like(basis)
    for block in _blocks(values):
        centred = block - mean
        out += centred.T @ (centred @ basis)
    return out
