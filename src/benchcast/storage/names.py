"""Check names before they are stored: no control characters, which affect terminals, and no overlong names.

Names that are already stored are read without a check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from benchcast.formatting import need_name
from benchcast.records import ModelInfo, Score, Task, TextSet


def check_rows(rows: Iterable[ModelInfo | Score]) -> None:
    """Raise an error for rows of models.csv or scores.csv with an invalid name."""
    for row in rows:
        for part in fields(row):
            value = getattr(row, part.name)
            if isinstance(value, str) and (value or part.name == "model"):
                need_name(value, part.name)


def check_texts(texts: TextSet) -> None:
    """Raise an error for texts with an invalid id or source."""
    for source in texts.sources:
        need_name(source, "source of a text")
    for text in texts:
        need_name(text.id, "id of a text")


def check_tasks(tasks: Iterable[Task]) -> None:
    """Raise an error for tasks with an invalid name."""
    for task in tasks:
        need_name(task.name, "task")
