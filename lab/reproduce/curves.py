"""Figures of what falls or rises with a number: of models, of texts, of sources, of FLOPs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.reports.drawing import Figure, Rows, colour, count_axis, finish, log_axis, rows_where
from lab.reproduce.figures import LAW, panels, y_axis


def count_figure(rows: Rows, names: Sequence[str], *, by: str, count: str, title: str) -> Figure:
    """Test error by how many of something there are: the mean as a line, each draw as a dot (figure 8)."""
    methods = list(dict.fromkeys(r["method"] for r in rows))

    def panel(name: str) -> Any:
        base = alt.Chart(rows_where(rows, **{by: name}))
        x = count_axis(count, title)
        y = log_axis(alt.Y, "mse:Q", "test MSE")
        dots = base.mark_point(filled=True, size=18, opacity=0.35).encode(x=x, y=y, color=colour("method", methods))
        mean = base.mark_line(strokeWidth=1.8).encode(
            x=x, y=alt.Y("mean(mse):Q", title="test MSE"), color=colour("method", methods)
        )
        return alt.layer(dots, mean)

    return finish(panels(names, panel))


def interval_figure(rows: Rows, names: Sequence[str]) -> Figure:
    """Coverage and width of the interval by how many models or families there are; the rule is the nominal level."""
    long = [{**r, "what": what, "value": r[what]} for r in rows for what in ("coverage", "width")]

    def panel(name: str) -> Any:
        base = alt.Chart(rows_where(long, of=name)).encode(
            x=count_axis("count", "how many"),
            y=y_axis("value", "share of models covered, and width", domain=[0, 1]),
            color=colour("what", ("coverage", "width"), f"{level_text()} interval"),
        )
        rule = (
            alt.Chart(alt.Data(values=[{"y": DEFAULT_LEVEL}])).mark_rule(color=LAW, strokeDash=[3, 3]).encode(y="y:Q")
        )
        return alt.layer(rule, base.mark_line(strokeWidth=1.8), base.mark_point(filled=True, size=36, opacity=1))

    return finish(panels(names, panel))


def decision_figure(rows: Rows, signals: Sequence[str]) -> Figure:
    """Share of right decisions by compute of the small checkpoints, with intervals over families."""
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        x=log_axis(alt.X, "flops:Q", "training FLOPs of the small checkpoints"), color=colour("signal", signals, "read")
    )
    up = y_axis("right", "decisions that are right", domain=[0.3, 1])
    line = base.mark_line(strokeWidth=1.8).encode(y=up)
    dots = base.mark_point(filled=True, size=40, opacity=1).encode(y=up)
    bars = base.mark_rule(opacity=0.35).encode(y=alt.Y("low:Q"), y2="high:Q")
    return finish(alt.layer(bars, line, dots).properties(width=420, height=260))
