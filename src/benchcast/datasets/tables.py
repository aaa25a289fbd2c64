"""Tables read from public files, and the study built from them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchcast.errors import InputError
from benchcast.records import ModelInfo, NamedTexts, Score, Task, Text, TokenLosses
from benchcast.storage.loss_rows import LossRows, lay_out
from benchcast.store import Study


@dataclass(frozen=True)
class PublicStudyTables:
    """The tables of a public study."""

    columns: Sequence[Text]  # texts that are known by name only
    losses: Mapping[str, Sequence[float]]  # model → one value for each column, in order
    models: Sequence[ModelInfo]
    scores: Sequence[Score]
    tasks: Sequence[Task]


def write_tables(folder: Path, tables: PublicStudyTables) -> Study:
    """Create a study from these tables in an empty folder."""
    texts = NamedTexts.of(tables.columns)
    study = Study.create(folder, texts, tasks=tables.tasks)
    study.add_losses([_losses(model, values, texts) for model, values in tables.losses.items()])
    study.add_models(tables.models)
    study.add_scores(tables.scores)
    return study


def _losses(model: str, values: Sequence[float], texts: NamedTexts) -> TokenLosses:
    ids = [t.id for t in texts]
    rows = LossRows.of(model, model, ids, [np.array([0, 1])] * len(ids), [np.array([v]) for v in values])
    return lay_out(rows, texts, {"backend": "table"})


def column(name: str, source: str, unit: str) -> Text:
    """A text that is known by name only, with the unit of its losses."""
    return Text(name, source, "", unit=unit)


def read_rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a public CSV; an error if it lacks one of the `needed` columns."""
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        absent = [c for c in needed if c not in (reader.fieldnames or ())]
        if absent:
            raise InputError(f"{path}: no column {', '.join(absent[:3])}; is it the file of the pinned version?")
        return list(reader)


def number(cell: str) -> float:
    """A cell as a number; NaN if it is empty."""
    return float(cell) if cell.strip() else float("nan")
