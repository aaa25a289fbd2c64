"""Files of losses: JSONL, Parquet and wide CSV, checked against the texts and laid out in their order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchcast.choices import LOSS_UNITS
from benchcast.errors import InputError, StudyError
from benchcast.messages import is_unicode
from benchcast.records import CHOICE_LOSSES, Floats, Ints, NamedTexts, TextSet, TokenLosses
from benchcast.study.atomic import file_name
from benchcast.study.parquet import decoded, read_metadata, read_schema, read_table, write_table
from benchcast.study.reading import need_file, parse_json, read_csv

MOST_NATS = 1e9  # for one token; a larger value cannot be a loss
COLUMNS = ("text_id", "bounds", "nats")
HABIT = "bos_habit"  # what the tokenizer puts before a text, where the user asked for something else
ABOUT = (
    *("model", "tokenizer", "bos", HABIT, "backend", "backend_version", "dtype", "texts"),
    *("check", "context", "asked", "refused", "options", "benchcast"),
)


def read_losses(path: Path, texts: TextSet, *, unit: str | None = None) -> list[TokenLosses]:
    """Read the losses of all models in a file.

    Parameters
    ----------
    path : .jsonl, .parquet or .csv file; docs/formats.md describes them
    texts : the texts that were scored
    unit : unit of a wide CSV, "bits-per-byte" or "nats"

    Returns
    -------
    The losses of each model, in nats, checked against the texts.
    """
    kind = path.suffix.lower()
    need_file(path)
    if kind == ".csv":
        return read_wide(path, texts, unit)
    if kind in (".jsonl", ".ndjson"):
        return _by_model(path, _jsonl_rows(path), texts)
    if kind == ".parquet":
        return [read_parquet(path, texts)]
    raise InputError(f"{path}: losses come as .jsonl, .parquet or a wide .csv, not {kind or 'a file without ending'!r}")


def read_growing(path: Path, texts: TextSet) -> tuple[list[TokenLosses], dict[str, str]]:
    """Read a JSONL file that another process is still writing; an unfinished last line is ignored.

    Returns
    -------
    The losses of models with all texts, and for each other model a description of its missing texts.
    """
    rows, tail = [], ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                tail = ", the last line is being written"
            elif line.strip():
                rows.append(_jsonl_row(line, f"{path}: line {number}"))
    counts = Counter(_model_of(row, path) for row in rows)
    growing = {m: f"{n} of {len(texts)} texts{tail}" for m, n in counts.items() if n < len(texts)}
    if not counts:
        return [], {path.stem: f"no whole line{tail}"}
    complete = [row for row in rows if _model_of(row, path) not in growing]
    return (_by_model(path, complete, texts) if complete else []), growing


def _jsonl_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _jsonl_row(line, f"{path}: line {number}")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 text ({error.reason}); is it really JSONL?") from error


def _jsonl_row(line: str, where: str) -> dict[str, Any]:
    row = parse_json(line, where)
    if not isinstance(row, dict) or not set(COLUMNS) <= row.keys():
        present = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        raise InputError(f"{where}: a row needs text_id, bounds and nats, found {present}")
    return row


def _model_of(row: dict[str, Any], path: Path) -> str:
    return str(row.get("model") or path.stem)


def _by_model(path: Path, rows: Iterable[dict[str, Any]], texts: TextSet) -> list[TokenLosses]:
    """Losses of each model; rows without a `model` belong to the model named by the file's stem."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(_model_of(row, path), []).append(row)
    if not grouped:
        raise InputError(f"{path}: no rows")
    losses = []
    for model, model_rows in grouped.items():
        ids = [str(r["text_id"]) for r in model_rows]
        bounds, nats = ([_numbers(r, what, path) for r in model_rows] for what in ("bounds", "nats"))
        choices = {
            name: np.array([_number(r, name, path) for r in model_rows])
            for name in CHOICE_LOSSES
            if any(name in r for r in model_rows)
        }
        losses.append(lay_out(LossRows.of(path, model, ids, bounds=bounds, nats=nats, choices=choices), texts, {}))
    return losses


def _number(row: dict[str, Any], what: str, path: Path) -> float:
    """One number of a row; null and an absent key are NaN, an explicit NaN or infinity is an error."""
    value, where = row.get(what), f"{path}: text {row['text_id']!r}"
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < math.inf:
        raise InputError(f"{where}: {what} must be a finite number or null, found {str(value)[:40]}")
    return float(value)


def _numbers(row: dict[str, Any], what: str, path: Path) -> npt.NDArray[Any]:
    """The bounds or nats of a row; null becomes NaN, an explicit NaN or infinity is an error."""
    values, where = row[what], f"{path}: text {row['text_id']!r}"
    try:
        without_null = isinstance(values, list) and None not in values
        array = np.array(values if without_null else [0.0 if v is None else v for v in values])
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            raise ValueError(f"found {str(values)[:40]}")
        if what == "bounds":
            if not without_null or not np.array_equal(array, np.floor(array)) or (np.abs(array) > 2**53).any():
                raise ValueError("not whole numbers of bytes")
            return array.astype(np.int64)
        if not np.isfinite(array).all():
            raise InputError(f"{where} has nats that are NaN or infinite; write null where there is no loss")
        return array.astype(np.float64) if without_null else np.where([v is None for v in values], math.nan, array)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: {what} must be a list of numbers ({error})") from error


def read_parquet(path: Path, texts: TextSet) -> TokenLosses:
    """Read one model's losses from Parquet, as the study stores them or as written elsewhere with these columns."""
    table = read_table(
        path,
        (*COLUMNS, *CHOICE_LOSSES, "model"),
        rows=8 * len(texts) + 100,
        values=8 * (most_tokens(texts) + len(texts)),
    )
    missing = set(COLUMNS) - set(table.column_names)
    if missing:
        raise InputError(f"{path}: no column {', '.join(sorted(missing))}; found {', '.join(read_schema(path).names)}")
    if not table.num_rows:
        raise InputError(f"{path}: no rows")
    metadata = decoded(table.schema.metadata)
    about = {key: metadata[key] for key in ABOUT if key in metadata}
    if about.get("texts", texts.digest) != texts.digest:
        raise InputError(
            f"{path}: scored on texts {about['texts']}, the study's texts are {texts.digest}; "
            "was another version of the texts scored? (collect the losses again)"
        )
    default_name = about.pop("model", path.stem)
    names = {m or default_name for m in table["model"].to_pylist()} if "model" in table.column_names else {default_name}
    if len(names) != 1:
        raise InputError(f"{path}: a Parquet file holds one model, found {len(names)}")
    bounds, bound_counts = _flat(path, table, "bounds")
    nats, counts = _flat(path, table, "nats")
    rows = LossRows(
        where=path,
        model=str(names.pop()),
        ids=[str(i) for i in table["text_id"].to_pylist()],
        bounds=bounds,
        bound_counts=bound_counts,
        nats=nats,
        counts=counts,
        choices={name: _one_per_row(path, table, name) for name in CHOICE_LOSSES if name in table.column_names},
    )
    return lay_out(rows, texts, about)


def stored_name(path: Path) -> str:
    """The model of a loss file of the study, from its metadata; an error if the file has another model's name."""
    try:
        name = read_metadata(path).get("model", path.stem)
    except InputError as error:
        raise StudyError(f"{error}; remove it and import it again") from error
    if path.name != f"{file_name(name)}.parquet":
        raise StudyError(f"{path}: holds losses of model {name!r}; move it out of the study and import it")
    return name


def _flat(path: Path, table: pa.Table, what: str) -> tuple[npt.NDArray[Any], Ints]:
    """The concatenated values of a list column, and the length of each row; null in nats becomes NaN."""
    array = table[what].combine_chunks()
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)) or array.null_count:
        raise InputError(f"{path}: column {what} must hold a list of numbers for every text, found {array.type}")
    kind = array.type.value_type
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise InputError(f"{path}: column {what} must hold numbers, found {kind}")
    flat, offsets = array.flatten(), array.offsets.to_numpy()
    try:
        if what == "bounds":
            values: npt.NDArray[Any] = flat.cast(pa.int64()).to_numpy()
        else:
            values = flat.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{path}: column {what} must hold numbers, without gaps in bounds ({error})") from error
    if what != "bounds":
        wrong = np.isnan(values) & ~flat.is_null().to_numpy(zero_copy_only=False)
        if wrong.any():
            row = int(np.searchsorted(offsets - offsets[0], np.argmax(wrong), side="right")) - 1
            text_id = str(table["text_id"][row].as_py())
            raise InputError(f"{path}: text {text_id!r} has {what} that are NaN; write null where there is no loss")
    return values, np.diff(offsets).astype(np.int64)


def _one_per_row(path: Path, table: pa.Table, what: str) -> Floats:
    """The values of a column of numbers; null becomes NaN, an explicit NaN is an error."""
    column = table[what].combine_chunks()
    try:
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{path}: column {what} must hold one number or null for every text ({error})") from error
    wrong = np.isnan(values) & column.is_valid().to_numpy(zero_copy_only=False)
    if wrong.any():
        text_id = str(table["text_id"][int(np.argmax(wrong))].as_py())
        raise InputError(f"{path}: text {text_id!r} has a {what} that is NaN; write null where there is none")
    return np.asarray(values, np.float64)


def read_wide(path: Path, texts: TextSet, unit: str | None) -> list[TokenLosses]:
    """Read a CSV with a column `model` and one column for each text; each text is then one token.

    For texts that are known by name only, values are stored unchanged, and `unit` must be None or the columns' unit.
    """
    if unit not in LOSS_UNITS and not isinstance(texts, NamedTexts):
        raise InputError(f"{path}: a wide CSV needs a unit; add --unit {' or --unit '.join(LOSS_UNITS)}")
    return parse_wide(path, read_csv(path), texts, unit=unit)


def parse_wide(path: Path, rows: Sequence[Mapping[str, str]], texts: TextSet, *, unit: str | None) -> list[TokenLosses]:
    """Losses from the rows of a wide CSV that has been read; `path` is for messages."""
    named = isinstance(texts, NamedTexts)
    if not rows or "model" not in rows[0]:
        raise InputError(f"{path}: a wide CSV of losses needs a column 'model' and one column for each text")
    columns = [c for c in rows[0] if c != "model"]
    lengths = np.diff(texts.starts)
    given = set(columns)
    for text in texts if named and unit is not None else ():
        if text.id in given and text.unit not in ("", unit):
            raise InputError(f"{path}: --unit {unit}, but column {text.id!r} of the study is in {text.unit}")
    losses = []
    for row in rows:
        bounds, nats = [], []
        for text_id in columns:
            if text_id not in texts.index:
                raise InputError(f"{path}: column {text_id!r} is not a text of the study")
            length = int(lengths[texts.index[text_id]])
            value = _cell(row[text_id], f"{path}: model {row['model']!r}, text {text_id!r}")
            nats.append(np.array([value * length * math.log(2) if unit == "bits-per-byte" and not named else value]))
            bounds.append(np.array([0, length]))
        where = f"{path}: model {row['model']!r}"
        loss_rows = LossRows.of(where, row["model"], columns, bounds=bounds, nats=nats)
        losses.append(lay_out(loss_rows, texts, {"backend": "table" if named else f"wide CSV, {unit}"}))
    return losses


def _cell(cell: str, where: str) -> float:
    if cell.strip() == "":
        return math.nan
    try:
        value = float(cell)
    except ValueError as error:
        raise InputError(f"{where}: {cell!r} is not a number") from error
    if not math.isfinite(value):
        raise InputError(f"{where}: {cell}; leave the cell empty where there is no loss")
    return value


def write_parquet(path: Path, losses: TokenLosses, texts: TextSet, *, half: bool = False) -> None:
    """Write a loss file of the study: one row for each text, nats as float32, or as float16 with `half`.

    A choice loss that the model has of no text has no column.
    """
    bounds = np.concatenate(losses.text_bounds(texts.starts)).astype(np.int32)
    nats = losses.nats.astype(np.float16 if half else np.float32)
    table = pa.table(
        {
            "text_id": pa.array([t.id for t in texts]),
            "bounds": _lists(losses.counts + 1, pa.array(bounds)),
            "nats": _lists(losses.counts, pa.array(nats, from_pandas=True)),
            **{name: pa.array(values, pa.float64(), from_pandas=True) for name, values in losses.choices.items()},
        }
    )
    # Bounds increase in small steps and ids share prefixes: delta encoding saves a third of the space.
    delta = {"text_id": "DELTA_BYTE_ARRAY", "bounds.list.element": "DELTA_BINARY_PACKED"}
    write_table(path, table, {**losses.about, "model": losses.model, "texts": texts.digest}, delta=delta)


def _lists(counts: Ints, values: pa.Array) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def is_half(path: Path) -> bool:
    """Whether the losses are stored as float16."""
    kind = read_schema(path).field("nats").type
    return bool(pa.types.is_list(kind) and kind.value_type == pa.float16())


@dataclass(frozen=True, slots=True)
class LossRows:
    """Unchecked losses of one model: rows in any order, one for each text, concatenated."""

    where: Path | str  # origin, for messages
    model: str
    ids: Sequence[str]  # text id of each row
    bounds: Ints  # in bytes
    bound_counts: Ints  # number of bounds in each row: number of tokens + 1
    nats: Floats
    counts: Ints  # number of tokens in each row
    choices: Mapping[str, Floats] = field(default_factory=dict)  # name of `CHOICE_LOSSES` → value of each row or NaN

    @classmethod
    def of(
        cls,
        where: Path | str,
        model: str,
        ids: Sequence[str],
        *,
        bounds: Sequence[Ints],
        nats: Sequence[Floats],
        choices: Mapping[str, Floats] | None = None,
    ) -> LossRows:
        """Build from lists with one entry for each text."""
        if not ids:
            raise InputError(f"{where}: no texts")
        return cls(
            where=where,
            model=model,
            ids=ids,
            bounds=np.concatenate(bounds),
            bound_counts=np.array([*map(len, bounds)], np.int64),
            nats=np.concatenate(nats),
            counts=np.array([*map(len, nats)], np.int64),
            choices=choices or {},
        )

    @property
    def first(self) -> Ints:
        """Index of the first bound of each row."""
        return np.concatenate([[0], np.cumsum(self.bound_counts)[:-1]])


def most_tokens(texts: TextSet) -> int:
    """Upper limit on the tokens of the texts under any tokenizer, including zero-width tokens."""
    return 8 * int(texts.starts[-1]) + 64 * len(texts) + 1000


def lay_out(rows: LossRows, texts: TextSet, about: dict[str, str]) -> TokenLosses:
    """Check rows against the texts and put them in the order of the texts.

    Parameters
    ----------
    rows : the losses of one model
    texts : the texts that were scored
    about : tokenizer, backend and other metadata of the losses

    Returns
    -------
    The losses. A text without a row is one token without a loss, so it is outside the common support.
    """
    counts, nats = rows.counts, rows.nats
    name = rows.model.strip()  # as in models.csv and scores.csv
    if not name:
        raise InputError(f"{rows.where}: a model needs a name")
    if not is_unicode(name):
        raise InputError(
            f"{rows.where}: model {rows.model!r} contains half a surrogate pair, which is not valid Unicode"
        )
    order = _row_of_text(rows, texts)
    number = [texts.index[i] for i in rows.ids]
    _check_rows(rows, np.diff(texts.starts)[number])
    right = np.delete(rows.bounds, rows.first) + np.repeat(texts.starts[number], counts)
    if len(rows.ids) == len(texts) and np.array_equal(order, np.arange(len(texts))):
        edges = right
    else:
        ends = np.split(right, np.cumsum(counts)[:-1])
        edges = np.concatenate([ends[r] if r >= 0 else texts.starts[i + 1 : i + 2] for i, r in enumerate(order)])
        parts = np.split(nats, np.cumsum(counts)[:-1])
        nats = np.concatenate([parts[r] if r >= 0 else [np.nan] for r in order])
        counts = np.array([counts[r] if r >= 0 else 1 for r in order], np.int64)
    losses = TokenLosses(
        model=name,
        counts=counts,
        edges=np.concatenate([[0], edges]).astype(np.int64),
        nats=np.maximum(nats, 0.0),
        about={**about, "texts": texts.digest},
    )
    choices = {name: _choices_of_texts(rows, order, name) for name in rows.choices}
    return losses.with_choices({name: values for name, values in choices.items() if np.isfinite(values).any()})


def _choices_of_texts(rows: LossRows, order: Ints, name: str) -> Floats:
    """One choice loss of each text, NaN without one, checked."""
    values = rows.choices[name]
    wrong = np.isinf(values) | (values < -1e-6)
    if wrong.any():
        at = int(np.argmax(wrong))
        hint = "; a choice loss is −ln of the share of the right answer" if values[at] < 0 else ""
        raise InputError(f"{rows.where}: text {rows.ids[at]!r} has an impossible {name} ({values[at]:.4g}){hint}")
    return np.where(order >= 0, np.maximum(values, 0.0)[order], np.nan)


def _row_of_text(rows: LossRows, texts: TextSet) -> Ints:
    """Index of the row of each text; −1 without a row."""
    if len(rows.ids) == len(texts) and all(i == t.id for i, t in zip(rows.ids, texts, strict=True)):
        return np.arange(len(texts))
    order = np.full(len(texts), -1)
    for row, text_id in enumerate(rows.ids):
        where = f"{rows.where}: text {text_id!r}"
        if text_id not in texts.index:
            raise InputError(f"{where} is not in the study; are these losses of another set of texts?")
        if order[texts.index[text_id]] >= 0:
            raise InputError(f"{where} occurs twice for model {rows.model!r}")
        order[texts.index[text_id]] = row
    return order


def _check_rows(rows: LossRows, length: Ints) -> None:
    """Raise an error for bounds that do not increase from 0 to the text's length, and for impossible nats."""
    bounds, nats = rows.bounds, rows.nats
    row_of_bound = np.repeat(np.arange(len(rows.ids)), rows.bound_counts)
    row_of_token = np.repeat(np.arange(len(rows.ids)), rows.counts)

    def where(row: int) -> str:
        return f"{rows.where}: text {rows.ids[row]!r}"

    uneven = rows.bound_counts != rows.counts + 1
    if uneven.any():
        row = int(np.argmax(uneven))
        tokens, bound_count = rows.counts[row], rows.bound_counts[row]
        raise InputError(f"{where(row)}: {tokens} nats need {tokens + 1} bounds, found {bound_count}")
    begin, end = bounds[rows.first], bounds[rows.first + rows.counts]
    if (begin != 0).any():
        row = int(np.argmax(begin != 0))
        raise InputError(f"{where(row)}: bounds start at {begin[row]}, they must start at 0")
    falls = (np.diff(bounds) < 0) & (np.diff(row_of_bound) == 0)
    if falls.any():
        at = int(np.argmax(falls))
        raise InputError(f"{where(row_of_bound[at])}: bounds decrease from {bounds[at]} to {bounds[at + 1]}")
    if (end != length).any():
        row = int(np.argmax(end != length))
        raise InputError(
            f"{where(row)} covers bytes 0..{end[row]}, the text has {length[row]}; "
            "was another version of the texts scored, or are bounds in characters?"
        )
    wrong = (nats > MOST_NATS) | (nats < -1e-6)
    if wrong.any():
        at = int(np.argmax(wrong))
        hint = "; are these log-probabilities? nats are −log p" if np.nanmax(nats) <= 0 else ""
        kind = "negative" if nats[at] < 0 else "infinite" if np.isinf(nats[at]) else "impossible"
        raise InputError(f"{where(row_of_token[at])} has {kind} nats ({nats[at]:.4g}){hint}")
