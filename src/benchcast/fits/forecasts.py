"""Forecasts of a fit: one model, or many models as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.formatting import nan_to_none, number
from benchcast.frames import arrow_table, pandas_frame

COLUMNS = {
    "model": "string",
    "task": "string",
    "accuracy": "double",
    "low": "double",
    "high": "double",
    "remark": "string",
}
UNSEEN_FAMILY, STRONGER_MODEL = "unseen family", "stronger model"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast accuracy of a model on a task, with a prediction interval.

    If `accuracy`, `low` or `high` is NaN, `remark` gives the reason.
    """

    task: str
    model: str
    accuracy: float  # 0..1
    low: float  # ends of the prediction interval
    high: float
    capability: float  # salience-weighted loss per character; lower is better
    remark: str = ""  # reason why the forecast is missing or unreliable
    level: float = DEFAULT_LEVEL  # nominal coverage of the interval, 0..1
    question: str = UNSEEN_FAMILY  # what the interval is about: a model of an unseen family, or a stronger model

    def __repr__(self) -> str:
        if math.isnan(self.accuracy):
            return f"<no Forecast of {self.model!r} on {self.task}: {self.remark}>"
        ends = f"{level_text(self.level)} interval {number(self.low, '.3f')} to {number(self.high, '.3f')}"
        return f"<Forecast of {self.model!r} on {self.task}: {self.accuracy:.3f}, {ends}>"

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values; a missing number is None, and `remark` gives the reason."""
        return {k: nan_to_none(v) for k, v in asdict(self).items()}

    @classmethod
    def missing(cls, task: str, model: str, why: str, level: float = DEFAULT_LEVEL) -> Forecast:
        """A forecast of NaN values with the reason as its remark."""
        return cls(task, model, math.nan, math.nan, math.nan, math.nan, why, level)


@dataclass(frozen=True, slots=True, repr=False)
class Forecasts:
    """Forecasts of several models, one row for each model and task."""

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
        return f"<Forecasts of {len(models)} model{'s' * (len(models) != 1)} on {', '.join(tasks) or 'no task'}>"

    def to_arrow(self) -> Any:
        """A pyarrow.Table: model, task, accuracy, low, high, remark; missing values are null, with a remark."""
        return arrow_table([{k: getattr(row, k) for k in COLUMNS} for row in self.rows], COLUMNS)

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a pandas.DataFrame; requires pandas."""
        return pandas_frame(self.to_arrow())
