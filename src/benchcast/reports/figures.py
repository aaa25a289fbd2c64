"""The page's figures as Vega-Lite specifications, one function for each; the page fills in their named data.

Colours are CSS variables of the page (`--c0` …, `--ink`), so that one figure serves light, dark and print.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchcast.choices import level_text
from benchcast.plots import COLOURS, ROLES, alt

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
SHARE = {"format": ".0%", "tickCount": 5, "grid": True}  # axis of accuracies
ACROSS = "{across}"  # the page replaces it by the axis title
Figure = dict[str, Any]


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
    """Fill and outline of points; a hollow point has only an outline."""
    return {
        "fill": family_colour(families, alt.Fill),
        "stroke": family_colour(families, alt.Stroke),
        "fillOpacity": _hollow(),
    }


def named(name: str) -> Any:
    """A chart of data that the page fills in."""
    return alt.Chart(alt.NamedData(name))


def _hollow() -> Any:
    """Opacity: filled, or hollow for families whose colour is used a second time."""
    return alt.FillOpacity("hollow:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.85, 0]))


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


def error_axis(title: str, field: str = "mse:Q") -> Any:
    """A log axis of squared errors."""
    axis = alt.Axis(format="~e", tickCount=4, labelExpr="replace(datum.label, '+', '')", grid=False)
    return alt.Y(field, title=title, scale=alt.Scale(type="log", nice=False, padding=8), axis=axis)


def steps_figure(*, height: int) -> Figure:
    """Error of training, validation and test models by step, with a rule at the slider's step (figure 6)."""
    roles = list(ROLES)
    legend = {"title": "models", "legend": alt.Legend(orient="top")}
    colours = alt.Scale(domain=roles, range=["var(--c0)", "var(--c4)", "var(--c1)"])
    colour = alt.Color("role:N", scale=colours, **legend)
    dash = alt.StrokeDash("role:N", scale=alt.Scale(domain=roles, range=[[1, 0], [5, 3], [2, 2]]), **legend)
    x = alt.X("step:Q", title="step of Algorithm 2", axis=alt.Axis(tickCount=6))
    lines = (
        named("errors")
        .mark_line(strokeWidth=2)
        .encode(x=x, y=error_axis("squared error"), color=colour, strokeDash=dash)
    )
    now = named("now").mark_rule(color="var(--ink)", strokeWidth=1.2).encode(x=x)
    return page_style(alt.layer(lines, now).properties(width="container", height=height))


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
