"""One function a figure: rows in, Vega-Lite figure out, in one style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from benchcast.reports.drawing import COLOURS, ROLES, Figure, Rows, colour, finish, log_axis, rows_where

PANEL = {"width": 200, "height": 150}
LAW = "#555555"  # colour of laws and reference lines
COLUMNS = 3


def panels(names: Sequence[str], panel: Callable[[str], Any], *, columns: int = COLUMNS) -> Any:
    """One panel for each name, side by side, with one legend."""
    charts = [panel(name).properties(title=name, **PANEL) for name in names]
    return alt.concat(*charts, columns=columns, spacing=14).resolve_scale(color="shared", shape="shared")


def y_axis(field: str = "accuracy", title: str | None = None, **scale: Any) -> Any:
    """A linear axis that need not start at 0."""
    return alt.Y(
        f"{field}:Q", title=title or field, scale=alt.Scale(**{"zero": False, **scale}), axis=alt.Axis(tickCount=5)
    )


def _names(rows: Rows, field: str) -> list[str]:
    return sorted({str(r[field]) for r in rows})


def _across(points: Rows) -> Any:
    """The axis of capability: on a log scale where all are positive, since half-trained models lie far out."""
    title = "capability (left is better)"
    if all(p["capability"] > 0 for p in points):
        axis = alt.Axis(format="~g", tickCount=4)
        return alt.X("capability:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=6), axis=axis)
    return _x("capability", title)


def _x(field: str, title: str, **scale: Any) -> Any:
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(**{"zero": False, **scale}), axis=alt.Axis(tickCount=5))


def error_figure(rows: Rows, tasks: Sequence[str], methods: Sequence[str]) -> Figure:
    """Test error of every method, one panel a task; the rule is the noise floor (Table 1)."""

    def panel(task: str) -> Any:
        base = alt.Chart(rows_where(rows, task=task))
        y = alt.Y("method:N", sort=list(methods), title=None)
        x = log_axis(alt.X, "mse:Q", "test MSE")
        dots = base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x, y=y, color=alt.Color("method:N", legend=None, scale=alt.Scale(domain=list(methods), range=COLOURS))
        )
        floor = base.mark_rule(color=LAW, strokeDash=[3, 3]).encode(x=alt.X("min(noise):Q"))
        return alt.layer(dots, floor)

    return finish(panels(tasks, panel))


def compute_figure(rows: Rows, tasks: Sequence[str]) -> Figure:
    """Compute against accuracy; checkpoints of one run are joined (figure 1)."""
    families = _names(rows, "family")

    def panel(task: str) -> Any:
        base = alt.Chart(rows_where(rows, task=task)).encode(
            x=log_axis(alt.X, "flops:Q", "training FLOPs"),
            y=y_axis(),
            color=colour("family", families, "mixture"),
        )
        runs = base.mark_line(strokeWidth=1, opacity=0.45).encode(detail="params:N")
        return alt.layer(runs, base.mark_point(filled=True, size=36, opacity=0.9))

    return finish(panels(tasks, panel))


def loss_figure(rows: Rows, tasks: Sequence[str]) -> Figure:
    """Loss on the task's own texts against accuracy (figure 2)."""
    families = _names(rows, "family")

    def panel(task: str) -> Any:
        return (
            alt.Chart(rows_where(rows, task=task))
            .mark_point(filled=True, size=26, opacity=0.8)
            .encode(
                x=log_axis(alt.X, "loss:Q", "nats per character of the task's texts"),
                y=y_axis(),
                color=colour("family", families),
            )
        )

    return finish(panels(tasks, panel))


def _law_layers(points: Any, curve: Any, dots: Any, across: Any) -> Any:
    line = alt.Chart(curve).mark_line(color=LAW, strokeWidth=1.5).encode(x=across, y=y_axis())
    return alt.layer(line, dots(alt.Chart(points)))


def law_panels(points: Rows, curves: Rows, names: Sequence[str], *, by: str = "task", columns: int = COLUMNS) -> Figure:
    """Capability against accuracy with the law, families by colour, roles by shape (figures 4 and 6)."""
    families = _names(points, "family")
    across = _across(points)
    shapes = alt.Shape("role:N", title="role", scale=alt.Scale(domain=list(ROLES), range=list(ROLES.values())))

    def dots(base: Any) -> Any:
        return base.mark_point(filled=True, size=30, opacity=0.8).encode(
            x=across, y=y_axis(), color=colour("family", families), shape=shapes
        )

    def panel(name: str) -> Any:
        where = {by: name}
        return _law_layers(rows_where(points, **where), rows_where(curves, **where), dots, across)

    return finish(panels(names, panel, columns=columns))


SERIES = ("other families", "early checkpoints", "validation series", "test series")


def series_figure(points: Rows, curves: Rows, tasks: Sequence[str]) -> Figure:
    """Checkpoints of two runs on the law of all others (figure 5)."""
    across = _across(points)
    palette = alt.Scale(domain=list(SERIES), range=["#cccccc", "#E69F00", "#0072B2", "#D55E00"])

    def dots(base: Any) -> Any:
        return base.mark_point(filled=True, opacity=0.85).encode(
            x=across,
            y=y_axis(),
            color=alt.Color("part:N", title=None, scale=palette),
            size=alt.condition("datum.part == 'other families'", alt.value(12), alt.value(38)),
        )

    def panel(task: str) -> Any:
        return _law_layers(rows_where(points, task=task), rows_where(curves, task=task), dots, across)

    return finish(panels(tasks, panel))


def steps_figure(rows: Rows, tasks: Sequence[str]) -> Figure:
    """Error of training, validation and test models by step (figure 6)."""
    roles = list(ROLES)

    def panel(task: str) -> Any:
        return (
            alt.Chart(rows_where(rows, task=task))
            .mark_line(strokeWidth=1.6)
            .encode(
                x=alt.X("step:Q", title="step", axis=alt.Axis(tickCount=5)),
                y=log_axis(alt.Y, "mse:Q", "MSE"),
                color=colour("role", roles, "models"),
            )
        )

    return finish(panels(tasks, panel))


def forecast_panels(rows: Rows, methods: Sequence[str]) -> Figure:
    """Forecast against observed accuracy of the held-out models, one panel a method (figure 7)."""
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    unit = alt.Scale(domain=[0, 1])
    ideal = [{"observed": v, "forecast": v} for v in (0, 1)]

    def panel(method: str) -> Any:
        x, y = alt.X("observed:Q", scale=unit), alt.Y("forecast:Q", scale=unit)
        line = alt.Chart(alt.Data(values=ideal)).mark_line(color=LAW, strokeDash=[3, 3], strokeWidth=1)
        dots = alt.Chart(rows_where(rows, method=method)).mark_point(filled=True, size=16, opacity=0.7)
        return alt.layer(line.encode(x=x, y=y), dots.encode(x=x, y=y, color=colour("task", tasks)))

    charts = [panel(m).properties(title=m, width=150, height=150) for m in methods]
    return finish(alt.concat(*charts, columns=4, spacing=12))


def variants_figure(rows: Rows) -> Figure:
    """Gain over all-token of every variant, one row each; groups share a colour (ablation)."""
    names = [r["variant"] for r in rows]
    groups = list(dict.fromkeys(r["group"] for r in rows))
    y = alt.Y("variant:N", sort=names, title=None, axis=alt.Axis(labelLimit=260))
    base = alt.Chart(alt.Data(values=list(rows)))
    x = alt.X(
        "gain:Q", title="times less test MSE than all-token (geometric mean over tasks)", scale=alt.Scale(zero=True)
    )
    bars = base.mark_bar(height=10).encode(x=x, y=y, color=colour("group", groups, "what varies"))
    label = base.mark_text(align="left", dx=4, fontSize=10).encode(x=x, y=y, text=alt.Text("gain:Q", format=".2f"))
    return finish(alt.layer(bars, label).properties(width=420, height=17 * len(rows)))


def strip_figure(tokens: Rows, title: str) -> Figure:
    """Tokens of one text in their order, the background by weight (figure 9)."""
    wide = max(float(t["x2"]) for t in tokens)
    high = max(float(t["y2"]) for t in tokens)
    base = alt.Chart(alt.Data(values=list(tokens)))
    x, y = (
        alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, wide], nice=False)),
        alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[high, 0], nice=False)),
    )
    shade = alt.Color(
        "weight:Q",
        title="weight, of the largest",
        scale=alt.Scale(domain=[0, 1], range=["#ffffff", "#009E73"], interpolate="rgb"),
        legend=alt.Legend(orient="bottom", direction="horizontal", gradientLength=200),
    )
    boxes = base.mark_rect(stroke="#dddddd", strokeWidth=0.5).encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=shade)
    words = base.mark_text(
        align="left", baseline="middle", font="DejaVu Sans Mono, Menlo, Consolas, monospace", fontSize=12
    ).encode(x=alt.X("left:Q", axis=None), y=alt.Y("middle:Q", axis=None), text="shown:N")
    chart = alt.layer(boxes, words).properties(width=7.3 * wide, height=22 * high, title=title)
    return finish(chart)
