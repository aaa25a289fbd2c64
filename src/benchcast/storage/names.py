"""Names on their way into a study: no control characters, which steer a terminal, and no name without an end.

What is stored already is read as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from benchcast.formatting import need_name
from benchcast.records import ModelInfo, Score, Task, TextSet


def check_rows(rows: Iterable[ModelInfo | Score]) -> None:
    """Refuse rows of models.csv or scores.csv with a name that may not be stored."""
    for row in rows:
        for part in fields(row):
            value = getattr(row, part.name)
            if isinstance(value, str) and (value or part.name == "model"):
                need_name(value, part.name)


def check_texts(texts: TextSet) -> None:
    """Refuse texts whose ids or sources may not be stored."""
    for source in texts.sources:
        need_name(source, "source of a text")
    for text in texts:
        need_name(text.id, "id of a text")


def check_tasks(tasks: Iterable[Task]) -> None:
    """Refuse tasks whose names may not be stored."""
    for task in tasks:
        need_name(task.name, "task")
