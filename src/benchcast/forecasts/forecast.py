"""Forecasts of a fit, of one model or of many as a table, and remarks: why one is missing or less certain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.display import html_table, text_table
from benchcast.errors import library
from benchcast.families import families_of
from benchcast.forecasts.intervals import UNLIKE, Predictions, ScoreDistribution, distance, nearness_to_chance
from benchcast.messages import counted, nan_to_none, number, visible
from benchcast.methods.task_fit import TaskFit
from benchcast.records import ModelMetadata, arrow_table, pandas_frame

COLUMNS = {
    "model": "string",
    "task": "string",
    "accuracy": "double",
    "low": "double",
    "high": "double",
    "level": "double",
    "observed": "double",
    "capability": "double",
    "question": "string",
    "relation": "string",
    "remark": "string",
}
UNSEEN_FAMILY, STRONGER_MODEL = "unseen family", "stronger model"
SEEN, KNOWN_FAMILY = "seen in training", "known family"
NO_INTERVAL = "no interval: forecasts of fewer than two unseen models could be tested"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast accuracy of a model on a task, with a prediction interval.

    If `accuracy`, `low` or `high` is NaN, `remark` gives the reason.

    >>> import benchcast as bc
    >>> fit = bc.fit("study", "code", method="label-token")
    >>> forecast = fit.predict("my-7b.jsonl")
    >>> forecast.to_dict()["task"], forecast.level
    ('code', 0.9)
    >>> forecast.probability_above(forecast.low) > 0.9
    True
    """

    task: str
    model: str
    accuracy: float  # 0..1
    low: float  # ends of the prediction interval
    high: float
    capability: float  # weighted loss per character, or minus the averaged log-odds (`stack`); lower is better
    remark: str = ""  # reason why the forecast is missing or unreliable
    level: float = DEFAULT_LEVEL  # nominal coverage of the interval, 0..1
    question: str = UNSEEN_FAMILY  # what the interval is about: a model of an unseen family, a stronger or a seen model
    relation: str = UNSEEN_FAMILY  # of the model to the training models: seen in training, known or unseen family
    observed: float = field(default=math.nan, compare=False)  # the score on the task, 0..1, where it is known
    distribution: ScoreDistribution | None = field(default=None, compare=False)  # of this one score; None: unknown

    def __repr__(self) -> str:
        if math.isnan(self.accuracy):
            return f"<no Forecast of {self.model!r} on {self.task}: {self.remark}>"
        ends = f"{level_text(self.level)} interval {number(self.low, '.3f')} to {number(self.high, '.3f')}"
        return f"<Forecast of {self.model!r} on {self.task}: {self.accuracy:.3f}, {ends}>"

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, but for the distribution; a missing number is None, `remark` gives the reason."""
        names = (f.name for f in fields(self) if f.name != "distribution")
        return {name: nan_to_none(getattr(self, name)) for name in names}

    def probability_above(self, score: float) -> float:
        """Probability that the observed score is at least `score` (0..1); NaN where there is no interval.

        The interval and this probability are of one distribution, that of the score which is observed on about as many
        items as the scores of the study.
        """
        return math.nan if self.distribution is None else float(self.distribution.probability_above(score)[0])

    @classmethod
    def missing(
        cls, task: str, model: str, why: str, *, level: float = DEFAULT_LEVEL, observed: float = math.nan
    ) -> Forecast:
        """A forecast of NaN values with the reason as its remark."""
        nan = math.nan
        return cls(
            task, model, accuracy=nan, low=nan, high=nan, capability=nan, remark=why, level=level, observed=observed
        )


@dataclass(frozen=True, slots=True)
class ScoredForecast:
    """A forecast with its prediction interval beside the observed accuracy, all from 0 to 1."""

    task: str
    observed: float
    forecast: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Forecast minus score."""
        return self.forecast - self.observed

    @property
    def inside(self) -> bool:
        """Whether the interval covers the score."""
        return self.low <= self.observed <= self.high


@dataclass(frozen=True, slots=True, repr=False)
class Forecasts:
    """Forecasts of several models: a sequence of `Forecast`, one row for each model and task; `print` shows them.

    >>> import benchcast as bc
    >>> forecasts = bc.fit("study", "code", method="label-token").predict("study", models=["oak-*"])
    >>> forecasts
    <Forecasts of 4 models on code>
    >>> str(forecasts).splitlines()[1].split()
    ['model', 'task', 'forecast', 'low', 'high', 'score']
    >>> [row.model for row in forecasts][:2], forecasts.to_arrow().num_rows
    (['oak-16M@8B', 'oak-1M@2B'], 4)
    """

    rows: tuple[Forecast, ...]
    failed: dict[str, str] = field(default_factory=dict)  # model without a forecast → reason; its rows are NaN

    def __iter__(self) -> Iterator[Forecast]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Forecast:
        return self.rows[index]

    def __repr__(self) -> str:
        models, tasks = (list(dict.fromkeys(getattr(row, k) for row in self.rows)) for k in ("model", "task"))
        return f"<Forecasts of {counted(len(models), 'model')} on {visible(', '.join(tasks)) or 'no task'}>"

    def __str__(self) -> str:
        header, rows = self._table()
        return "\n".join([self._title(), text_table(header, rows), *self._remarks()]) if rows else repr(self)

    def _repr_html_(self) -> str:
        header, rows = self._table()
        return html_table(self._title(), header, rows, notes=self._remarks())

    def _title(self) -> str:
        levels = [f", {level_text(level)} interval" for level in dict.fromkeys(row.level for row in self.rows)]
        return repr(self)[1:-1] + "".join(levels)

    def _table(self) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows to show; scores only where one is known."""
        columns = {"model": "model", "task": "task", "accuracy": "forecast", "low": "low", "high": "high"}
        if any(math.isfinite(row.observed) for row in self.rows):
            columns["observed"] = "score"
        return [*columns.values()], [[getattr(row, k) for k in columns] for row in self.rows]

    def _remarks(self) -> list[str]:
        """Each remark once, with the number of forecasts that have it."""
        counts = Counter(row.remark for row in self.rows if row.remark)
        return [f"{counted(count, 'forecast')}: {visible(remark)}" for remark, count in counts.items()]

    def plot(self) -> Any:
        """An altair chart: each forecast with its interval and, where it is known, the score; a panel per task.

        It shows itself in notebooks; `.save("x.png")`. Needs `benchcast[report]`.
        """
        alt = library("altair", "report")
        names = ("accuracy", "low", "high", "observed")
        scale, share = alt.Scale(domain=[0, 1]), alt.Axis(format="%")
        kinds = alt.Scale(domain=["forecast", "score"], range=["#4c78a8", "#e45756"])

        def panel(task: str) -> Any:
            rows = [
                {"model": row.model, **{k: nan_to_none(getattr(row, k)) for k in names}}
                for row in self.rows
                if row.task == task
            ]
            base = alt.Chart(alt.Data(values=rows), title=task, width=320)
            tips = [alt.Tooltip("model:N"), *(alt.Tooltip(f"{k}:Q", format=".1%") for k in names)]
            up = alt.Y("model:N", title=None, sort=None, axis=alt.Axis(labelLimit=300))
            bars = base.mark_rule(strokeWidth=3, opacity=0.4, color="#4c78a8").encode(
                x=alt.X("low:Q", title="accuracy", axis=share, scale=scale), x2="high:Q", y=up
            )
            points = [
                base.transform_calculate(kind=f"'{kind}'")
                .transform_filter(f"isValid(datum.{field})")
                .mark_point(filled=True, size=50, opacity=1)
                .encode(
                    x=alt.X(f"{field}:Q", scale=scale),
                    y=up,
                    tooltip=tips,
                    color=alt.Color("kind:N", title=None, scale=kinds),
                )
                for kind, field in (("forecast", "accuracy"), ("score", "observed"))
            ]
            return alt.layer(bars, *points)

        tasks = dict.fromkeys(row.task for row in self.rows)
        return alt.concat(*map(panel, tasks), columns=2).properties(title=self._title())

    def to_arrow(self) -> Any:
        """A pyarrow.Table with a row for each forecast; missing values are null.

        `accuracy`, `low`, `high`, `level` of the interval and `observed` (the known score) are from 0 to 1;
        `capability` is the weighted loss; `question`, `relation` and `remark` say how sure it is.
        """
        return arrow_table([{k: getattr(row, k) for k in COLUMNS} for row in self.rows], COLUMNS)

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a pandas.DataFrame; requires pandas."""
        return pandas_frame(self.to_arrow())


def remark_on(
    fit: TaskFit, predicted: Predictions, metadata: ModelMetadata, *, model: str, about: Mapping[str, Any]
) -> str:
    """The remark on the forecast of one model; empty if there is nothing to say."""
    if fit.law.failure:
        return f"no law: {fit.law.failure}"
    if not np.isfinite(predicted.capability[0]):
        return fit.capability.missing(metadata)
    if relation_of(fit, metadata, model=model, about=about) == SEEN:
        why = "seen: the fit was trained on this model's score"
    else:
        why = caution_on(fit, predicted)
        if predicted.accuracy[0] < fit.task.chance:
            below = f"below chance {fit.task.chance:.3g}; the floor of the fit is {fit.law.chance:.2g}"
            why = "; ".join(filter(None, (why, below)))
        elif not why and nearness_to_chance(fit, predicted.accuracy)[0] > 0:
            why = "near chance: losses hardly show whether such a model is about to improve"
    return "; ".join(filter(None, (why, "" if np.isfinite(predicted.low[0]) else NO_INTERVAL)))


def relation_of(fit: TaskFit, metadata: ModelMetadata, *, model: str, about: Mapping[str, Any]) -> str:
    """Whether the fit was trained on a model's score, or on models of its family."""
    if model in about.get("train", ()) or model in about.get("validation", ()):
        return SEEN
    known = {family for group in np.unique(fit.out_of_fold.families) for family in families_of(str(group))}
    return KNOWN_FAMILY if str(metadata.families[0]) in known else UNSEEN_FAMILY


def caution_on(fit: TaskFit, predicted: Predictions, i: int = 0) -> str:
    """In which way model number `i` is unlike the training models, or why that is unknown; empty if it is like them."""
    if fit.reads_losses and fit.is_level:
        return "constant: the training losses say nothing about this task, so no token has weight"
    beyond = _beyond(fit, predicted, i)
    remarks = [beyond] if beyond else []
    outside_range = distance(fit, predicted.capability)[i] > 0
    squared = float(predicted.position.distance[i])
    # A capability beyond the range of the training models says already that the losses are unlike theirs.
    if fit.profile is not None and squared > max(fit.profile.usual, UNLIKE**2) and not outside_range:
        remarks.append(
            f"unlike any training model: its losses differ from theirs {np.sqrt(squared):.1f} times as much as those "
            "of an unseen family usually do"
        )
    if predicted.position.other_family[i]:
        family = fit.out_of_fold.families[0]
        remarks.append(f"all training models are of family {family}, this one is not: the interval is a guess")
    return "; ".join(remarks)


def _beyond(fit: TaskFit, predicted: Predictions, i: int) -> str:
    """A remark if the model is stronger or weaker than every training model."""
    far, stronger = float(distance(fit, predicted.capability)[i]), bool(predicted.position.stronger[i])
    if np.isinf(far):
        return "extrapolation: all training models have the same capability, and this model has a different one"
    if far > 0:
        below = bool(predicted.capability[i] < fit.range[0])
        side = "stronger" if below == (fit.law.slope < 0) else "weaker"
        size = "less than 1%" if far < 0.01 else f"{far:.0%}"
        but = ", although its mean loss is lower" if side == "weaker" and stronger else ""
        return f"extrapolation: {side} than every training model, by {size} of their range{but}"
    return "extrapolation: a lower mean loss than every training model" if stronger else ""
