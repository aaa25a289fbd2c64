"""Figures with a section of their own on the page: words, rows and drawing in one place.

A new one is a function here and its name in `CHARTS`; templates and scripts stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchcast.evaluation.comparison import Comparison
from benchcast.reports.data import ReportModels
from benchcast.reports.figures import WHOLE, Figure, alt, error_axis, named, page_style
from benchcast.reports.sections import effect_of_sources
from benchcast.study.study import Study


@dataclass(frozen=True, slots=True)
class Chart:
    """A section of the page with one figure, which shows the rows of the chosen task."""

    name: str  # id of the section
    link: str  # word in the list of sections
    title: str
    text: str  # paragraph above the figure
    caption: str
    rows: list[dict[str, Any]]  # at least one; plain values, each row with the key "task"; also the columns of the CSV
    figure: Figure  # page style; its data is named "rows"

    def words(self) -> dict[str, Any]:
        """All but the drawing, as plain values."""
        return {k: getattr(self, k) for k in ("name", "link", "title", "text", "caption", "rows")}


def sources_chart(study: Study, comparison: Comparison, shown: ReportModels) -> Chart | None:
    """Error by the number of sources of the texts: a dot for each draw, a line for their mean (figure 8)."""
    rows = effect_of_sources(comparison, study.texts, study.seed)
    if not rows:
        return None
    methods = list(dict.fromkeys(r["method"] for r in rows))
    hues = alt.Scale(domain=methods, range=[f"var(--c{i})" for i in range(len(methods))])
    legend = {"title": None, "legend": alt.Legend(orient="top")}
    colour = alt.Color("method:N", scale=hues, **legend)
    shapes = alt.Scale(domain=methods, range=["circle", "square"][: len(methods)])
    shape = alt.Shape("method:N", scale=shapes, **legend)
    axis = alt.Axis(format="d", tickMinStep=1, tickCount=8, labelExpr=WHOLE)
    x = alt.X("sources:Q", title="sources of texts", scale=alt.Scale(zero=False, nice=False, padding=14), axis=axis)
    tips = [
        alt.Tooltip("method:N"),
        alt.Tooltip("texts_of:N", title="texts of"),
        alt.Tooltip("mse:Q", title="squared error", format=".2e"),
    ]
    error, base = "squared error on held-out models", named("rows")
    dots = base.mark_point(filled=True, size=46, opacity=0.55).encode(
        x=x, y=error_axis(error), color=colour, shape=shape, tooltip=tips
    )
    line = base.mark_line(strokeWidth=2).encode(x=x, y=error_axis(error, "mean(mse):Q"), color=colour)
    return Chart(
        "sources",
        "Sources",
        "Do texts of several sources help?",
        f"Fits on texts of some sources only, by {' and '.join(methods)}, which are fast to refit. Each dot is one set "
        "of sources, the line their mean.",
        "Squared error by the number of sources",
        rows,
        page_style(alt.layer(dots, line).properties(width="container", height=300)),
    )


CHARTS: tuple[Callable[[Study, Comparison, ReportModels], Chart | None], ...] = (sources_chart,)


def make_charts(study: Study, comparison: Comparison, shown: ReportModels) -> list[Chart]:
    """The charts that this study has data for, in the order of the page."""
    charts = [make(study, comparison, shown) for make in CHARTS]
    return [chart for chart in charts if chart is not None]
