"""Vega-Lite figures, one function for each; the same figure is used in the browser and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from benchcast.choices import level_text
from benchcast.comparison import geometric_mean
from benchcast.errors import InputError
from benchcast.extrapolation.extrapolate import Extrapolation, TaskExtrapolation
from benchcast.extras import LazyLibrary, library
from benchcast.formatting import plain
from benchcast.page import render
from benchcast.selection.budgets import WAYS
from benchcast.selection.smaller import TextSelection
from benchcast.storage.files import write_text, write_whole

alt = LazyLibrary("altair", "report")
# The colour-blind safe palette of Okabe and Ito, extended.
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
# Room for the legend: a browser's font may be wider than the one that an SVG file was laid out with.
PADDING = {"left": 8, "top": 8, "bottom": 8, "right": 32}
ROLES = {"train": "circle", "validation": "square", "test": "diamond"}
Rows = Sequence[dict[str, Any]]
Figure = dict[str, Any]  # a Vega-Lite specification
WHOLE = "datum.value % 1 ? '' : datum.label"  # no label between whole numbers
ALL_TEXTS = "all texts"
POINT_KINDS = ("scored model", "target")  # kinds of points in the figure of an extrapolation


def finish(chart: Any) -> Figure:
    """Apply the common style and convert to plain JSON."""
    styled = (
        chart.configure(background="white", font="Helvetica, Arial, sans-serif", padding=PADDING)
        .configure_axis(labelFontSize=10, titleFontSize=11, gridColor="#eeeeee", titleFontWeight="normal")
        .configure_legend(labelFontSize=11, titleFontSize=11, symbolOpacity=1, symbolStrokeWidth=1.5)
        .configure_title(fontSize=12, anchor="start")
        .configure_view(stroke="#cccccc")
    )
    return dict(styled.to_dict())


def colour(field: str, domain: Sequence[str], title: str | None = None) -> Any:
    """Colour encoding of a field, with colours in the order of `domain`."""
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(domain))]
    return alt.Color(f"{field}:N", title=title or field, scale=alt.Scale(domain=list(domain), range=colours))


def rows_where(rows: Rows, **where: Any) -> Any:
    """The rows that have the given values, as a figure's data."""
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
        axis=alt.Axis(format="d", tickMinStep=1, tickCount=7, labelExpr=WHOLE),
    )


def budget_figure(rows: Rows, full: Rows, ways: Sequence[str]) -> Figure:
    """Error against the number of texts.

    One panel for each split, one line for each way to select texts, and a rule for all texts.

    Parameters
    ----------
    rows : with the keys split, texts, way and mse
    full : errors with all texts, with the keys split and mse
    ways : the ways, in the order of the legend

    Returns
    -------
    a Vega-Lite specification
    """
    splits = list(dict.fromkeys(r["split"] for r in rows))
    error = "squared error"
    ways = [*ways, ALL_TEXTS]

    def panel(split: str) -> Any:
        base = alt.Chart(rows_where(rows, split=split))
        x, y = count_axis("texts", "number of texts"), log_axis(alt.Y, "mse:Q", error)
        tint = colour("way", ways, "texts")
        dots = base.mark_point(filled=True, size=24, opacity=0.5).encode(x=x, y=y, color=tint)
        mean = base.mark_line(strokeWidth=1.8).encode(x=x, y=alt.Y("mean(mse):Q", title=error), color=tint)
        full_set = alt.Chart(rows_where([{**r, "way": ALL_TEXTS} for r in full], split=split))
        rule = full_set.mark_rule(strokeDash=[3, 3]).encode(y="mse:Q", color=tint)
        return alt.layer(rule, dots, mean).properties(width=300, height=200, title=f"models held out by {split}")

    chart = alt.concat(*map(panel, splits), columns=2, spacing=14).resolve_scale(color="shared")
    subtitle = "geometric mean over tasks, on held-out models; a dot is one draw, a line their mean"
    title = alt.TitleParams("Forecast error against the number of texts", subtitle=subtitle)
    return finish(chart.properties(title=title))


def targets_figure(rows: Rows) -> Figure:
    """Forecasts with intervals beside the observed scores of all tasks, one panel for each model.

    Parameters
    ----------
    rows : with the keys model, task, forecast, observed, low and high

    Returns
    -------
    a Vega-Lite specification
    """
    models, tasks = (list(dict.fromkeys(r[k] for r in rows)) for k in ("model", "task"))
    points = [{**r, "accuracy": r[kind], "kind": kind} for r in rows for kind in ("forecast", "observed")]
    across = alt.X("accuracy:Q", title="accuracy", axis=alt.Axis(format=".0%"), scale=alt.Scale(zero=False))
    up = alt.Y("task:N", title=None, sort=tasks)
    shape = alt.Shape("kind:N", title=None, scale=alt.Scale(domain=["forecast", "observed"], range=["circle", "cross"]))

    def panel(model: str) -> Any:
        bars = alt.Chart(rows_where(rows, model=model)).mark_rule(strokeWidth=2, opacity=0.5)
        dots = alt.Chart(rows_where(points, model=model)).mark_point(filled=True, size=50)
        tint = colour("kind", ["forecast", "observed"]).title(None)
        layer = dots.encode(x=across, y=up, color=tint, shape=shape)
        return alt.layer(bars.encode(x="low:Q", x2="high:Q", y=up), layer).properties(
            width=300, height=22 * len(tasks), title=model
        )

    chart = alt.concat(*map(panel, models), columns=2, spacing=20).resolve_scale(color="shared", shape="shared")
    title = alt.TitleParams("Forecasts of held-out models", subtitle=f"line: {level_text()} interval of the forecast")
    return finish(chart.properties(title=title))


def extrapolation_figure(result: Extrapolation) -> Figure:
    """Scores of a family's models by compute, and forecasts with intervals up to the target; one panel per task.

    Parameters
    ----------
    result : from `extrapolate`

    Returns
    -------
    a Vega-Lite specification
    """
    panels = [
        _extrapolation_panel(result, task).properties(title=wrap(task.task, 34), width=240, height=160)
        for task in result.tasks
    ]
    params, tokens, flops = (float(x[0]) for x in (result.target.params, result.target.tokens, result.target.flops))
    has_size = np.isfinite([params, tokens]).all()
    title = alt.TitleParams(
        f"{result.family}: forecast at "
        + (f"{_count(params)} parameters, {_count(tokens)} tokens" if has_size else f"{flops:.3g} FLOPs"),
        subtitle=f"line and band: forecast and {level_text()} interval, from the largest known model to the target",
        anchor="start",
    )
    chart = alt.concat(*panels, columns=3).resolve_scale(color="shared").properties(title=title)
    return dict(chart.configure(padding=PADDING).to_dict())


def _extrapolation_panel(result: Extrapolation, task: TaskExtrapolation) -> Any:
    known, order = result.known, [_count(x) for x in np.unique(result.known.params)]
    dots = [
        {"flops": c, "accuracy": a, "params": _count(n), "kind": POINT_KINDS[0]}
        for n, c, a in zip(known.params, known.flops, result.observed[task.task], strict=True)
        if np.isfinite(a) and np.isfinite(c)
    ]
    way, end = (
        [
            {"flops": c, "accuracy": a, "low": low, "high": high, "kind": POINT_KINDS[1]}
            for c, a, low, high in zip(at.flops, part.accuracy, part.low, part.high, strict=True)
        ]
        for at, part in ((result.way, task.path), (result.target, task.forecast))
    )
    powers = alt.Axis(tickCount=4, format="~e", labelExpr="replace(datum.label, '+', '')")
    across = alt.X("flops:Q", title="training compute (FLOPs)", scale=alt.Scale(type="log"), axis=powers)
    up = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%"))
    colour = alt.Color("params:N", title="parameters", scale=alt.Scale(domain=order, range=COLOURS), sort=order)
    shape = alt.Shape("kind:N", title="point", scale=alt.Scale(domain=list(POINT_KINDS), range=["circle", "diamond"]))
    ways, ends = (alt.Chart(alt.Data(values=rows)) for rows in (way, end))
    points = alt.Chart(alt.Data(values=dots)).mark_point(filled=True, size=40)
    return alt.layer(
        ways.mark_area(opacity=0.15, color="#888", clip=True).encode(x=across, y="low:Q", y2="high:Q"),
        ways.mark_line(color="#888", clip=True).encode(x=across, y=up),
        points.encode(x=across, y=up, color=colour, shape=shape),
        ends.mark_rule(color="#000", clip=True).encode(x=across, y="low:Q", y2="high:Q"),
        ends.mark_point(size=90, filled=True, color="#000").encode(x=across, y=up, shape=shape),
    )


def _count(value: float) -> str:
    """A number of parameters or tokens with a unit: 1.5e8 is 150M."""
    if not np.isfinite(value):
        return "unknown"
    size, letter = next((u for u in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")) if value >= u[0]), (1, ""))
    return f"{value / size:.3g}{letter}"


def save_figure(result: Extrapolation | TextSelection, path: str | Path) -> Path:
    """Write the figure of a result: a family's scores and forecasts by compute, or the error by number of texts.

    Parameters
    ----------
    result : from `benchcast.extrapolate`, or from `benchcast.select` with `check=True`
    path : file to write; its name ends in .html, .png, .svg or .pdf

    Returns
    -------
    the path of the file

    >>> import benchcast as bc
    >>> later = bc.extrapolate("study", "ash", "params=200M,tokens=4B", tasks=["code"], method="label-token")
    >>> bc.save_figure(later, "ash.svg").name
    'ash.svg'
    """
    if isinstance(result, Extrapolation):
        return write_chart(extrapolation_figure(result), Path(path))
    if result.cost is None:
        raise InputError("the cost of the selection was not measured; select with check=True")
    rows = [row for row in result.cost.to_dict()["costs"] if row["mse"]]
    full = [{"split": result.cost.split, "mse": geometric_mean([*result.cost.full.values()])}] if rows else []
    return write_chart(budget_figure(rows, full, WAYS), Path(path))


def write_chart(figure: Figure, path: Path) -> Path:
    """Write a figure as .html (self-contained), .png, .svg or .pdf, decided by the suffix of `path`; returns `path`."""
    vl_convert = library("vl_convert", "report")
    figure = plain(figure)
    kind = path.suffix.lower()
    if kind == ".html":
        write_text(path, render("figure.html", figure, scripts=("figure.js",), figures=True, title=_title(figure)))
    elif kind == ".svg":
        write_text(path, vl_convert.vegalite_to_svg(figure))
    elif kind == ".png":
        write_whole(path, partial(_write_bytes, blob=vl_convert.vegalite_to_png(figure, scale=2)))
    elif kind == ".pdf":
        write_whole(path, partial(_write_bytes, blob=vl_convert.vegalite_to_pdf(figure)))
    else:
        raise InputError(f"{path}: figures are written as .html, .png, .svg or .pdf")
    return path


def _title(figure: dict[str, Any]) -> str:
    title = figure.get("title", "benchcast")
    return str(title["text"] if isinstance(title, dict) else title)


def _write_bytes(path: Path, blob: bytes) -> None:
    path.write_bytes(blob)
