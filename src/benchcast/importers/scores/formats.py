"""Detect the format of a score file by its content and read it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.importers.benchmarks import read_utf8
from benchcast.importers.scores.entries import ScoreEntry
from benchcast.importers.scores.leaderboards import is_v1, is_v2, read_v1, read_v1_results, read_v2
from benchcast.importers.scores.lm_eval import HARNESS, LIGHTEVAL, as_lm_eval, is_lighteval, read_results
from benchcast.importers.scores.opencompass import is_summary, read_summary
from benchcast.importers.scores.tables import is_listed, is_long, read_listed, read_long, read_wide
from benchcast.records import Task
from benchcast.study.reading import need_file, read_csv

MOST_ROWS = 1_000_000  # in a table of scores
PATTERNS = ("results_*.json", "summary_*.csv")
EARLY_RESULTS = "results.json"  # of lm-eval before 0.4.3
Rescore = Callable[[Path, Mapping[str, Any], list[ScoreEntry]], list[ScoreEntry]]  # results file, content, scores


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Tasks of the study and options of the user that readers need."""

    tasks: Sequence[Task]  # of the study
    pick: Callable[[list[str]], set[str]]  # chooses, from a file's tasks, those of the study and those to add
    unit: str | None = None  # "fraction" or "percent"
    allow_limit: bool = False  # whether to accept lm-eval results of a part of each task
    rescore: Rescore | None = None  # replaces the scores of lm-eval results by scores of a part of their items


def expand(paths: Sequence[Path]) -> list[Path]:
    """Replace each folder by the result and summary files in it."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(p for pattern in (*PATTERNS, EARLY_RESULTS) for p in path.rglob(pattern))
        if not inside:
            raise InputError(f"{path}: no {' or '.join(PATTERNS)} below this folder")
        files += inside
    return files


def read_score_file(path: Path, options: ReaderOptions) -> tuple[str, list[ScoreEntry]]:
    """Read a score file.

    Returns
    -------
    The name of its format, and its scores with the names used in the file.
    """
    need_file(path)
    kind = path.suffix.lower()
    if kind == ".json":
        return _json(path, options)
    if kind == ".parquet":
        return _table(path, _parquet_rows(path), options)
    if kind == ".csv":
        return _csv(path, options)
    raise InputError(f"{path}: scores come as .json, .csv or .parquet, not {kind or 'a file without ending'!r}")


def _json(path: Path, options: ReaderOptions) -> tuple[str, list[ScoreEntry]]:
    try:
        document = json.loads(read_utf8(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    results = document.get("results") if isinstance(document, Mapping) else None
    if not isinstance(results, Mapping):
        raise InputError(
            f"{path}: not a results file of lm-evaluation-harness or the leaderboard (no 'results' object)"
        )
    if options.unit == "percent":
        raise InputError(f"{path}: results files in JSON hold fractions; leave out --unit percent")
    if is_lighteval(document):
        return "lighteval results", _rescored(path, as_lm_eval(document), options, LIGHTEVAL)
    if any("|" in key for key in results):
        return "Open LLM Leaderboard v1 results", read_v1_results(path, document)
    return "lm-evaluation-harness results", _rescored(path, document, options, HARNESS)


def _rescored(path: Path, document: Mapping[str, Any], options: ReaderOptions, harness: str) -> list[ScoreEntry]:
    entries = read_results(path, document, allow_limit=options.allow_limit, harness=harness)
    return entries if options.rescore is None else options.rescore(path, document, entries)


def _csv(path: Path, options: ReaderOptions) -> tuple[str, list[ScoreEntry]]:
    lines = read_utf8(path).splitlines()
    header = [h.strip() for h in next(csv.reader(lines), [])]
    if is_summary(header):
        return "OpenCompass summary", read_summary(path, lines, unit=options.unit)
    if is_long(header):
        return "long CSV", read_long(path, options.tasks, options.pick, unit=options.unit)
    return _table(path, read_csv(path), options)


def _table(path: Path, rows: Sequence[Mapping[str, Any]], options: ReaderOptions) -> tuple[str, list[ScoreEntry]]:
    if not rows:
        raise InputError(f"{path}: no rows")
    header = list(rows[0])
    if is_v2(header):
        return "Open LLM Leaderboard v2 table", read_v2(path, rows, unit=options.unit)
    if is_v1(header):
        return "Open LLM Leaderboard v1 table", read_v1(path, rows, unit=options.unit)
    if is_listed(header):
        return "list of scores", read_listed(path, rows, unit=options.unit)
    return "wide table", read_wide(path, rows, unit=options.unit, pick=options.pick)


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    from benchcast.study.parquet import read_table

    rows = read_table(path, rows=MOST_ROWS).to_pylist()
    return [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
