"""The pictures of docs/concepts.md, from the embedded study (`python -m lab pictures docs`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

import benchcast as bc
from benchcast.evaluation.comparison import Comparison, HeldOutForecasts
from benchcast.reports.drawing import COLOURS, Figure, colour, finish
from benchcast.reports.explain import make_units
from benchcast.study.study import Study
from lab.reproduce.laws import law_curves, law_points

TASK, TEXT = "facts", "facts-72"
WEAK, STRONG = "oak-a-0.5M@24.0M", "oak-a-50M@36.0M"
CELL, ROW = 92, 22  # width and height of a token's cell in pixels
HIDDEN = "hazel"  # the family whose forecasts are drawn
LOSS, WEIGHT = "#0072B2", "#D55E00"
METHODS: dict[str, str] = {"all-token": "mean loss of all tokens", "salience": "weighted loss (capability)"}


def concept_figures(study: Study) -> dict[str, Figure]:
    """The pictures by name."""
    by_size = bc.compare(study, [TASK], split="size", methods=["salience", "all-token"])
    by_family = bc.compare(study, [TASK], split="family", methods=["stack"])
    held = by_family.held_out[TASK, "stack"]
    return {
        "tokens": token_figure(study),
        **{f"law-{method}": law_figure(by_size, method) for method in METHODS},
        "folds": fold_figure([str(f) for f in np.unique(held.families)]),
        "interval-errors": error_figure(held),
        "interval-forecasts": forecast_figure(held),
    }


def token_figure(study: Study) -> Figure:
    """One text: the loss of each token under a weak and a strong model, and the salience of each token."""
    fit = bc.fit(study, task=TASK, method="salience", split="size")
    units = make_units(fit.texts, fit.edges)
    part = units.of_text([t.id for t in fit.texts.texts].index(TEXT))
    nats = fit.align([study.losses(WEAK), study.losses(STRONG)])
    scores = {s.model: s.accuracy for s in study.scores() if s.task == TASK}
    columns = [
        (["loss, weak", f"model ({scores[WEAK]:.0%})"], LOSS, units.total(nats[0])[part]),
        (["loss, strong", f"model ({scores[STRONG]:.0%})"], LOSS, units.total(nats[1])[part]),
        (["salience", "(mean token: 1)"], WEIGHT, (units.mean(fit.salience) / fit.salience.mean())[part]),
    ]
    words = [units.shown(i).replace("\n", "↵").strip(" ") for i in range(part.start, part.stop)]
    return finish(alt.hconcat(token_names(words), *(token_column(*column) for column in columns), spacing=0))


def token_names(words: Sequence[str]) -> Any:
    """The tokens of a text, one below the other."""
    cells = [{"at": i, "token": word} for i, word in enumerate(words)]
    base = alt.Chart(alt.Data(values=cells)).encode(y=alt.Y("at:O", axis=None), text="token:N")
    title = alt.TitleParams(["", "token"], fontWeight="normal")
    return base.mark_text(fontSize=12).properties(width=62, height=alt.Step(ROW), title=title)


def token_column(title: list[str], tint: str, values: Any) -> Any:
    """A value for each token as a cell, darker for larger values."""
    most = float(max(values))
    cells = [{"at": i, "shown": f"{v:.1f}", "opacity": 0.08 + 0.72 * float(v) / most} for i, v in enumerate(values)]
    base = alt.Chart(alt.Data(values=cells)).encode(y=alt.Y("at:O", axis=None), x=alt.value(CELL / 2))
    shade = alt.Opacity("opacity:Q", scale=None)
    return alt.layer(
        base.mark_rect(color=tint, width=CELL - 6, height=ROW - 2).encode(opacity=shade),
        base.mark_text(fontSize=11).encode(text="shown:N"),
    ).properties(width=CELL, height=alt.Step(ROW), title=alt.TitleParams(title, fontWeight="normal", fontSize=11))


def law_figure(comparison: Comparison, method: str) -> Figure:
    """Accuracy against the mean loss or against the weighted loss, with the law."""
    families = sorted({str(f) for f in comparison.dataset.families})
    fits = [comparison.fits[TASK, method][0]]
    points = law_points(comparison.dataset, comparison.folds[0], fits)
    kept = [{k: p[k] for k in ("family", "capability", "accuracy")} for p in points]
    across = alt.X(
        "capability:Q",
        title=f"{METHODS[method]}, better to the left",
        scale=alt.Scale(type="log", nice=False, padding=6),
        axis=alt.Axis(format="~g", tickCount=4, grid=False),
    )
    up = alt.Y("accuracy:Q", title=f"accuracy on {TASK}", axis=alt.Axis(format=".0%", tickCount=5))
    dots = alt.Chart(alt.Data(values=kept)).mark_point(filled=True, size=26, opacity=0.8)
    curve = alt.Chart(alt.Data(values=law_curves(points, fits))).mark_line(color="#888888", strokeWidth=2)
    return finish(
        alt.layer(
            curve.encode(x=across, y=up),
            dots.encode(x=across, y=up, color=colour("family", families).legend(None)),
        ).properties(width=270, height=220)
    )


def fold_figure(families: Sequence[str]) -> Figure:
    """Which family each fit of the cross-validation does not see."""
    cells = [
        {"fit": f"fit {i + 1}", "family": family, "role": "forecast" if family == hidden else "learned from"}
        for i, hidden in enumerate(families)
        for family in families
    ]
    base = alt.Chart(alt.Data(values=cells)).encode(
        x=alt.X("family:N", title=None, sort=list(families), axis=alt.Axis(orient="top", labelAngle=0, domain=False)),
        y=alt.Y("fit:N", title=None, axis=alt.Axis(domain=False)),
    )
    palette = alt.Scale(domain=["learned from", "forecast"], range=["#8fb8d6", WEIGHT])
    return finish(
        base.mark_rect(stroke="transparent", strokeWidth=3, width=32, height=18).encode(
            color=alt.Color("role:N", title=None, scale=palette, legend=alt.Legend(orient="bottom"))
        ).properties(width=alt.Step(35), height=alt.Step(22))
    )  # fmt: skip


def held_rows(held: HeldOutForecasts) -> list[dict[str, Any]]:
    """Each out-of-fold forecast with its interval, score and error."""
    values = zip(held.families, held.observed, held.forecast, held.low, held.high, strict=True)
    return [
        {"family": str(f), "error": float(100 * (forecast - score)), "score": float(score), "forecast": float(forecast),
         "low": float(low), "high": float(high)}
        for f, score, forecast, low, high in values
    ]  # fmt: skip


def error_figure(held: HeldOutForecasts) -> Figure:
    """Out-of-fold errors of every family."""
    errors = alt.Chart(alt.Data(values=held_rows(held))).mark_point(filled=True, size=24, opacity=0.6)
    return finish(
        errors.encode(
            x=alt.X("error:Q", title="forecast − score, points", axis=alt.Axis(tickCount=5)),
            y=alt.Y("family:N", title=None),
            color=colour("family", sorted({str(f) for f in held.families})).legend(None),
        ).properties(width=250, height=220, title="errors while a family is hidden")
    )


def forecast_figure(held: HeldOutForecasts) -> Figure:
    """Forecasts of one hidden family with intervals, against its scores."""
    shown = alt.Chart(alt.Data(values=[row for row in held_rows(held) if row["family"] == HIDDEN]))
    share = alt.Axis(format=".0%", tickCount=5)
    across = alt.X("score:Q", title="score", axis=share, scale=alt.Scale(domain=[0, 1]))
    ideal = alt.Chart(alt.Data(values=[{"score": 0, "forecast": 0}, {"score": 1, "forecast": 1}]))
    tint = COLOURS[sorted({str(f) for f in held.families}).index(HIDDEN)]
    return finish(
        alt.layer(
            ideal.mark_line(strokeDash=[3, 3], color="#888888").encode(x=across, y="forecast:Q"),
            shown.mark_rule(strokeWidth=2, opacity=0.5, color=tint).encode(x=across, y="low:Q", y2="high:Q"),
            shown.mark_point(filled=True, size=40, opacity=1, color=tint).encode(
                x=across, y=alt.Y("forecast:Q", title="forecast, 90% interval", axis=share)
            ),
        ).properties(width=250, height=220, title=f"forecasts of {HIDDEN}, hidden from the fit")
    )
