"""Studies from folders of tables, such as those of public models that the package does not fetch.

A folder has losses.csv (models × columns), models.csv (model, family, params, tokens, flops, split), scores.csv (model,
task, accuracy) and tasks.csv (task, chance; answer and choice: names of the columns measured on the right answers and
of those with choice losses, with spaces between them, or empty).
`$BENCHCAST_TABLES` names such a folder, or one that contains several.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchcast.importers.loss_table import PublicStudyTables, column, number, read_rows, write_tables
from benchcast.records import ModelInfo, Score, Task
from benchcast.study.study import Study

VARIABLE = "BENCHCAST_TABLES"
FILES = ("losses.csv", "models.csv", "scores.csv", "tasks.csv")


def table_folders() -> list[Path]:
    """The folders with tables that `$BENCHCAST_TABLES` names; none without it."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        return []
    root = Path(named)
    return [folder for folder in (root, *sorted(root.iterdir())) if all((folder / name).is_file() for name in FILES)]


def read_folder(folder: Path) -> PublicStudyTables:
    """The tables of a folder."""
    losses = read_rows(folder / "losses.csv", ["model"])
    names = [name for name in losses[0] if name != "model"]
    return PublicStudyTables(
        columns=[column(name, name, "") for name in names],
        losses={row["model"]: [number(row[name]) for name in names] for row in losses},
        models=[
            ModelInfo(
                model=row["model"],
                family=row.get("family", ""),
                params=number(row.get("params") or ""),
                tokens=number(row.get("tokens") or ""),
                flops=number(row.get("flops") or ""),
                split=row.get("split", ""),
            )
            for row in read_rows(folder / "models.csv", ["model"])
        ],
        scores=[
            Score(row["model"], row["task"], number(row["accuracy"]))
            for row in read_rows(folder / "scores.csv", ["model", "task", "accuracy"])
        ],
        tasks=[
            Task(
                row["task"],
                number(row["chance"]),
                answers=tuple((row.get("answer") or "").split()),
                choices=tuple((row.get("choice") or "").split()),
            )
            for row in read_rows(folder / "tasks.csv", ["task", "chance"])
        ],
    )


def study_of_tables(folder: Path, root: Path) -> Study:
    """A study from the tables of a folder, created in the empty folder `root`."""
    return write_tables(root, read_folder(folder))
