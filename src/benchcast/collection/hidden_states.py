"""Compute the scorer's hidden states for every reference token, optionally reduced to fewer dimensions.

Axes: N tokens, D dimensions of the scorer, K kept dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchcast.collection.backends.base import Backend, PerToken, in_halves
from benchcast.collection.backends.loaded import without_metadata
from benchcast.collection.jobs import ModelSpec, Report, Work, opened, portion_jobs
from benchcast.collection.shards import ShardStore, exclusive
from benchcast.collection.windows import BackendInfo, EncodedTexts, Group, PortionResult, encode_texts, walk
from benchcast.devices import subspace_iteration
from benchcast.errors import InputError
from benchcast.executors.local import Executor, Local
from benchcast.records import Floats
from benchcast.study.atomic import file_name
from benchcast.study.study import Study, StudyLike

BLOCK_BYTES = 64 << 20
ROUNDS = 6  # subspace iterations; the spectrum of hidden states decays fast, so few are enough
SPARE = 16  # oversampling: extra directions that speed up convergence
DTYPES = ("float16", "float32")
LARGEST_HALF = 65504.0


@dataclass(frozen=True, slots=True)
class FeatureOptions:
    """How `make_features` stores hidden states: all dimensions or principal components, and the type of the numbers.

    >>> import benchcast as bc
    >>> study = bc.create_study("new", "texts.jsonl").study
    >>> options = bc.FeatureOptions(dims=4, dtype="float32")
    >>> bc.make_features(study, bc.open_scorer("checkpoint"), options=options)["reduced_to"]
    4
    """

    dims: int = 0  # number of principal components to keep; 0 keeps all dimensions
    dtype: str = "float16"  # or "float32"


DEFAULT = FeatureOptions()


class Scorer(Backend, Protocol):
    """A backend that also returns its hidden states."""

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        """Last hidden state at every id (tokens × dimensions)."""
        ...


def make_features(
    study: StudyLike,
    model: Scorer | ModelSpec,
    *,
    name: str = "",
    options: FeatureOptions = DEFAULT,
    report: Report | None = None,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Store the scorer's last hidden states of all texts as the study's features.

    Parameters
    ----------
    study : an opened study or its folder, whose texts are read
    model : the scorer, a frozen language model, from `open_scorer`; only workers load a ModelSpec
    name : name of the features; default: the scorer's name
    options : number of dimensions and dtype
    report : called with the number of texts and tokens just finished
    executor : computes the states; default: this process

    Returns
    -------
    the provenance stored with the features, and their number of tokens

    >>> import benchcast as bc
    >>> study = bc.create_study("new", "texts.jsonl").study
    >>> bc.make_features(study, bc.open_scorer("checkpoint"), name="my-scorer")["dims"]
    16
    """
    study, dims, dtype = Study.of(study), options.dims, options.dtype
    report = report or (lambda texts, tokens: None)
    if dtype not in DTYPES:
        raise InputError(f"--dtype {dtype}; features are stored as {' or '.join(DTYPES)}")
    scorer: Scorer = model.open() if isinstance(model, ModelSpec) else model
    encoded = encode_texts(scorer.vocabulary.tokenizer, study.texts)
    encoded.require_all(f"scorer {scorer.model!r}", "every text needs reference tokens: take another scorer")
    if not encoded.counts.any():
        raise InputError(f"scorer {scorer.model!r}: all texts are empty, there is nothing to make features of")
    label, states_dtype = name or scorer.model, "float32" if dims else dtype
    folder = study.root / "collecting" / f"{file_name(label)}%states"  # `%s` is in no escaped name
    settings = {"asked": scorer.asked, "texts": study.texts.digest, "ids": encoded.digest, "dtype": states_dtype}
    with exclusive(folder, f"the states of {label!r}"):
        shard_store = ShardStore(folder, settings, encoded.counts)
        if not isinstance(model, ModelSpec):
            shard_store.keep_only(BackendInfo.of(scorer).line)
        report(shard_store.resumed, 0)
        jobs = portion_jobs(model, [p for p in encoded.portions(label, shard_store.done) if p.left])
        for _, (backend_line, part) in (executor or Local()).run(state_portion, jobs, states_dtype):
            shard_store.take(backend_line, part.rows)
            report(len(part.rows), part.tokens)
        values = _lay_out(shard_store, encoded, folder / "states.npy")
        stated = without_metadata(BackendInfo.parse(shard_store.backend_line).about)
        about: dict[str, Any] = {
            **scorer.vocabulary.about(),
            "layer": "last",
            **{"scorer_dtype" if key == "dtype" else key: value for key, value in stated.items()},
            "dims": values.shape[1],
        }
        if dims:
            values, kept = reduce(values, dims, seed=study.seed)
            about |= {"reduced_to": dims, "kept_variance": round(kept, 6)}
        study.add_features(label, narrow(values, dtype), encoded.edges, about=about)
        shard_store.clear()
    return {**about, "tokens": len(values)}


def state_portion(dtype: str, work: Work) -> Iterator[tuple[str, PortionResult]]:
    """Run one job of `make_features`: yield the backend's description with the hidden states of each batch.

    A token's state is the one at its own position.
    """
    model, portion = work
    scorer: Scorer = opened(model)
    backend_line = BackendInfo.of(scorer).line

    def answer(batch: Sequence[Group]) -> list[PerToken]:
        windows = [window for group in batch for window in group]
        hidden_states = in_halves(scorer.hidden, [w.ids for w in windows])
        for window, rows in zip(windows, hidden_states, strict=True):
            if len(rows) != len(window.ids) or not np.isfinite(rows).all():
                raise InputError(f"scorer {scorer.model!r}: hidden states are missing or not finite; try dtype=float32")
        return [narrow(rows, dtype) for rows in hidden_states]

    for part in walk(scorer, portion, answer):
        yield backend_line, part


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
    """Cast values to `dtype`; InputError if one exceeds 65504, the largest float16."""
    if str(values.dtype) == dtype:
        return values
    if dtype == "float16" and values.size and float(np.abs(values).max()) > LARGEST_HALF:
        raise InputError("hidden states are too large for float16; use --dtype float32, or --dims to reduce them")
    return values.astype(dtype)


def _blocks(values: PerToken) -> list[PerToken]:
    step = max(1, BLOCK_BYTES // (4 * values.shape[1]))
    return [values[at : at + step] for at in range(0, len(values), step)]


def reduce(values: PerToken, dims: int, *, seed: int = 0) -> tuple[npt.NDArray[np.float32], float]:
    """Project values onto their first principal components by randomised subspace iteration.

    It needs a few passes over blocks of rows and no D × D matrix.

    Parameters
    ----------
    values : array of N × D floats
    dims : number K of components, from 1 to min(N, D)
    seed : of the random start

    Returns
    -------
    scores : array of N × K floats
    kept : fraction of the variance that the components keep, 0 to 1
    """
    n, width = values.shape
    if not 1 <= dims <= min(width, n):
        raise InputError(f"--dims {dims}; from 1 to {min(width, n)} is possible ({n} tokens × {width} dimensions)")
    mean = sum(b.sum(axis=0, dtype=np.float64) for b in _blocks(values)) / n
    total = float(sum(((b - mean) ** 2).sum(dtype=np.float64) for b in _blocks(values)))
    rng = np.random.default_rng(seed)
    start = rng.standard_normal((width, min(width, dims + SPARE)))
    basis = subspace_iteration(partial(_covariance_times, values, mean), start, rounds=ROUNDS)
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
