"""Studies from tables of losses, models × columns, of a user or from public files; texts are known by name only.

study = create_table_study("study", Path("losses.csv"), units=["nats", "bpb.*=bits-per-byte"])
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path

import numpy as np

from benchcast.choices import LOSS_UNITS
from benchcast.errors import InputError, StudyError
from benchcast.importers.run_tables import CsvRows, RunTable, choose_columns, describe_left_out, join_tables, read_csvs
from benchcast.importers.table_scores import NO_CHANCE, model_rows, scored_tasks
from benchcast.messages import counted, few, need_name
from benchcast.records import ModelInfo, NamedTexts, Score, Task, Text, TokenLosses
from benchcast.study.atomic import local_folder, write_folder
from benchcast.study.loss_files import LossRows, lay_out, parse_wide
from benchcast.study.model_names import NO_RENAMES, check_renames, renamed, unused_renames
from benchcast.study.study import Study


def create_table_study(
    root: str | Path,
    file: str | Path | Sequence[str | Path],
    *,
    units: Sequence[str] = (),
    seed: int = 0,
    preset: str = "",
    renames: Mapping[str, str] = NO_RENAMES,
    losses: Sequence[str] = (),
    scores: Sequence[str] = (),
    chance: Mapping[str, float] = NO_CHANCE,
    tokens_per_step: float = math.nan,
    on_note: Callable[[str], None] = lambda line: None,
) -> Study:
    """Create a study from a CSV of models × losses, or from exports of W&B, MLflow and TensorBoard.

    Parameters
    ----------
    root : folder to create
    file : CSV whose first column is `model`, where an empty cell is a missing loss; or exports of a tracker, one file,
        several, or a folder with them, whose rows are runs, or `run@step`
    units : `UNIT` for all columns, or `PATTERN=UNIT` for matching columns; the last match is used
    seed : random seed of the study
    preset : name of a suite whose tasks the study gets: "core", "olmes" or "open-llm-leaderboard"; empty: no tasks
    renames : name of a model in the table → name in the study; patterns with one `*` on each side, too
    losses : patterns of columns that are losses, such as "eval/*loss*"; none: what is not plainly something else
    scores : patterns of columns that are scores, such as "eval/*/acc", where `*` stands for the task
    chance : task → accuracy of random guessing (0..1), for tasks that no preset has
    tokens_per_step : training tokens of one step, for rows with a step; NaN: unknown
    on_note : called with one line on each choice that was made

    Returns
    -------
    The study, with the losses of every model in the unit of their column, the chosen scores and their tasks.

    >>> import benchcast as bc
    >>> _ = Path("losses.csv").write_text("model,facts,code\\nmy-7b,0.8,0.9\\n")
    >>> bc.datasets.create_table_study("new", "losses.csv", units=["bits-per-byte"])
    <Study 'new': 0 tasks>
    """
    check_renames(renames)
    paths = [Path(file)] if isinstance(file, str | Path) else [Path(path) for path in file]
    read = read_csvs(paths)
    table = join_tables(read) or _plain_table(read)
    chosen = choose_columns(table, losses=losses, scores=scores)
    table, dropped = complete_rows(table, chosen.losses) if table.kind else (table, "")
    names = new_names(table, renames)
    texts = _columns(paths[0], chosen.losses, table, units)
    stored = losses_of_rows(table, texts, names)
    found = scored_tasks(table, chosen, names, texts, chance=chance, preset=preset)
    infos = model_rows(table, names, tokens_per_step) if table.kind or losses or scores else []

    def fill(folder: Path) -> None:
        study = Study.create(folder, texts, seed=seed)
        study.add_losses(stored)
        if found.tasks:
            study = study.add_tasks(found.tasks)
        if infos:
            study.add_models(infos)
        if found.scores:
            study.add_scores(found.scores)

    created = create_whole(root, fill)
    unused = unused_renames(renames, names)
    for line in (dropped, describe_left_out(chosen.left_out), *found.notes, *unused):
        if line:
            on_note(line)
    return created


def _plain_table(read: CsvRows) -> RunTable:
    """A table of losses that was made by hand: the column model, then one for each loss."""
    path, rows = read[0]
    if len(read) > 1:
        raise InputError(f"{read[1][0]}: one table of losses makes a study; several files can be exports of trackers")
    header = list(rows[0]) if rows else []
    if header[:1] != ["model"] or len(header) < 2:
        start = ", ".join(header[:3]) or "no rows"
        raise InputError(f"{path}: a table of losses has the columns model, then one for each loss; found {start}")
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["model"] in cells:
            raise InputError(f"{path}: model {row['model']!r} occurs twice among the files")
        cells[row["model"]] = {c: row[c] for c in header[1:] if row[c].strip()}
    return RunTable(where=str(path), kind="", columns=tuple(header[1:]), rows=cells)


def new_names(table: RunTable, renames: Mapping[str, str]) -> dict[str, str]:
    """Row of a table → name of its model in the study."""
    names = {row: renamed(row, renames) or row for row in table.rows}
    for name, count in Counter(names.values()).items():
        if count > 1:
            raise InputError(f"{table.where}: --rename gives {counted(count, 'row')} the name {name!r}")
    return names


def complete_rows(table: RunTable, columns: Sequence[str]) -> tuple[RunTable, str]:
    """The rows that have all of these columns, and a line on the others; an error if none has."""
    complete = {name: row for name, row in table.rows.items() if all(c in row for c in columns)}
    if not complete:
        raise InputError(
            f"{table.where}: no row has all of {few(columns)}; choose columns that are logged together with --losses"
        )
    missing = [name for name in table.rows if name not in complete]
    line = f"left out {counted(len(missing), 'row')} that lack one of the losses: {few(missing)}" if missing else ""
    return replace(table, rows=complete), line


def losses_of_rows(table: RunTable, texts: NamedTexts, names: Mapping[str, str]) -> list[TokenLosses]:
    """The losses of each row on the columns that the texts name."""
    columns = [t.id for t in texts]
    rows = [{"model": names[name], **{c: row.get(c, "") for c in columns}} for name, row in table.rows.items()]
    return parse_wide(Path(table.where), rows, texts, unit=None)


def losses_of_tables(
    paths: Sequence[Path], texts: NamedTexts, renames: Mapping[str, str], *, unit: str | None
) -> tuple[list[TokenLosses], tuple[str, ...]]:
    """Losses from further tables for a study that was made from one, and the names of the models in the tables.

    Tables are wide CSV, or exports of trackers.
    """
    read = read_csvs(paths)
    table = join_tables(read)
    if table is None:
        wide = [losses for path, rows in read for losses in parse_wide(path, rows, texts, unit=unit)]
        of_study = [replace(losses, model=renamed(losses.model, renames) or losses.model) for losses in wide]
        return of_study, tuple(losses.model for losses in wide)
    complete, _ = complete_rows(table, [t.id for t in texts])
    return losses_of_rows(complete, texts, new_names(complete, renames)), tuple(table.rows)


def create_whole(root: str | PathLike[str], fill: Callable[[Path], object]) -> Study:
    """Create a study atomically; `fill` writes it into the empty folder that it receives."""
    root = local_folder(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise StudyError(f"{root}: exists and is not empty; a study needs a folder of its own")
    write_folder(root, fill)
    return Study.open(root)


def _columns(file: Path, columns: Sequence[str], table: RunTable, units: Sequence[str]) -> NamedTexts:
    """The columns of a table as texts; the source of a column is its name up to the first dot."""
    names = [need_name(name, f"{file}: column {list(table.columns).index(name) + 2}") for name in columns]
    empty = [name for name in names if not any(name in row for row in table.rows.values())]
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
