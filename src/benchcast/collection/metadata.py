"""Fill blank cells of models.csv with metadata of a collected model; existing values are kept."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from benchcast.records import ModelInfo
from benchcast.storage.tables import blank
from benchcast.store import Study

COLUMNS = tuple(f.name for f in fields(ModelInfo) if f.name != "model")


def add_metadata(study: Study, model: str, user_info: ModelInfo, measured: ModelInfo) -> tuple[str, ...]:
    """Fill the blank cells of a model's row; the row is added if it is missing.

    Parameters
    ----------
    study : the study whose models.csv is edited
    model : the model's name
    user_info : values from the command line or the list of models; its name is not used
    measured : values read from the loaded model, used where the user gives none

    Returns
    -------
    one line for each existing value that differs from the user's
    """
    by_model = {row.model: row for row in study.models()}
    listed = by_model.get(model, ModelInfo(model))
    cells: dict[str, Any] = {}
    remarks = []
    for column in COLUMNS:
        listed_value, user_value = getattr(listed, column), getattr(user_info, column)
        if blank(listed_value):
            cells[column] = getattr(measured, column) if blank(user_value) else user_value
        elif not blank(user_value) and user_value != listed_value:
            remarks.append(
                f"models.csv has {column} {_shown(listed_value)}, which is kept; {_shown(user_value)} was given"
            )
    if model not in by_model or not all(map(blank, cells.values())):
        study.add_models([ModelInfo(model, **cells)])
    return tuple(remarks)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)
