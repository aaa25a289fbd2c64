"""Read scores from exports of W&B, MLflow and TensorBoard: columns such as `eval/arc_easy/acc`, a row for each run."""

from __future__ import annotations

from benchcast.errors import InputError
from benchcast.importers.run_tables import join_tables, kind_of_table, number_in, task_in, task_of_column, what_it_is
from benchcast.importers.scores.entries import FRACTION, PERCENT, ReaderOptions, ScoreEntry, ScoreFile, fraction
from benchcast.messages import few
from benchcast.records import Score


def is_export(header: list[str]) -> bool:
    """Whether a header is that of an export of a tracker."""
    return bool(kind_of_table(header))


def read_export(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """Scores of the chosen columns, else of those whose name ends in a metric; empty cells are left out."""
    table = join_tables([(file.path, file.rows)])
    assert table is not None  # `is_export` has seen its header
    if options.columns:
        tasks = {c: task_of_column(c, options.columns) for c in table.columns}
    else:
        tasks = {c: task_in(c)[0] if what_it_is(table, c) == "accuracy" else "" for c in table.columns}
    columns = {column: task for column, task in tasks.items() if task}
    if not columns:
        raise InputError(
            f"{file.path}: no column of scores; choose with --scores, such as --scores 'eval/*/acc'; "
            f"columns: {few(table.columns, 12)}"
        )
    entries = []
    for column, task in columns.items():
        cells = {row: values[column] for row, values in table.rows.items() if column in values}
        above = any(number_in(cell) > FRACTION for cell in cells.values())
        perfect = options.perfect(PERCENT if above else FRACTION)
        for row, cell in cells.items():
            where = f"{file.path}: {row}: {column}"
            accuracy = fraction(where, cell, perfect)
            if accuracy is not None:
                entries.append(ScoreEntry(where, Score(row, task, accuracy), task_in(column)[1]))
    return entries
