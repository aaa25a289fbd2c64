"""What a reproduction gives: numbers for machines, figures for the eye, a table for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchcast.evaluation.comparison import geometric_mean as geometric_mean
from benchcast.messages import number
from benchcast.messages import plain as plain
from benchcast.reports.drawing import write_chart
from benchcast.study.atomic import write_text
from lab.reproduce.png import shrink

Figure = dict[str, Any]  # a Vega-Lite specification
cell = number  # a cell of a table is a number or a dash


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
    """One figure as PNG, SVG and PDF, or in the kinds given; returns the files."""
    written = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
    for path in written:
        write_chart(figure, path)
        if path.suffix == ".png":
            path.write_bytes(shrink(path.read_bytes()))
    return written
