"""Studies from tables of losses, models × columns, of a user or from public files; texts are known by name only.

study = create_table_study("study", Path("losses.csv"), units=["nats", "bpb.*=bits-per-byte"])
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path

import numpy as np

from benchcast.choices import LOSS_UNITS
from benchcast.errors import InputError, StudyError
from benchcast.importers.presets import preset_tasks
from benchcast.messages import few, need_name
from benchcast.records import ModelInfo, NamedTexts, Score, Task, Text
from benchcast.study.atomic import local_folder, write_folder
from benchcast.study.loss_files import LossRows, lay_out, parse_wide
from benchcast.study.model_names import NO_RENAMES, check_renames, renamed
from benchcast.study.reading import read_csv
from benchcast.study.study import Study


def create_table_study(
    root: str | Path,
    file: str | Path,
    *,
    units: Sequence[str] = (),
    seed: int = 0,
    preset: str = "",
    renames: Mapping[str, str] = NO_RENAMES,
) -> Study:
    """Create a study from a CSV whose first column is `model` and whose other columns are losses.

    Parameters
    ----------
    root : folder to create
    file : CSV; an empty cell is a missing loss
    units : `UNIT` for all columns, or `PATTERN=UNIT` for matching columns; the last match is used
    seed : random seed of the study
    preset : name of a suite whose tasks the study gets: "core", "olmes" or "open-llm-leaderboard"; empty: no tasks
    renames : name of a model in the table → name in the study; patterns with one `*` on each side, too

    Returns
    -------
    The study, with the losses of every model in the unit of their column.

    >>> import benchcast as bc
    >>> _ = Path("losses.csv").write_text("model,facts,code\\nmy-7b,0.8,0.9\\n")
    >>> bc.datasets.create_table_study("new", "losses.csv", units=["bits-per-byte"])
    <Study 'new': 0 tasks>
    """
    path = Path(file)
    check_renames(renames)
    rows = [{**row, "model": renamed(row.get("model", ""), renames) or row.get("model", "")} for row in read_csv(path)]
    texts = _columns(path, rows, units)
    losses = parse_wide(path, rows, texts, unit=None)
    tasks = preset_tasks(preset, texts) if preset else []

    def fill(folder: Path) -> None:
        study = Study.create(folder, texts, seed=seed)
        study.add_losses(losses)
        if tasks:
            study.add_tasks(tasks)

    return create_whole(root, fill)


def create_whole(root: str | PathLike[str], fill: Callable[[Path], object]) -> Study:
    """Create a study atomically; `fill` writes it into the empty folder that it receives."""
    root = local_folder(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise StudyError(f"{root}: exists and is not empty; a study needs a folder of its own")
    write_folder(root, fill)
    return Study.open(root)


def _columns(file: Path, rows: Sequence[Mapping[str, str]], units: Sequence[str]) -> NamedTexts:
    """The columns of a table as texts; the source of a column is its name up to the first dot."""
    header = list(rows[0]) if rows else []
    if header[:1] != ["model"] or len(header) < 2:
        start = ", ".join(header[:3]) or "no rows"
        raise InputError(f"{file}: a table of losses has the columns model, then one for each loss; found {start}")
    names = [need_name(column, f"{file}: column {i}") for i, column in enumerate(header[1:], start=2)]
    empty = [name for name in names if not any(row[name].strip() for row in rows)]
    if empty:
        raise InputError(f"{file}: no model has a loss in column {few(empty)}; leave it out of the table")
    return NamedTexts.of(
        column(name, name.partition(".")[0] if "." in name else file.stem, unit)
        for name, unit in zip(names, _units(names, units), strict=True)
    )


def _units(columns: Sequence[str], options: Sequence[str]) -> list[str]:
    """The unit of each column; empty if no option matches."""
    units = [""] * len(columns)
    for option in options:
        pattern, _, unit = option.rpartition("=")
        if unit not in LOSS_UNITS:
            raise InputError(
                f"--unit {option}: the unit must be {' or '.join(LOSS_UNITS)}, for all columns or PATTERN=UNIT"
            )
        matched = [i for i, column in enumerate(columns) if fnmatchcase(column, pattern or "*")]
        if not matched:
            raise InputError(f"--unit {option}: no column matches {pattern!r}; columns: {', '.join(columns[:4])}, …")
        for i in matched:
            units[i] = unit
    return units


@dataclass(frozen=True)
class PublicStudyTables:
    """What the files of a public study hold."""

    columns: Sequence[Text]  # texts that are known by name only
    losses: Mapping[str, Sequence[float]]  # model → one value for each column, in order
    models: Sequence[ModelInfo]
    scores: Sequence[Score]
    tasks: Sequence[Task]


def write_tables(folder: Path, tables: PublicStudyTables) -> Study:
    """Create a study from these tables in an empty folder."""
    texts = NamedTexts.of(tables.columns)
    ids, bounds = [t.id for t in texts], [np.array([0, 1])] * len(texts)
    study = Study.create(folder, texts, tasks=tables.tasks)
    rows = [
        LossRows.of(m, m, ids, bounds=bounds, nats=[np.array([v]) for v in values])
        for m, values in tables.losses.items()
    ]
    study.add_losses([lay_out(of_model, texts, {"backend": "table"}) for of_model in rows])
    study.add_models(tables.models)
    study.add_scores(tables.scores)
    return study


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
