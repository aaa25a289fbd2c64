"""Signals as columns of a loss file: hit as bool, log2 rank as uint8, entropy and margin as float16."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchcast.records import Floats

RANK_STEPS = 8  # stored steps in one doubling of the rank: uint8 then reaches rank 2^31
COLUMN_TYPES = {"rank": pa.uint8(), "entropy": pa.float16(), "hit": pa.bool_(), "margin": pa.float16()}


def to_column(name: str, values: Floats) -> pa.Array:
    """The values of a signal as stored in Parquet; NaN becomes null."""
    known = np.isfinite(values)
    stored = np.where(known, values, 0.0)
    if name == "rank":
        stored = np.round(RANK_STEPS * stored)
    kind = COLUMN_TYPES[name]
    return pa.array(stored.astype(kind.to_pandas_dtype()), mask=~known)


def from_column(name: str, values: Floats) -> Floats:
    """The inverse of `to_column`, from numbers with NaN for null."""
    return values / RANK_STEPS if name == "rank" else values
