"""Vega-Lite figures: those of the page, those of other results, and `save_figure`.

A figure of the page gets its colours and data from the page; `finish` styles the others, for a browser and for paper.
Sections of the page with one figure are in `charts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from benchcast.choices import level_text
from benchcast.errors import InputError, LazyLibrary, library
from benchcast.evaluation.comparison import geometric_mean
from benchcast.evaluation.select import TextSelection
from benchcast.evaluation.selection_cost import WAYS
from benchcast.messages import plain
from benchcast.reports.page import render
from benchcast.scaling.extrapolate import Extrapolation, TaskExtrapolation
from benchcast.study.atomic import write_text, write_whole

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
# The same hues, lighter for contrast on a dark page.
DARK_COLOURS = [
    "#4FA3DB",
    "#F07F3C",
    "#2DBE93",
    "#E29CC3",
    "#F0B52E",
    "#8CCDF5",
    "#C7A85A",
    "#A892DC",
    "#EE6B73",
    "#B5B5B5",
]
# Room for the legend: a browser's font may be wider than the one that an SVG file was laid out with.
PADDING = {"left": 8, "top": 8, "bottom": 8, "right": 32}
ROLES = {"train": "circle", "validation": "square", "test": "diamond"}
Rows = Sequence[dict[str, Any]]
Figure = dict[str, Any]  # a Vega-Lite specification
WHOLE = "datum.value % 1 ? '' : datum.label"  # no label between whole numbers
NO_PLUS = "replace(datum.label, '+', '')"  # 1e14 instead of 1e+14
SHARE = {"format": ".0%", "tickCount": 5, "grid": True}  # axis of accuracies
ACROSS = "{across}"  # the page replaces it by the axis title
ALL_TEXTS = "all texts"  # as a way to select texts
POINT_KINDS = ("scored model", "target")  # kinds of points in the figure of an extrapolation


def page_figures(families: Sequence[str]) -> dict[str, Figure]:
    """The figures that report.html places and figures.js fills, by name; for others see `charts`."""
    return {
        "card": forecast_figure(families, height=140, dots=34),
        "multiple": forecast_figure(families, height=150, dots=22),
        "law": law_figure(families, log=False, height=380),
        "law-log": law_figure(families, log=True, height=380),
        "step": law_figure(families, log=False, height=300, band=False),
        "step-log": law_figure(families, log=True, height=300, band=False),
        "errors": steps_figure(height=300),
    }


def forecast_figure(families: Sequence[str], *, height: int, dots: int) -> Figure:
    """Forecast against observed score with intervals (figure 7); the line is a perfect forecast."""
    ends = alt.Scale(domain=[{"expr": "bottom"}, {"expr": "top"}], nice=False, zero=False)
    x = alt.X("observed:Q", title="observed", scale=ends, axis=SHARE)
    y = alt.Y("forecast:Q", title="forecast", scale=ends, axis=SHARE)
    ideal = named("ideal").mark_line(color="var(--dim)", strokeDash=[4, 3], strokeWidth=1, clip=True).encode(x=x, y=y)
    base = named("points")
    bars = base.mark_rule(opacity=0.28, strokeWidth=1.4, clip=True).encode(
        x=x, y=alt.Y("low:Q"), y2="high:Q", color=family_colour(families, alt.Color)
    )
    points = base.mark_point(size=dots, strokeWidth=1.2).encode(x=x, y=y, **_point_colours(families), tooltip=_tips())
    chart = alt.layer(ideal, bars, points).properties(width="container", height=height)
    return page_style(chart.add_params(alt.param("bottom", value=0), alt.param("top", value=1)))


def law_figure(families: Sequence[str], *, log: bool, height: int, band: bool = True) -> Figure:
    """Capability against accuracy with the fitted law and its band (figures 4 and 6)."""
    scale = alt.Scale(type="log", nice=False, padding=8) if log else alt.Scale(zero=False, nice=False, padding=8)
    axis = alt.Axis(format="~g", tickCount=6)
    x = alt.X("capability:Q", title=ACROSS, scale=scale, axis=axis)
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False, nice=True, clamp=True), axis=SHARE)
    curve = named("curve")
    line = curve.mark_line(color="var(--ink)", strokeWidth=1.6, clip=True).encode(x=x, y=y)
    dots = (
        named("points")
        .mark_point(strokeWidth=1.2)
        .encode(
            x=x,
            y=y,
            **_point_colours(families),
            shape=alt.Shape("role:N", legend=None, scale=alt.Scale(domain=list(ROLES), range=list(ROLES.values()))),
            size=alt.Size("params:Q", legend=None, scale=alt.Scale(type="log", range=[28, 190])),
            tooltip=_tips(
                alt.Tooltip("size:N", title="parameters"),
                alt.Tooltip("capability:Q", title="capability", format=".4g"),
            ),
        )
    )
    layers = [line, dots]
    if band:
        area = curve.mark_area(opacity=0.13, color="var(--ink)", clip=True).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
        layers = [area, *layers]
    chart = alt.layer(*layers).properties(width="container", height=height)
    return page_style(chart)


def steps_figure(*, height: int) -> Figure:
    """Error of training, validation and test models by step, with a rule at the slider's step (figure 6)."""
    roles = list(ROLES)
    legend = {"title": "models", "legend": alt.Legend(orient="top")}
    colours = alt.Scale(domain=roles, range=["var(--c0)", "var(--c4)", "var(--c1)"])
    tint = alt.Color("role:N", scale=colours, **legend)
    dash = alt.StrokeDash("role:N", scale=alt.Scale(domain=roles, range=[[1, 0], [5, 3], [2, 2]]), **legend)
    x = alt.X("step:Q", title="step of Algorithm 2", axis=alt.Axis(tickCount=6))
    lines = (
        named("errors").mark_line(strokeWidth=2).encode(x=x, y=error_axis("squared error"), color=tint, strokeDash=dash)
    )
    now = named("now").mark_rule(color="var(--ink)", strokeWidth=1.2).encode(x=x)
    return page_style(alt.layer(lines, now).properties(width="container", height=height))


def page_style(chart: Any) -> Figure:
    """Apply the page's style and convert to plain JSON."""
    lines = dict.fromkeys(("gridColor", "domainColor", "tickColor"), "var(--line)")
    text = {"labelColor": "var(--dim)", "titleColor": "var(--ink)", "labelFontSize": 11, "titleFontSize": 12}
    styled = (
        chart.configure(background="transparent", font="system-ui, sans-serif", padding=4)
        .configure_axis(titleFontWeight="normal", titlePadding=6, **lines, **text)
        .configure_legend(symbolOpacity=1, titleFontWeight="normal", **text)
        .configure_title(fontSize=13, anchor="start", color="var(--ink)")
        .configure_view(stroke="var(--line)")
    )
    return dict(styled.to_dict())


def family_colour(families: Sequence[str], channel: Any) -> Any:
    """Colour encoding of families without a legend, which the page draws; colours repeat after ten families."""
    names = [f"var(--c{i % len(COLOURS)})" for i in range(len(families))]
    return channel("family:N", legend=None, scale=alt.Scale(domain=list(families), range=names))


def _point_colours(families: Sequence[str]) -> dict[str, Any]:
    """Fill and outline of points, which are hollow for families whose colour is used a second time."""
    opacity = alt.Scale(domain=[0, 1], range=[0.85, 0])
    return {
        "fill": family_colour(families, alt.Fill),
        "stroke": family_colour(families, alt.Stroke),
        "fillOpacity": alt.FillOpacity("hollow:Q", legend=None, scale=opacity),
    }


def _tips(*extra: Any) -> list[Any]:
    return [
        alt.Tooltip("model:N"),
        alt.Tooltip("family:N"),
        alt.Tooltip("role:N", title="used for"),
        *extra,
        alt.Tooltip("observed:Q", title="observed", format=".1%"),
        alt.Tooltip("forecast:Q", title="forecast", format=".1%"),
        alt.Tooltip("interval:N", title=f"{level_text()} interval"),
    ]


def named(name: str) -> Any:
    """A chart of data that the page fills in."""
    return alt.Chart(alt.NamedData(name))


def error_axis(title: str, field: str = "mse:Q") -> Any:
    """A log axis of squared errors."""
    return log_axis(alt.Y, field, title, padding=8)


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
    powers = alt.Axis(tickCount=4, format="~e", labelExpr=NO_PLUS)
    across = alt.X("flops:Q", title="training compute (FLOPs)", scale=alt.Scale(type="log"), axis=powers)
    up = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%"))
    tint = alt.Color("params:N", title="parameters", scale=alt.Scale(domain=order, range=COLOURS), sort=order)
    shape = alt.Shape("kind:N", title="point", scale=alt.Scale(domain=list(POINT_KINDS), range=["circle", "diamond"]))
    ways, ends = (alt.Chart(alt.Data(values=rows)) for rows in (way, end))
    points = alt.Chart(alt.Data(values=dots)).mark_point(filled=True, size=40)
    return alt.layer(
        ways.mark_area(opacity=0.15, color="#888", clip=True).encode(x=across, y="low:Q", y2="high:Q"),
        ways.mark_line(color="#888", clip=True).encode(x=across, y=up),
        points.encode(x=across, y=up, color=tint, shape=shape),
        ends.mark_rule(color="#000", clip=True).encode(x=across, y="low:Q", y2="high:Q"),
        ends.mark_point(size=90, filled=True, color="#000").encode(x=across, y=up, shape=shape),
    )


def _count(value: float) -> str:
    """A number of parameters or tokens with a unit: 1.5e8 is 150M."""
    if not np.isfinite(value):
        return "unknown"
    size, letter = next((u for u in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")) if value >= u[0]), (1, ""))
    return f"{value / size:.3g}{letter}"


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


def log_axis(kind: Any, field: str, title: str, *, padding: int = 6) -> Any:
    """A log axis with short labels: 1e-3, 2e14; plain numbers for losses."""
    axis = alt.Axis(format="~g" if field == "loss:Q" else "~e", tickCount=4, labelExpr=NO_PLUS, grid=False)
    return kind(field, title=title, scale=alt.Scale(type="log", nice=False, padding=padding), axis=axis)


def count_axis(field: str, title: str) -> Any:
    """An axis of whole numbers."""
    return alt.X(
        f"{field}:Q",
        title=title,
        scale=alt.Scale(zero=False, nice=False, padding=8),
        axis=alt.Axis(format="d", tickMinStep=1, tickCount=7, labelExpr=WHOLE),
    )


def write_chart(figure: Figure, path: Path) -> Path:
    """Write a figure as .html (self-contained), .png, .svg or .pdf, decided by the suffix of `path`; returns `path`."""
    vl_convert = library("vl_convert", "report")
    figure = plain(figure)
    kind = path.suffix.lower()
    if kind == ".html":
        title = figure.get("title", "benchcast")
        title = str(title["text"] if isinstance(title, dict) else title)
        write_text(path, render("figure.html", figure, scripts=("figure.js",), figures=True, title=title))
    elif kind == ".svg":
        write_text(path, vl_convert.vegalite_to_svg(figure))
    elif kind == ".png":
        write_whole(path, partial(_write_bytes, blob=vl_convert.vegalite_to_png(figure, scale=2)))
    elif kind == ".pdf":
        write_whole(path, partial(_write_bytes, blob=vl_convert.vegalite_to_pdf(figure)))
    else:
        raise InputError(f"{path}: figures are written as .html, .png, .svg or .pdf")
    return path


def _write_bytes(path: Path, blob: bytes) -> None:
    path.write_bytes(blob)
