"""The tables of a study: texts.jsonl, models.csv and scores.csv.

New names are checked before they are stored: no control characters, which affect terminals, and no overlong names.
Names that are already stored are read without a check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from benchcast.errors import InputError
from benchcast.messages import did_you_mean, is_unicode, need_name, refuse_unknown
from benchcast.records import ModelInfo, NamedTexts, Score, Task, Text, TextSet
from benchcast.study.atomic import TEMPORARY, write_text
from benchcast.study.csv_cells import csv_text
from benchcast.study.reading import need_file, parse_json, read_csv

MODEL_COLUMNS = tuple(f.name for f in fields(ModelInfo))
MODEL_NUMBERS = tuple(f.name for f in fields(ModelInfo) if f.type == "float")
SCORE_COLUMNS = tuple(f.name for f in fields(Score))
Row = TypeVar("Row", ModelInfo, Score)
ROLES = ("train", "validation", "test", "")
SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


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


def read_texts(path: Path) -> TextSet:
    """Read texts.jsonl, or any JSONL file with a key `text`.

    Missing ids are the file's stem and the line number, missing sources the stem.
    """
    need_file(path)
    texts = []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            if line.strip():
                texts.append(_text(line, f"{path}: line {number}", f"{path.stem}-{number}", path.stem))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    if not texts:
        raise InputError(f"{path}: no rows; a study needs at least one text")
    named = [t.unit is not None for t in texts]
    if any(named) and not all(named):
        raise InputError(f"{path}: some rows have a 'text' and some only a 'unit'; all must be of one kind")
    return NamedTexts.of(texts) if any(named) else TextSet.of(texts)


def _text(line: str, where: str, default_id: str, default_source: str) -> Text:
    row = parse_json(line, where)
    named = isinstance(row, dict) and isinstance(row.get("unit"), str) and "text" not in row
    if not named and (not isinstance(row, dict) or not isinstance(row.get("text"), str)):
        raise InputError(f"{where}: a row needs a string 'text'")
    keys = ("id", "source", "unit") if named else ("id", "source", "text", "answer_start", "options")
    refuse_unknown(row, keys, f"{where}: unknown key")
    start = row.get("answer_start")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise InputError(f"{where}: answer_start must be a whole number of bytes, found {start!r}")
    text = Text(
        id=str(row.get("id", default_id)),
        source=str(row.get("source", default_source)),
        text=row.get("text", ""),
        answer_start=start,
        unit=row.get("unit"),
        options=parse_options(where, row.get("options")),
    )
    parts = [("text", text.text), ("id", text.id), ("source", text.source), *(("option", o) for o in text.options)]
    for what, part in parts:
        if not is_unicode(part):
            raise InputError(f"{where}: the {what} contains half a surrogate pair, which is not valid Unicode")
    return text


def parse_options(where: str, value: Any) -> tuple[str, ...]:
    """The options of a row; null and an absent key are none."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(option, str) for option in value):
        raise InputError(f"{where}: options must be a list of strings, the wrong continuations; found {value!r:.60}")
    return tuple(value)


def texts_jsonl(texts: TextSet) -> str:
    """The content of texts.jsonl."""
    return "".join(json.dumps(t.as_row(), ensure_ascii=False) + "\n" for t in texts)


def own_leftover(path: Path, texts: TextSet) -> bool:
    """Whether a killed creation of a study with the same texts may have left this behind."""
    if path.name == "texts.jsonl":
        return path.is_file() and path.read_bytes() == texts_jsonl(texts).encode()
    return path.name == ".lock" or TEMPORARY.fullmatch(path.name) is not None


def read_models(path: Path) -> list[ModelInfo]:
    """Read models.csv; only the column `model` is required."""
    rows = read_csv(path)
    _check_columns(path, rows, MODEL_COLUMNS, required=("model",))
    models = []
    for number, row in enumerate(rows, start=2):
        where = f"{path}: line {number}"
        models.append(parse_model(where, {**row, "model": _name(where, row["model"])}))
    _refuse_twice(path, [m.model for m in models], "model")
    _refuse_circles(path, {m.model: m.base for m in models})
    return models


def _refuse_circles(path: Path, bases: Mapping[str, str]) -> None:
    """Raise an error if a model is its own base, directly or through other models."""
    for model in bases:
        chain = [model]
        while (base := bases.get(chain[-1], "")) and base not in chain:
            chain.append(base)
        if base == model:
            raise InputError(f"{path}: base: {' is made from '.join([*chain, model])}; correct one of these rows")


def parse_model(where: str, cells: Mapping[str, str]) -> ModelInfo:
    """A row of models.csv from the text of its cells; the fields of `ModelInfo` say which cells are numbers."""
    role = cells.get("split", "").strip()
    if role not in ROLES:
        raise InputError(f"{where}: split {role!r} is not train, validation or test{did_you_mean(role, ROLES[:3])}")
    values: dict[str, Any] = {column: cells.get(column, "").strip() for column in MODEL_COLUMNS}
    values |= {column: quantity(where, column, values[column]) for column in MODEL_NUMBERS}
    return ModelInfo(**values)


def read_scores(path: Path, tasks: Sequence[Task]) -> list[Score]:
    """Read scores.csv; a task that is not in `tasks` raises an error."""
    return parse_scores(path, read_csv(path), tasks)


def parse_scores(
    path: Path,
    rows: Sequence[Mapping[str, str]],
    tasks: Sequence[Task],
    *,
    also: Container[str] = (),
    perfect: float = 1.0,
) -> list[Score]:
    """Scores from the rows of a file in the form of scores.csv; model, task and accuracy are required.

    Parameters
    ----------
    path : the file, for messages
    rows : its rows
    tasks : tasks of the study; another task raises an error
    also : names of other tasks that may occur
    perfect : the value of a perfect score: 1, or 100 for percentages
    """
    _check_columns(path, rows, SCORE_COLUMNS, required=SCORE_COLUMNS[:3])
    names = [t.name for t in tasks]
    scores = []
    for number, row in enumerate(rows, start=2):
        where = f"{path}: line {number}"
        task = row["task"] if row["task"] in names else row["task"].strip()
        if task not in names and task not in also:
            known = f"study.toml has {', '.join(names)}" if names else "study.toml has no tasks yet"
            raise InputError(f"{where}: unknown task {task!r}; {known}{did_you_mean(task, names)}")
        accuracy = _number(where, "accuracy", row["accuracy"]) / perfect
        if not 0 <= accuracy <= 1:
            hint = f"; is it a percentage? then write {accuracy / 100:g}" if 1 < accuracy <= 100 else ""
            raise InputError(f"{where}: accuracy {accuracy:g} is not between 0 and 1{hint}")
        scores.append(
            Score(
                model=_name(where, row["model"]),
                task=task,
                accuracy=accuracy,
                n_items=quantity(where, "n_items", row.get("n_items", "")),
                harness=row.get("harness", "").strip(),
                version=row.get("version", "").strip(),
                shots=row.get("shots", "").strip(),
                right_even=quantity(where, "right_even", row.get("right_even", "")),
                stderr=quantity(where, "stderr", row.get("stderr", "")) / perfect,
            )
        )
        if 2 * scores[-1].right_even > scores[-1].n_items + 1:
            raise InputError(
                f"{where}: right_even {row['right_even']} of {row['n_items']} items; half of them are even"
            )
    _refuse_twice(path, [f"{s.model} on {s.task}" for s in scores], "score of")
    return scores


def _check_columns(
    path: Path, rows: Sequence[Mapping[str, str]], columns: Sequence[str], *, required: Sequence[str]
) -> None:
    if not rows:
        raise InputError(f"{path}: no rows")
    refuse_unknown(rows[0], columns, f"{path}: unknown column")
    absent = [c for c in required if c not in rows[0]]
    if absent:
        raise InputError(f"{path}: no column {', '.join(absent)}; found {', '.join(rows[0])}")


def _refuse_twice(path: Path, names: Sequence[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path}: {what} {name!r} occurs twice")
        seen.add(name)


def _name(where: str, cell: str) -> str:
    if not cell.strip():
        raise InputError(f"{where}: a model needs a name")
    return cell.strip()


def _number(where: str, column: str, cell: str, *, scale: float = 1.0) -> float:
    try:
        value = scale * float(cell if scale == 1.0 else cell.strip()[:-1])
    except ValueError as error:
        raise InputError(f"{where}: {column} {cell!r} is not a number") from error
    if not math.isfinite(value):
        raise InputError(f"{where}: {column} is {cell}, not a finite number")
    return value


def quantity(where: str, column: str, cell: str) -> float:
    """A non-negative number such as 7e9, 7B or 1.8b; NaN where the cell is empty."""
    text = cell.strip()
    if not text:
        return math.nan
    value = _number(where, column, cell, scale=SUFFIXES.get(text[-1].lower(), 1.0))
    if value < 0:
        raise InputError(f"{where}: {column} is negative ({cell})")
    return value


def write_models(path: Path, models: Iterable[ModelInfo]) -> None:
    """Write models.csv; the old file is kept if the new one does not read back unchanged."""
    rows = list(models)
    write_text(path, models_csv(rows), check=lambda new: _same(read_models(new), rows, "model"))


def write_scores(path: Path, scores: Iterable[Score], tasks: Sequence[Task]) -> None:
    """Write scores.csv; the old file is kept if the new one does not read back unchanged."""
    rows = list(scores)
    keys = ("model", "task", "accuracy")
    write_text(path, as_csv(SCORE_COLUMNS, rows), check=lambda new: _same(read_scores(new, tasks), rows, *keys))


def _same(read_back: Sequence[Any], written: Sequence[Any], *columns: str) -> None:
    """Raise an error if the rows read back differ from those written."""
    for column in columns:
        for new, old in zip(read_back, written, strict=True):
            if getattr(new, column) != getattr(old, column):
                raise InputError(f"{column} {getattr(old, column)!r} reads back as {getattr(new, column)!r}")


def models_csv(models: Sequence[ModelInfo]) -> str:
    """The content of models.csv; a column after `split` that no model fills is left out."""
    later = MODEL_COLUMNS[MODEL_COLUMNS.index("split") + 1 :]
    empty = {column for column in later if all(blank(getattr(m, column)) for m in models)}
    return as_csv([column for column in MODEL_COLUMNS if column not in empty], models)


def as_csv(columns: Sequence[str], records: Iterable[Any]) -> str:
    """Records as CSV text; NaN is an empty cell, and all values read back unchanged by `read_csv`."""
    return csv_text(columns, ([getattr(record, column) for column in columns] for record in records))


def merge_scores(old: Score, new: Score, *, force: bool) -> Score:
    """Merge two rows of the same score; rows with different numbers of items raise an error unless `force`.

    With `force`, per-item statistics of the old row are dropped.
    """
    if old.n_items == new.n_items or new.n_items != new.n_items or old.n_items != old.n_items:
        return merge(old, new)
    if not force:
        raise InputError(
            f"{new.model!r} on {new.task!r}: {old.n_items:g} items in the study, the file says {new.n_items:g}; "
            "--force replaces the score"
        )
    return merge(replace(old, right_even=float("nan"), stderr=float("nan")), new)


def merge(old: Row, new: Row) -> Row:
    """The new row, with its empty values filled from the old row."""
    return replace(new, **{f.name: getattr(old, f.name) for f in fields(new) if blank(getattr(new, f.name))})


def blank(value: Any) -> bool:
    """Whether a value is an empty cell: an empty string or NaN."""
    return bool(value == "" or value != value)
