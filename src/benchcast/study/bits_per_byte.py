"""Bits per byte of each model on each source: of whole texts, and of answers only.

Both the losses and the bytes of a span are counted, so nothing depends on the tokenizer. An answer ends before the
white space at the end of its text; a token that reaches over an end of the answer shares its loss by bytes.
Axes: N tokens, S texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchcast.errors import library
from benchcast.losses.regroup import regroup
from benchcast.messages import as_names, counted
from benchcast.records import Floats, Ints, TextSet, TokenLosses, arrow_table, pandas_frame
from benchcast.steps import steps
from benchcast.study.study import Study, StudyLike

ALL = "all"  # name of the row over all sources
LEAST_COVERED = 0.5  # share of a source's bytes that must have losses for a value of whole texts
TYPES = {"model": "string", "source": "string", "whole_text": "float64", "answer": "float64"}


@dataclass(frozen=True, slots=True)
class BitsPerByte:
    """Bits per byte of one model on one source; NaN where it has no losses."""

    model: str
    source: str  # "all" for the texts of all sources
    whole_text: float  # NaN also if fewer than half of the bytes have losses
    answer: float


@dataclass(frozen=True, slots=True, repr=False)
class BitsPerByteTable:
    """Bits per byte of models × sources."""

    rows: tuple[BitsPerByte, ...]

    def __repr__(self) -> str:
        models, sources = ({getattr(r, name) for r in self.rows} - {ALL} for name in ("model", "source"))
        return f"<BitsPerByteTable of {counted(len(models), 'model')} on {counted(len(sources), 'source')}>"

    def to_arrow(self) -> Any:
        """A pyarrow.Table with the columns model, source, whole_text and answer; what is not known is null."""
        return arrow_table([asdict(row) for row in self.rows], TYPES)

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame."""
        return pandas_frame(self.to_arrow())

    def plot(self) -> Any:
        """An altair chart: a point for each model and kind, a panel for each source. It shows itself in notebooks."""
        alt = library("altair", "report")
        kinds = ("whole_text", "answer")
        values = [
            {"model": r.model, "source": r.source, "kind": kind.replace("_", " "), "bits": getattr(r, kind)}
            for r in self.rows
            for kind in kinds
            if math.isfinite(getattr(r, kind))
        ]

        def place(row: BitsPerByte) -> tuple[bool, float]:
            return row.source != ALL, row.answer if math.isnan(row.whole_text) else row.whole_text

        order = [row.model for row in sorted(self.rows, key=place)]
        base = alt.Chart(alt.Data(values=values)).mark_point(filled=True, size=50)
        points = base.encode(
            x=alt.X("bits:Q", title="bits per byte", scale=alt.Scale(zero=False)),
            y=alt.Y("model:N", title=None, sort=list(dict.fromkeys(order))),
            color=alt.Color("kind:N", title=None),
            tooltip=["model:N", "source:N", "kind:N", alt.Tooltip("bits:Q", format=".4f")],
        )
        return points.properties(width=200).facet(alt.Facet("source:N", title=None), columns=3)


def bits_per_byte(study: StudyLike, models: Sequence[str] = ()) -> BitsPerByteTable:
    """Bits per byte of models on the texts of a study, for each source and for all texts.

    Parameters
    ----------
    study : an opened study or its folder
    models : names of models with losses; by default all

    Returns
    -------
    a table (`.rows`, `.to_arrow()`, `.to_pandas()`, `.plot()`) of the loss in bits over the bytes that have a loss

    >>> import benchcast as bc
    >>> table = bc.bits_per_byte(bc.datasets.load_zoo(), ["ash-50M@36.0M"])
    >>> row = table.rows[-1]
    >>> row.source, round(row.whole_text, 2), round(row.answer, 2)
    ('all', 0.39, 0.29)
    """
    opened = Study.of(study)
    texts = opened.texts
    texts.require_texts("bits per byte")
    names = as_names(models) or opened.models_with_losses()
    return BitsPerByteTable(
        tuple(row for name in steps(names, "models read") for row in _of_model(opened.losses(name), texts))
    )


def answer_edges(texts: TextSet) -> tuple[Ints, Ints]:
    """Start and end of each text's answer on the axis of all bytes; both at its end if it has no answer (S)."""
    lengths = np.diff(texts.starts)
    starts = [n if t.answer_start is None else t.answer_start for t, n in zip(texts, lengths, strict=True)]
    ends = [len(t.text.rstrip().encode()) for t in texts]
    return texts.starts[:-1] + np.array(starts, np.int64), texts.starts[:-1] + np.maximum(starts, ends)


def _of_model(losses: TokenLosses, texts: TextSet) -> list[BitsPerByte]:
    sources = texts.sources
    source_of_text = np.array([sources.index(t.source) for t in texts])
    source = np.repeat(source_of_text, losses.counts)
    known = np.isfinite(losses.nats)
    whole = _sums(source[known], losses.nats[known], np.diff(losses.edges)[known], len(sources))
    whole[0, whole[1] < LEAST_COVERED * _total(source_of_text, np.diff(texts.starts), len(sources))] = np.nan
    begin, end = answer_edges(texts)
    edges = np.union1d(texts.starts, np.concatenate([begin, end]))
    pieces = regroup(losses.nats, losses.edges, edges, counts=losses.counts)
    at = np.searchsorted(edges, begin)
    spans = np.flatnonzero((end > begin) & np.isfinite(pieces[np.minimum(at, len(pieces) - 1)]))
    answers = _sums(source_of_text[spans], pieces[at[spans]], (end - begin)[spans], len(sources))
    return [
        BitsPerByte(losses.model, name, *(float(x) for x in pair))
        for name, *pair in zip((*sources, ALL), _bits(whole), _bits(answers), strict=True)
    ]


def _sums(source: Ints, nats: Floats, widths: Ints, count: int) -> Floats:
    """Nats and bytes of each source (2 × sources)."""
    return np.stack([_total(source, nats, count), _total(source, widths, count)])


def _total(source: Ints, values: Any, count: int) -> Floats:
    return np.bincount(source, values, count).astype(np.float64)


def _bits(sums: Floats) -> Floats:
    """Bits per byte of each source, and of all sources that have a value."""
    nats, widths = sums
    valid = np.isfinite(nats) & (widths > 0)
    both = np.array([[*nats, nats[valid].sum()], [*widths, widths[valid].sum()]])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(both[1] > 0, both[0] / both[1] / math.log(2), np.nan)
