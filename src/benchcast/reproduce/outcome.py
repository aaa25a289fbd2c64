"""What a reproduction gives: numbers for machines, figures for the eye, a table for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.cells import null, number
from benchcast.evaluate import geometric_mean as geometric_mean
from benchcast.reproduce.png import shrink
from benchcast.storage.files import write_text, write_whole

Figure = dict[str, Any]  # a Vega-Lite specification
cell = number  # a cell of a table is a number or a dash
SCALE = 2.0  # pixels of the PNG per unit of the figure


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text cells; a cell that starts with * is the best of its row."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One table or figure of the paper, made anew."""

    name: str  # also the stem of its files
    numbers: dict[str, Any]  # what the JSON holds
    tables: tuple[Table, ...]
    figures: dict[str, Figure] = field(default_factory=dict)  # by what is added to the stem
    remarks: tuple[str, ...] = ()  # sentences to print below the tables


def plain(value: Any) -> Any:
    """The same in plain JSON values; what cannot be said is null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return null(value)


def grouped(rows: Sequence[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows that agree in the keys, in the order in which they first come."""
    out: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        out.setdefault(tuple(row[key] for key in keys), []).append(row)
    return out


def write_outcome(outcome: Outcome, folder: Path) -> list[Path]:
    """Write NAME.json and every figure as PNG, SVG and PDF; returns what was written."""
    written = [folder / f"{outcome.name}.json"]
    write_text(written[0], json.dumps(plain(outcome.numbers), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    for ending, figure in outcome.figures.items():
        written += write_figure(figure, folder / f"{outcome.name}{ending}")
    return written


def write_figure(figure: Figure, stem: Path, *, kinds: Sequence[str] = ("png", "svg", "pdf")) -> list[Path]:
    """One figure as PNG, SVG and PDF, or in the kinds given; html works without network."""
    import vl_convert

    spec = plain(figure)
    written = []
    for kind in kinds:
        path = stem.with_name(f"{stem.name}.{kind}")
        if kind == "png":
            write_whole(path, partial(_write_bytes, blob=shrink(vl_convert.vegalite_to_png(spec, scale=SCALE))))
        elif kind == "html":
            write_text(path, vl_convert.vegalite_to_html(spec, bundle=True))
        elif kind == "pdf":
            write_whole(path, partial(_write_bytes, blob=vl_convert.vegalite_to_pdf(spec)))
        else:
            write_text(path, vl_convert.vegalite_to_svg(spec))
        written.append(path)
    return written


def _write_bytes(path: Path, blob: bytes) -> None:
    path.write_bytes(blob)
