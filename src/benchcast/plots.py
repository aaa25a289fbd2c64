"""One function a figure: result in, Vega-Lite figure out; the same figure serves browser and paper."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from benchcast.errors import InputError
from benchcast.forward.extrapolate import Extrapolation, TaskAhead
from benchcast.storage.files import write_text, write_whole

# Okabe and Ito's colours, told apart by colour-blind readers, then lighter kin of them.
COLOURS = [
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8C6D1F",
    "#6A51A3",
    "#B2182B",
    "#4D4D4D",
]
ROLES = {"train": "circle", "validation": "square", "test": "diamond"}


def ahead_figure(found: Extrapolation) -> dict[str, Any]:
    """Scores of a family's models by compute, and the way to the target with its interval, one panel a task."""
    panels = [_ahead_panel(found, said).properties(title=said.task, width=240, height=160) for said in found.tasks]
    return dict(alt.concat(*panels, columns=3).properties(title=f"{found.family}: the way to the target").to_dict())


def _ahead_panel(found: Extrapolation, said: TaskAhead) -> Any:
    known, order = found.known, [_size(x) for x in np.unique(found.known.params)]
    dots = [
        {"flops": float(c), "accuracy": float(a), "params": _size(n)}
        for n, c, a in zip(known.params, known.flops, found.observed[said.task], strict=True)
        if np.isfinite(a) and np.isfinite(c)
    ]
    way, end = (
        [
            {"flops": float(c), "accuracy": float(a), "low": _or_none(lo), "high": _or_none(hi)}
            for c, a, lo, hi in zip(at.flops, part.accuracy, part.low, part.high, strict=True)
        ]
        for at, part in ((found.way, said.path), (found.target, said.forecast))
    )
    across = alt.X("flops:Q", title="training FLOPs", scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=4))
    up = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color("params:N", scale=alt.Scale(domain=order, range=COLOURS), sort=order)
    ways, ends = (alt.Chart(alt.Data(values=rows)) for rows in (way, end))
    return alt.layer(
        ways.mark_area(opacity=0.15, color="#888").encode(x=across, y="low:Q", y2="high:Q"),
        ways.mark_line(color="#888").encode(x=across, y=up),
        alt.Chart(alt.Data(values=dots)).mark_point(filled=True, size=40).encode(x=across, y=up, color=colour),
        ends.mark_rule(color="#000").encode(x=across, y="low:Q", y2="high:Q"),
        ends.mark_point(shape="diamond", size=90, filled=True, color="#000").encode(x=across, y=up),
    )


def _size(params: float) -> str:
    return f"{params / 1e6:.3g}M" if np.isfinite(params) else "unknown"


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def write_chart(figure: dict[str, Any], path: Path) -> None:
    """One figure as .html (self-contained), .png, .svg or .pdf."""
    import vl_convert

    kind = path.suffix.lower()
    if kind == ".html":
        write_text(path, vl_convert.vegalite_to_html(figure, bundle=True))
    elif kind == ".svg":
        write_text(path, vl_convert.vegalite_to_svg(figure))
    elif kind == ".png":
        write_whole(path, partial(_write_bytes, blob=vl_convert.vegalite_to_png(figure, scale=2)))
    elif kind == ".pdf":
        write_whole(path, partial(_write_bytes, blob=vl_convert.vegalite_to_pdf(figure)))
    else:
        raise InputError(f"{path}: figures are written as .html, .png, .svg or .pdf")


def _write_bytes(path: Path, blob: bytes) -> None:
    path.write_bytes(blob)
