"""Read many files of samples, side by side where they are large.

A team's logs are gigabytes, most of them the same prompt four times. Each process reads whole files and sends back
columns: a few numbers for each item, and what was asked as bytes, which are opened for the first model alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchcast.errors import BenchcastError, InputError
from benchcast.importers.logs.item_table import Answers, AskedItems, ItemTable
from benchcast.importers.logs.lighteval import read_details
from benchcast.importers.logs.lm_eval import SampleRow, items_of
from benchcast.steps import steps
from benchcast.study.reading import as_utf8, need_file, parse_json

WORTH = 64 << 20  # bytes of files below which processes cost more than they save
SampleFile = tuple[Path, str]  # a file, and the task whose items it holds


def read_sample_files(
    files: Sequence[SampleFile], on_file: Callable[[Path], None] = lambda path: None
) -> list[ItemTable]:
    """Items of each file, in the order of the files; files with the same items share what was asked.

    Parameters
    ----------
    files : files of samples or details
    on_file : called with the path of each file after it is read
    """
    sizes = [path.stat().st_size if path.is_file() else 0 for path, _ in files]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    known: dict[bytes, AskedItems] = {}
    if sum(sizes) < WORTH or cores < 2 or len(files) < 2:
        found = []
        for path, task in steps(files, "files read"):
            items = read_samples(path, task)
            found.append(ItemTable(known.setdefault(items.asked.digest, items.asked), items.answers))
            on_file(path)
        return found
    tables: dict[int, ItemTable] = {}
    with ProcessPoolExecutor(min(cores, len(files)), multiprocessing.get_context("fork")) as pool:
        order = sorted(range(len(files)), key=lambda i: -sizes[i])
        waiting = {pool.submit(_packed, *files[i]): i for i in order}
        try:
            for done in steps(as_completed(waiting), "files read", total=len(files)):
                i = waiting.pop(done)
                digest, asked, answers = done.result()
                if digest not in known:
                    known[digest] = pickle.loads(asked)
                tables[i] = ItemTable(known[digest], answers)
                on_file(files[i][0])
        except BrokenProcessPool as error:
            raise BenchcastError(
                "a process that read logs was ended from outside, perhaps for lack of memory"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return [tables[i] for i in range(len(files))]


def _packed(path: Path, task: str) -> tuple[bytes, bytes, Answers]:
    """The items of one file for another process: the digest of what was asked, its bytes, and the answers."""
    items = read_samples(path, task)
    return items.asked.digest, pickle.dumps(items.asked), items.answers


def read_samples(path: Path, task: str) -> ItemTable:
    """Items of one file of samples or details."""
    if path.suffix == ".parquet":
        return ItemTable.of(task, read_details(path, task))
    rows = [SampleRow.of(where, row) for where, row in _rows(path)]
    if not rows:
        raise InputError(f"{path}: no samples")
    return ItemTable.of(task, items_of(task, rows))


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Rows with their places; a file is one JSON array, or has one row in each line."""
    need_file(path)
    loads = fast_json()
    with path.open("rb") as lines:
        for i, line in enumerate(lines, start=1):
            row, where = None, f"{path}: line {i}"
            with suppress(ValueError):  # orjson refuses NaN and half a surrogate pair, which harnesses write
                row = loads(line)
            if row is not None and not isinstance(row, list):
                yield where, row
                continue
            text = as_utf8(line, where)
            if i == 1 and text.lstrip().startswith("["):
                rows = parse_json(text + as_utf8(lines.read(), where), str(path))
                yield from ((f"{path}: sample {k}", row) for k, row in enumerate(rows, start=1))
                return
            if text.strip():
                yield where, parse_json(text, where)


@cache
def fast_json() -> Callable[[bytes], Any]:
    """The parser of `orjson`, two to three times as fast on logs, or that of the library without it."""
    if find_spec("orjson") is None:
        return json.loads
    loads: Callable[[bytes], Any] = import_module("orjson").loads
    return loads
