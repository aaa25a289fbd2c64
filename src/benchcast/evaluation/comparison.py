"""How well methods forecast held-out models: the result of a comparison, its measures, tables and figure.

What cannot be measured is NaN (null in tables and JSON) with a remark, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.choices import Split, level_text
from benchcast.display import html_table, text_table
from benchcast.errors import library
from benchcast.evaluation.error_ratio import ErrorRatio, error_ratio
from benchcast.losses.dataset import Dataset
from benchcast.messages import counted, few, nan_to_none, number, plain
from benchcast.methods import DEFAULT_METHOD, METHODS
from benchcast.methods.solvers import ranks
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Floats, arrow_table, pandas_frame
from benchcast.splits import Fold

MEASURES = ("mse", "mae", "r2", "spearman", "pairs", "coverage", "width", "n_test")
COLUMNS = {
    "task": "string",
    "method": "string",
    **dict.fromkeys(MEASURES[:-1], "double"),
    "n_test": "int64",
    "remark": "string",
}
GAIN_OVER = "all-token"
SHOWN = {"mae": "mean error", "pairs": "pairs in order", "coverage": "coverage", "n_test": "held-out models"}
HEADER = ("task", "method", *SHOWN.values())
FEWEST_HELD_OUT = 5  # with fewer models a measure says more about them than about the method
ENDS = ("score", "forecast", "low", "high")  # of each point in the figure


@dataclass(frozen=True, slots=True, repr=False)
class HeldOutForecasts:
    """Forecasts of held-out models by one method on one task."""

    models: tuple[str, ...]
    families: npt.NDArray[np.str_]
    observed: Floats
    forecast: Floats
    low: Floats
    high: Floats
    capability: Floats
    reason: str = ""  # why the first model without a forecast has none
    floors: tuple[float, ...] = ()  # lower end of the law of each fold

    def __repr__(self) -> str:
        return f"<HeldOutForecasts of {counted(len(self.models), 'model')}>"

    @property
    def complete(self) -> bool:
        """Whether there is a held-out model, and a forecast of each."""
        return bool(len(self.observed)) and bool(np.isfinite(self.forecast - self.observed).all())

    def measures(self) -> dict[str, float]:
        """Errors, order and coverage (see `measure`)."""
        return measure(self.observed, self.forecast, low=self.low, high=self.high)

    @classmethod
    def joined(cls, parts: Sequence[HeldOutForecasts]) -> HeldOutForecasts:
        """The forecasts of several folds."""
        names = ("families", "observed", "forecast", "low", "high", "capability")
        return cls(
            models=tuple(m for p in parts for m in p.models),
            **{name: np.concatenate([getattr(p, name) for p in parts]) for name in names},
            reason=next((p.reason for p in parts if p.reason), ""),
            floors=tuple(floor for p in parts for floor in p.floors),
        )


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Held-out forecasts of every method on every task, as `compare` returns them; scores and errors from 0 to 1.

    >>> import benchcast as bc
    >>> comparison = bc.compare("study", ["code"], methods=["all-token", "constant"], split="family")
    >>> comparison
    <Comparison of 2 methods on 1 task, 16 models held out by family>
    >>> sorted(comparison.measures("code", "all-token"))
    ['coverage', 'mae', 'mse', 'n_test', 'pairs', 'r2', 'spearman', 'width']
    """

    split: Split
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    held_out: dict[tuple[str, str], HeldOutForecasts]  # by task and method
    fits: dict[tuple[str, str], list[TaskFit]]  # one per fold; none if they were not kept
    folds: tuple[Fold, ...]
    noise: dict[str, float]  # what the expected squared error of a perfect forecast is at most, by task
    dataset: Dataset
    left_out: dict[str, str]  # method, task or model → why it could not be tried
    copies: dict[str, str] = field(default_factory=dict)  # held-out models that copy a training model, with that model
    copied: dict[tuple[str, str], HeldOutForecasts] = field(
        default_factory=dict
    )  # of these, where others were held out, too

    def __repr__(self) -> str:
        held = {m for h in self.held_out.values() for m in h.models}
        methods, tasks = counted(len(self.methods), "method"), counted(len(self.tasks), "task")
        return f"<Comparison of {methods} on {tasks}, {counted(len(held), 'model')} held out by {self.split}>"

    def __str__(self) -> str:
        return "\n".join([repr(self)[1:-1], text_table(HEADER, self._table()), *self._reasons()])

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], HEADER, self._table(), notes=self._reasons())

    def _table(self) -> list[list[Any]]:
        cells = [(t, m, self._cell(t, m)) for t in self.tasks for m in self.methods]
        return [[t, m, *(measured[k] for k in SHOWN)] for t, m, measured in cells]

    def _reasons(self) -> list[str]:
        others = [f"left out: {name} {why}" for name, why in self.left_out.items() if name not in METHODS]
        line = self.copies_line()
        return [line] * bool(line) + [f"not compared: {line}" for line in [self.not_compared()] if line] + others

    @property
    def used(self) -> str:
        """The method that `fit` uses if nothing else is asked for, if it was compared; else the first."""
        return DEFAULT_METHOD if DEFAULT_METHOD in self.methods else self.methods[0]

    def measures(self, task: str, method: str) -> dict[str, float]:
        """Errors, order and coverage of one method on one task (see `measure`)."""
        return self.held_out[task, method].measures()

    def gains(self, over: str = GAIN_OVER) -> dict[str, ErrorRatio]:
        """Squared error of the method `over` divided by that of each method, over all tasks.

        Methods that do not forecast every task are left out; so are all where `over` does not.
        """
        held = {m: {task: self.held_out[task, m] for task in self.tasks} for m in self.methods}
        complete = [m for m in held if all(h.complete for h in held[m].values())]
        return {m: error_ratio(held[over], held[m]) for m in complete} if self.tasks and over in complete else {}

    def copies_line(self) -> str:
        """Which held-out models copy a training model and how easily they are forecast; empty if none does."""
        if not self.copies:
            return ""
        named = few([f"{model} (of {known})" for model, known in self.copies.items()])
        if not self.copied:
            return f"all held-out models are copies of training models: {named}; such errors say nothing of new models"
        errors = [
            np.concatenate(
                [np.abs(held[task, self.used].forecast - held[task, self.used].observed) for task in self.tasks]
            )
            for held in (self.copied, self.held_out)
        ]
        of_copies, of_others = (number(float(e.mean()) if len(e) else math.nan, ".4f") for e in errors)
        are = "held-out model is a copy" if len(self.copies) == 1 else "held-out models are copies"
        return (
            f"{len(self.copies)} {are} of a training model and counted apart: {named}; mean abs error of {self.used} "
            f"on copies {of_copies}, on the others {of_others}"
        )

    def floors(self) -> dict[str, tuple[float, ...]]:
        """Floors of each task by fold, as the method learned them that `fit` would use; chance with other methods."""
        return {task: self.held_out[task, self.used].floors for task in self.tasks}

    def measurable(self, task: str) -> bool:
        """Whether enough models of a task were held out to measure a method by them."""
        return len(self.held_out[task, self.methods[0]].models) >= FEWEST_HELD_OUT

    def on_measurable_tasks(self) -> Comparison:
        """The comparison on the tasks that are `measurable` alone."""
        return replace(self, tasks=tuple(task for task in self.tasks if self.measurable(task)))

    def reliable_measures(self, task: str, method: str) -> dict[str, float]:
        """The measures of a method; NaN but for the number of models where the task is not `measurable`."""
        measures = self.measures(task, method)
        return measures if self.measurable(task) else measures | dict.fromkeys(MEASURES[:-1], math.nan)

    def as_json(self) -> dict[str, Any]:
        """The contract of `compare --json`."""
        content = {
            "split": self.split,
            "methods": self.methods,
            "tasks": {task: {method: self._cell(task, method) for method in self.methods} for task in self.tasks},
            "gains": {method: asdict(ratio) for method, ratio in self.on_measurable_tasks().gains().items()},
            "noise_floor": self.noise,
            "left_out": self.left_out,
            "copies": self.copies,
        }
        return dict(plain(content))

    def _cell(self, task: str, method: str) -> dict[str, Any]:
        return {**self.reliable_measures(task, method), "remark": self.remark(task, method)}

    def remark(self, task: str, method: str) -> str:
        """Why measures of a task and method are NaN; empty where none is."""
        held = self.held_out[task, method]
        if not held.models:
            return "no held-out model has a score"
        unknown = int((~np.isfinite(held.forecast)).sum())
        if unknown:
            return f"no forecast of {unknown} of {len(held.models)} held-out models: {held.reason}"
        if not self.measurable(task):
            return f"no measures: {counted(len(held.models), 'held-out model')}, {FEWEST_HELD_OUT} are needed"
        reasons = []
        if len(held.observed) < 2 or np.ptp(held.observed) == 0:
            reasons.append("no order: held-out scores are all the same")
        elif np.ptp(held.forecast) == 0:
            reasons.append("no rank correlation: forecasts are all the same")
        if not np.isfinite(held.low).all():
            reasons.append("no interval: forecasts of fewer than two unseen models could be tested")
        return "; ".join(reasons)

    def not_compared(self) -> str:
        """One line on the methods that could not run or lack a forecast, by reason; empty if all have all."""
        lacking: dict[str, list[str]] = {}
        for method, why in self.left_out.items():
            if method in METHODS:
                lacking.setdefault(why, []).append(method)
        for method in self.methods:
            for why, tasks in self._without_forecast(method).items():
                on = "" if len(tasks) == len(self.tasks) else f" on {few(tasks)}"
                lacking.setdefault(why, []).append(method + on)
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in lacking.items())

    def _without_forecast(self, method: str) -> dict[str, list[str]]:
        """Tasks that a method does not forecast for every held-out model, by the reason."""
        tasks: dict[str, list[str]] = {}
        for task in self.tasks:
            if not self.held_out[task, method].complete:
                tasks.setdefault(self.remark(task, method), []).append(task)
        return tasks

    def to_arrow(self) -> Any:
        """A pyarrow.Table, one row for each task and method: its measures, and a remark where one is null."""
        cells = [(task, method) for task in self.tasks for method in self.methods]
        return arrow_table([{"task": t, "method": m, **self._cell(t, m)} for t, m in cells], COLUMNS)

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame; needs pandas."""
        return pandas_frame(self.to_arrow())

    def plot(self, method: str = "") -> Any:
        """An altair chart: forecasts of the held-out models with intervals against their scores, a panel per task.

        `method` is one of `methods`; by default the first. On the dashed line a forecast is perfect. The chart shows
        itself in notebooks; `.save("x.png")`.
        """
        alt = library("altair", "report")
        name = method or self.methods[0]

        def panel(task: str) -> Any:
            held = self.held_out[task, name]
            columns = zip(held.models, held.families, held.observed, held.forecast, held.low, held.high, strict=True)
            rows = [
                {"model": m, "family": str(f), **{k: nan_to_none(float(x)) for k, x in zip(ENDS, numbers, strict=True)}}
                for m, f, *numbers in columns
            ]
            base = alt.Chart(alt.Data(values=rows), title=task, width=200, height=200)
            across = alt.X("score:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
            up = alt.Y("forecast:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
            tint = alt.Color("family:N")
            tips = [alt.Tooltip("model:N"), *(alt.Tooltip(f"{k}:Q", format=".1%") for k in ENDS)]
            bars = base.mark_rule(opacity=0.4).encode(x=across, y="low:Q", y2="high:Q", color=tint)
            dots = base.mark_point(filled=True, opacity=1).encode(x=across, y=up, color=tint, tooltip=tips)
            ends = alt.Chart(alt.Data(values=[{"score": 0, "forecast": 0}, {"score": 1, "forecast": 1}]))
            return alt.layer(ends.mark_line(strokeDash=[4, 4], color="#888").encode(x=across, y=up), bars, dots)

        title = f"{name}: forecasts of models held out by {self.split}, with {level_text()} intervals"
        return alt.concat(*map(panel, self.tasks), columns=3).properties(title=title)


def measure(observed: Floats, forecast: Floats, *, low: Floats, high: Floats) -> dict[str, float]:
    """Errors, order and coverage of forecasts; NaN where they cannot be said.

    mse and mae are in accuracy (0 to 1), `pairs` is the share of pairs in the right order, `coverage` the share of
    scores inside their interval, `width` the mean width of the intervals.
    """
    n = int(np.isfinite(observed).sum())
    if not n or not np.isfinite(forecast).all():
        return {**dict.fromkeys(MEASURES, math.nan), "n_test": n}
    error = forecast - observed
    spread = float(np.sum((observed - observed.mean()) ** 2))
    inside = (observed >= low) & (observed <= high)
    has_interval = bool(np.isfinite(low).all())
    return {
        "mse": float(np.mean(error**2)),
        "mae": float(np.mean(np.abs(error))),
        "r2": 1 - float(np.sum(error**2)) / spread if spread > 0 else math.nan,
        "spearman": _spearman(observed, forecast),
        "pairs": _pairs(observed, forecast),
        "coverage": float(inside.mean()) if has_interval else math.nan,
        "width": float(np.mean(high - low)) if has_interval else math.nan,
        "n_test": n,
    }


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers; NaN where one is missing."""
    x = np.asarray(values, np.float64)
    return float(np.exp(np.log(x).mean())) if len(x) and (x > 0).all() else math.nan


def _spearman(a: Floats, b: Floats) -> float:
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def _pairs(observed: Floats, forecast: Floats) -> float:
    """Share of pairs with different scores that the forecast puts in the right order; a tie is half right."""
    i, j = np.triu_indices(len(observed), 1)
    truth = np.sign(observed[i] - observed[j])
    agree = truth * np.sign(forecast[i] - forecast[j])
    return float((agree[truth != 0] + 1).mean() / 2) if (truth != 0).any() else math.nan
