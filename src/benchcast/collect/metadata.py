"""What `collect` adds to models.csv; what the file says already stays as it is."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from benchcast.records import ModelInfo
from benchcast.store import Study

COLUMNS = tuple(f.name for f in fields(ModelInfo) if f.name != "model")


def add_metadata(study: Study, model: str, given: ModelInfo, measured: ModelInfo) -> tuple[str, ...]:
    """Fill the blank cells of a model's row, making the row where there is none.

    Parameters
    ----------
    given : what the user says with the command or in a list of models; its name is not used
    measured : what the loaded model says of itself, used where the user says nothing

    Returns
    -------
    one line for each cell that says something other than `given`
    """
    rows = {row.model: row for row in study.models()}
    listed = rows.get(model, ModelInfo(model))
    cells: dict[str, Any] = {}
    remarks = []
    for column in COLUMNS:
        known, said = getattr(listed, column), getattr(given, column)
        if _blank(known):
            cells[column] = getattr(measured, column) if _blank(said) else said
        elif not _blank(said) and said != known:
            remarks.append(f"models.csv says {column} {_shown(known)} and is left so, {_shown(said)} was given")
    if model not in rows or not all(map(_blank, cells.values())):
        study.add_models([ModelInfo(model, **cells)])
    return tuple(remarks)


def _blank(cell: Any) -> bool:
    return bool(cell == "" or cell != cell)


def _shown(cell: Any) -> str:
    return f"{cell:g}" if isinstance(cell, float) else repr(cell)
