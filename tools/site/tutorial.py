"""The pictures of docs/tutorial.md and of the README, from the OLMo ladder (`python -m lab pictures docs`)."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

import benchcast as bc
from benchcast.evaluation.comparison import Comparison
from benchcast.reports.drawing import COLOURS, Figure, finish
from benchcast.study.study import Study

EASY, HARD = "hellaswag_val", "arc_easy_test"  # a task whose intervals hold, and one whose intervals do not
TARGETS = {"peteish7@anneal": "OLMo 2 7B", "peteish13@596057": "OLMo 2 13B"}
ROLES = {"train": "190M to 1B: learned from", "validation": "3B: learned from", "test": "7B and 13B: forecast"}
WIDTH = 260  # of a panel: two stand side by side on a page, one fits a phone
TINTS = ("#8fb8d6", "#0072B2", "#D55E00")


def tutorial_figures(study: Study) -> dict[str, Figure]:
    """The pictures by name."""
    comparison = bc.compare(study, split="column", methods=["stack"])
    return {
        "ladder": ladder_figure(study),
        "targets": targets_figure(comparison),
        **{f"targets-{name.split()[-1]}": target_figure(comparison, model) for model, name in TARGETS.items()},
        **{f"trust-{task}": trust_figure(comparison, task) for task in (EASY, HARD)},
    }


def ladder_figure(study: Study) -> Figure:
    """Loss on the answers of a task against its score, for every checkpoint of the ladder."""
    scores = {s.model: s.accuracy for s in study.scores() if s.task == EASY}
    column = [t.id for t in study.texts.texts].index(f"bpb.{EASY}")
    rows = [
        {"loss": float(study.losses(m.model).nats[column]), "accuracy": scores[m.model], "role": ROLES[m.split]}
        for m in study.infos(study.models_with_losses())
    ]
    palette = alt.Scale(domain=list(ROLES.values()), range=list(TINTS))
    chart = alt.Chart(alt.Data(values=rows)).mark_point(filled=True, size=28, opacity=0.8)
    return finish(
        chart.encode(
            x=alt.X("loss:Q", title="bits per byte of right answers, better to the left", scale=alt.Scale(zero=False)),
            y=alt.Y("accuracy:Q", title=f"score on {EASY}", axis=alt.Axis(format=".0%", tickCount=5)),
            color=alt.Color("role:N", title=None, scale=palette, legend=alt.Legend(orient="bottom", columns=1)),
        ).properties(width=300, height=240)
    )  # fmt: skip


def held_rows(comparison: Comparison, task: str) -> list[dict[str, Any]]:
    """Forecasts of the held-out models beside their scores."""
    held = comparison.held_out[task, "stack"]
    values = zip(held.models, held.observed, held.forecast, held.low, held.high, strict=True)
    return [
        {"model": m, "task": task, **dict(zip(("score", "forecast", "low", "high"), map(float, numbers), strict=True))}
        for m, *numbers in values
    ]


def targets_figure(comparison: Comparison) -> Figure:
    """Forecasts with intervals and scores of the two finished models, side by side."""
    first, second = TARGETS
    panels = target_panel(comparison, first), target_panel(comparison, second, labels=False)
    return finish(alt.hconcat(*panels, spacing=16).resolve_scale(color="shared"))


def target_figure(comparison: Comparison, model: str) -> Figure:
    """Forecasts with intervals and scores of one finished model."""
    return finish(target_panel(comparison, model).properties(width=180))


def target_panel(comparison: Comparison, model: str, *, labels: bool = True) -> Any:
    """Forecasts with intervals and scores of one model on all tasks."""
    order = sorted(comparison.tasks, key=lambda t: -np.nanmean(comparison.held_out[t, "stack"].observed))
    rows = [r for task in order for r in held_rows(comparison, task) if r["model"] == model]
    kinds = alt.Scale(domain=["forecast, 90% interval", "score"], range=[COLOURS[0], COLOURS[1]])
    dots = [
        {"task": r["task"], "accuracy": r[k], "kind": kind}
        for r in rows
        for k, kind in zip(("forecast", "score"), kinds.domain, strict=True)
    ]
    scale = alt.Scale(domain=[0.3, 1])
    across = alt.X("accuracy:Q", title="accuracy", axis=alt.Axis(format=".0%", tickCount=4), scale=scale)
    up = alt.Y("task:N", title=None, sort=order)
    bars = alt.Chart(alt.Data(values=rows)).mark_rule(strokeWidth=5, opacity=0.7, color=TINTS[0])
    points = alt.Chart(alt.Data(values=dots)).mark_point(filled=True, size=46, opacity=1)
    return alt.layer(
        bars.encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=up),
        points.encode(
            x=across,
            y=up if labels else up.axis(None),
            color=alt.Color("kind:N", title=None, scale=kinds, legend=alt.Legend(orient="bottom")),
        ),
    ).properties(width=WIDTH, height=20 * len(order), title=f"{TARGETS[model]}, from 3B and below")


def trust_figure(comparison: Comparison, task: str) -> Figure:
    """Forecasts of all held-out checkpoints against their scores on one task."""
    rows = held_rows(comparison, task)
    low, high = (pick(r[k] for r in rows for k in ("low", "high", "score")) for pick in (min, max))
    scale, share = alt.Scale(domain=[low, high], nice=True), alt.Axis(format=".0%", tickCount=5)
    across = alt.X("score:Q", title="score", axis=share, scale=scale)
    up = alt.Y("forecast:Q", title="forecast, 90% interval", axis=share, scale=scale)
    base = alt.Chart(alt.Data(values=rows))
    ideal = alt.Chart(alt.Data(values=[{"score": x, "forecast": x} for x in (low, high)]))
    return finish(
        alt.layer(
            ideal.mark_line(strokeDash=[3, 3], color="#888888").encode(x=across, y=up),
            base.mark_rule(strokeWidth=2, opacity=0.9, color=TINTS[0]).encode(x=across, y="low:Q", y2="high:Q"),
            base.mark_point(filled=True, size=40, opacity=1, color=COLOURS[0]).encode(x=across, y=up),
        ).properties(width=WIDTH, height=240, title=task)
    )
