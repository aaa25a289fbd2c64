"""One function a figure: result in, Vega-Lite figure out; the same figure serves browser and paper."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from benchcast.errors import InputError
from benchcast.evaluate import Comparison
from benchcast.extrapolate import Extrapolation, TaskAhead
from benchcast.files import write_text, write_whole
from benchcast.intervals import spread_of

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


def law_figure(found: Comparison, task: str, method: str) -> dict[str, Any]:
    """Capability against accuracy with the fitted law and its band, points by family and role (figure 4).

    With several folds, the first fold's fit is drawn and its family is the one held out.
    """
    fit, fold = found.fits[task, method][0], found.folds[0]
    t = found.tasks.index(task)
    evidence = found.evidence
    capability = fit.capability(evidence.nats, evidence.facts)
    observed = evidence.accuracy[t]
    points = [
        {
            "model": evidence.models[i],
            "family": str(evidence.families[i]),
            "capability": float(capability[i]),
            "accuracy": float(observed[i]),
            "role": "test" if fold.test[i] else "validation" if fold.validation[i] else "train",
        }
        for i in range(len(evidence.models))
        if np.isfinite(observed[i]) and np.isfinite(capability[i])
    ]
    drawn = capability[np.isfinite(capability) & np.isfinite(observed)]
    x = np.linspace(drawn.min(), drawn.max(), 80)
    half = spread_of(fit.honest).half_width
    curve = [
        {
            "capability": float(c),
            "accuracy": float(a),
            "low": max(0.0, float(a - half)),
            "high": min(1.0, float(a + half)),
        }
        for c, a in zip(x, fit.law.accuracy(x), strict=True)
        if np.isfinite(a)
    ]
    across = alt.X(
        "capability:Q",
        title="capability (weighted nats per character; left is better)",
        scale=alt.Scale(zero=False),
    )
    up = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]))
    pick = alt.selection_point(fields=["family"], bind="legend")
    base = alt.Chart(alt.Data(values=curve))
    band = base.mark_area(opacity=0.15, color="#888").encode(x=across, y="low:Q", y2="high:Q")
    line = base.mark_line(color="#888").encode(x=across, y=up)
    dots = (
        alt.Chart(alt.Data(values=points))
        .mark_point(filled=True, size=55)
        .encode(
            x=across,
            y=up,
            color=alt.Color("family:N", scale=alt.Scale(range=COLOURS)),
            shape=alt.Shape("role:N", scale=alt.Scale(domain=list(ROLES), range=list(ROLES.values()))),
            opacity=alt.when(pick).then(alt.value(0.9)).otherwise(alt.value(0.08)),
            tooltip=[
                alt.Tooltip("model:N"),
                alt.Tooltip("capability:Q", format=".4f"),
                alt.Tooltip("accuracy:Q", format=".3f"),
            ],
        )
        .add_params(pick)
    )
    chart = alt.layer(band, line, dots).properties(width=420, height=260, title=f"{task}: {method}")
    return dict(chart.to_dict())


def forecast_figure(found: Comparison, task: str, methods: tuple[str, ...]) -> dict[str, Any]:
    """Forecast against observed score of the held-out models, one panel a method (figure 7)."""
    rows = []
    for method in methods:
        held = found.held[task, method]
        for i, model in enumerate(held.models):
            if np.isfinite(held.forecast[i]):
                rows.append(
                    {
                        "method": method,
                        "model": model,
                        "family": str(held.families[i]),
                        "observed": float(held.observed[i]),
                        "forecast": float(held.forecast[i]),
                        "low": float(held.low[i]) if np.isfinite(held.low[i]) else None,
                        "high": float(held.high[i]) if np.isfinite(held.high[i]) else None,
                    }
                )
    across = alt.X("observed:Q", scale=alt.Scale(domain=[0, 1]))
    data = alt.Data(values=rows)
    bars = alt.Chart().mark_rule(opacity=0.25).encode(x=across, y=alt.Y("low:Q", title="forecast"), y2="high:Q")
    tips = [
        alt.Tooltip("model:N"),
        alt.Tooltip("observed:Q", format=".3f"),
        alt.Tooltip("forecast:Q", format=".3f"),
    ]
    dots = (
        alt.Chart()
        .mark_point(filled=True, size=35)
        .encode(
            x=across,
            y=alt.Y("forecast:Q", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("family:N", scale=alt.Scale(range=COLOURS)),
            tooltip=tips,
        )
    )
    ideal = (
        alt.Chart(alt.Data(values=[{"v": 0}, {"v": 1}]))
        .mark_line(color="#888", strokeDash=[3, 3])
        .encode(x=alt.X("v:Q", title="observed"), y=alt.Y("v:Q", title="forecast"))
    )
    panels = (
        alt.layer(ideal, bars, dots, data=data).properties(width=150, height=150).facet(facet="method:N", columns=4)
    )
    return dict(panels.properties(title=task).to_dict())


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
    """One figure as .html (self-contained), .png or .svg."""
    import vl_convert

    kind = path.suffix.lower()
    if kind == ".html":
        write_text(path, vl_convert.vegalite_to_html(figure, bundle=True))
    elif kind == ".svg":
        write_text(path, vl_convert.vegalite_to_svg(figure))
    elif kind == ".png":
        write_whole(path, partial(_write_bytes, blob=vl_convert.vegalite_to_png(figure, scale=2)))
    else:
        raise InputError(f"{path}: figures are written as .html, .png or .svg")


def _write_bytes(path: Path, blob: bytes) -> None:
    path.write_bytes(blob)
