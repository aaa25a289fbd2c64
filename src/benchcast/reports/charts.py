"""Sections of the page with one figure: words, rows and drawing in one place.

A new one is a function here and its name in `CHARTS`; templates and scripts stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from benchcast.evaluation.comparison import Comparison
from benchcast.losses.dataset import Dataset
from benchcast.losses.regroup import characters_per_token
from benchcast.methods import METHODS
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats, TextSet
from benchcast.reports.data import ReportModels, rounded
from benchcast.reports.drawing import WHOLE, Figure, alt, error_axis, named, page_style
from benchcast.splits import Fold
from benchcast.study.study import Study

DRAWS = 4  # sets of sources for each number of sources
MOST_NUMBERS = 8  # numbers of sources to compare
LISTED = 10_000  # sets of sources up to which all are listed before some are drawn
LARGEST = 1_000_000_000  # size of the features (tokens × dimensions) above which methods that read them are not fitted


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
    tint = alt.Color("method:N", scale=hues, **legend)
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
        x=x, y=error_axis(error), color=tint, shape=shape, tooltip=tips
    )
    line = base.mark_line(strokeWidth=2).encode(x=x, y=error_axis(error, "mean(mse):Q"), color=tint)
    return Chart(
        name="sources",
        link="Sources",
        title="Do texts of several sources help?",
        text=f"Fits on texts of some sources only, by {' and '.join(methods)}, which are fast to refit. Each dot is "
        "one set of sources, the line their mean.",
        caption="Squared error by the number of sources",
        rows=rows,
        figure=page_style(alt.layer(dots, line).properties(width="container", height=300)),
    )


CHARTS: tuple[Callable[[Study, Comparison, ReportModels], Chart | None], ...] = (sources_chart,)


def make_charts(study: Study, comparison: Comparison, shown: ReportModels) -> list[Chart]:
    """The charts that this study has data for, in the order of the page."""
    return [chart for make in CHARTS if (chart := make(study, comparison, shown)) is not None]


def effect_of_sources(comparison: Comparison, texts: TextSet, seed: int) -> list[dict[str, Any]]:
    """Test error of every task from texts of some sources only, in the first fold; no rows for a single source.

    The quick methods are fitted: `ridge`, which learns weights in closed form, and `all-token`, which gives every token
    the same weight. If more sources improve the first but not the second, more texts help because their weights are
    learned.
    """
    names, features = comparison.dataset.reference_tokens.sources, comparison.dataset.features
    slow = features is not None and features.shape[0] * features.shape[1] > LARGEST
    quick = [m for m in METHODS.values() if m.quick and not (slow and m.needs_features)]
    methods = [m.name for m in quick if m.name in comparison.methods]
    if len(names) < 2 or len(methods) < 2:  # what weights gain shows only beside a method without them
        return []
    rows = []
    for chosen in [some for n in numbers_of_sources(len(names)) for some in subsets(names, n, DRAWS, seed=seed)]:
        for method in methods:
            errors = source_errors(comparison.dataset, comparison.folds[0], texts, method=method, chosen=chosen)
            about = {"method": method, "sources": len(chosen), "texts_of": ", ".join(chosen)}
            by_task = zip(comparison.tasks, rounded([] if errors is None else errors), strict=False)
            rows += [{"task": task, **about, "mse": mse} for task, mse in by_task if mse]  # a log axis cannot show 0
    return rows


def numbers_of_sources(count: int) -> list[int]:
    """Numbers of sources to compare: evenly spaced from one to `count`, at most `MOST_NUMBERS`."""
    return sorted({round(float(x)) for x in np.linspace(1, count, min(count, MOST_NUMBERS))})


def subsets(sources: Sequence[str], size: int, most: int, *, seed: int) -> list[tuple[str, ...]]:
    """Draw at most `most` different subsets of `size` sources."""
    rng = np.random.default_rng([seed, size])
    if math.comb(len(sources), size) <= LISTED:
        every = list(combinations(sources, size))
        return [every[i] for i in sorted(rng.permutation(len(every))[:most])]
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:  # with more than `LISTED` subsets, duplicates are rare
        drawn.add(tuple(sorted(rng.choice(len(sources), size, replace=False).tolist())))
    return [tuple(sources[i] for i in numbers) for numbers in sorted(drawn)]


def source_errors(dataset: Dataset, fold: Fold, texts: TextSet, *, method: str, chosen: Sequence[str]) -> Floats | None:
    """Mean squared test error of each task with texts of the chosen sources only.

    Parameters
    ----------
    dataset, fold : the data, and its training and test models
    texts : texts of the dataset
    method : name of the method
    chosen : names of the sources

    Returns
    -------
    One error per task; None if no token of these sources is in the common support.
    """
    of_sources = dataset.reference_tokens.of_sources(chosen)
    if not (of_sources & dataset.reference_tokens.supported).any():
        return None
    some = restrict(dataset, of_sources, texts)
    return held_out_errors(some, fold, METHODS[method].learn(some, [fold])[0])


def restrict(dataset: Dataset, keep: Bools, texts: TextSet) -> Dataset:
    """The dataset with the common support restricted to the tokens in `keep`."""
    supported = dataset.reference_tokens.supported & keep
    characters = characters_per_token(dataset.reference_tokens.edges, texts.utf8)
    return replace(
        dataset,
        nats=np.where(supported, dataset.nats, np.float32(0)),
        characters=float(characters[supported].sum()),
        reference_tokens=replace(dataset.reference_tokens, supported=supported),
    )


def held_out_errors(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit]) -> Floats:
    """Mean squared error of each task on the test models; NaN without scores."""
    errors = []
    for fit, observed in zip(fits, dataset.accuracy, strict=True):
        rows = fold.test & np.isfinite(observed)
        forecast = fit.forecast(dataset.nats[rows], dataset.metadata.take(rows))
        errors.append(float(np.mean((forecast - observed[rows]) ** 2)) if rows.any() else np.nan)
    return np.array(errors)
