"""One function a figure: result in, Vega-Lite figure out; the same figure serves browser and paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from benchcast.cells import plain
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
Rows = Sequence[dict[str, Any]]
Figure = dict[str, Any]  # a Vega-Lite specification
PANEL = {"width": 200, "height": 150}
LAW = "#555555"
COLUMNS = 3


def finish(chart: Any) -> Figure:
    """The common style, and plain JSON."""
    styled = (
        chart.configure(background="white", font="Helvetica, Arial, sans-serif", padding=8)
        .configure_axis(labelFontSize=10, titleFontSize=11, gridColor="#eeeeee", titleFontWeight="normal")
        .configure_legend(labelFontSize=11, titleFontSize=11, symbolOpacity=1, symbolStrokeWidth=1.5)
        .configure_title(fontSize=12, anchor="start")
        .configure_view(stroke="#cccccc")
    )
    return dict(styled.to_dict())


def panels(names: Sequence[str], panel: Callable[[str], Any], *, columns: int = COLUMNS) -> Any:
    """One panel a name, side by side, with one legend."""
    made = [panel(name).properties(title=name, **PANEL) for name in names]
    return alt.concat(*made, columns=columns, spacing=14).resolve_scale(color="shared", shape="shared")


def colour(field: str, domain: Sequence[str], title: str | None = None) -> Any:
    """Colours of named things, in the order given."""
    picked = [COLOURS[i % len(COLOURS)] for i in range(len(domain))]
    return alt.Color(f"{field}:N", title=title or field, scale=alt.Scale(domain=list(domain), range=picked))


def rows_where(rows: Rows, **where: Any) -> Any:
    """The rows with these values, as a figure's data."""
    return alt.Data(values=[r for r in rows if all(r[k] == v for k, v in where.items())])


def log_axis(kind: Any, field: str, title: str) -> Any:
    """A log axis with short labels: 1e-3, 2e14; plain numbers for losses."""
    axis = alt.Axis(
        format="~g" if field == "loss:Q" else "~e", tickCount=4, labelExpr="replace(datum.label, '+', '')", grid=False
    )
    return kind(field, title=title, scale=alt.Scale(type="log", nice=False, padding=6), axis=axis)


def count_axis(field: str, title: str) -> Any:
    """An axis of whole numbers."""
    return alt.X(
        f"{field}:Q",
        title=title,
        scale=alt.Scale(zero=False, nice=False, padding=8),
        axis=alt.Axis(format="d", tickMinStep=1, tickCount=7),
    )


def y_axis(field: str = "accuracy", title: str | None = None, **scale: Any) -> Any:
    """A linear axis that need not start at 0."""
    return alt.Y(
        f"{field}:Q", title=title or field, scale=alt.Scale(**{"zero": False, **scale}), axis=alt.Axis(tickCount=5)
    )


def budget_figure(rows: Rows, full: Rows, ways: Sequence[str]) -> Figure:
    """Error against the number of texts, one panel a split, a line a way to choose; the rule is the full set."""
    splits = list(dict.fromkeys(r["split"] for r in rows))

    def panel(split: str) -> Any:
        base = alt.Chart(rows_where(rows, split=split))
        x, y = count_axis("texts", "texts"), log_axis(alt.Y, "mse:Q", "test MSE")
        dots = base.mark_point(filled=True, size=24, opacity=0.5).encode(x=x, y=y, color=colour("way", ways, "chosen"))
        mean = base.mark_line(strokeWidth=1.8).encode(
            x=x, y=alt.Y("mean(mse):Q", title="test MSE"), color=colour("way", ways, "chosen")
        )
        rule = alt.Chart(rows_where(full, split=split)).mark_rule(color=LAW, strokeDash=[3, 3]).encode(y="mse:Q")
        return alt.layer(rule, dots, mean)

    return finish(panels(splits, panel))


def ahead_figure(found: Extrapolation) -> Figure:
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


def write_chart(figure: Figure, path: Path) -> None:
    """One figure as .html (self-contained), .png, .svg or .pdf."""
    import vl_convert

    figure = plain(figure)
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
