"""New tasks at the end of study.toml; what the user wrote there stays as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchcast.files import locked, write_text
from benchcast.records import Task
from benchcast.store import Study


def add_tasks(study: Study, tasks: Sequence[Task]) -> Study:
    """The study with more tasks; those it has already are passed over."""
    known = {t.name for t in study.tasks}
    new = [t for t in tasks if t.name not in known]
    if not new:
        return study
    path = study.root / "study.toml"
    with locked(study.root):
        text = path.read_text(encoding="utf-8").rstrip("\n")
        for task in new:
            text += f"\n\n[tasks.{json.dumps(task.name)}]\nchance = {task.chance}\n"
            text += f"sources = {json.dumps(list(task.sources), ensure_ascii=False)}"
        write_text(path, text + "\n")
    return Study.open(study.root)
