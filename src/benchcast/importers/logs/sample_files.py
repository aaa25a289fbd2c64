"""Read many files of samples, side by side where they are large.

A team's logs are gigabytes, most of them the same prompt four times. Each process reads whole files and sends back
items, which are a hundredth of that.
"""

from __future__ import annotations

import json
import multiprocessing
import os
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
from benchcast.importers.logs.items import LoggedItem
from benchcast.importers.logs.lighteval import read_details
from benchcast.importers.logs.lm_eval import SampleRow, items_of
from benchcast.steps import steps
from benchcast.study.reading import lines_of, need_file, parse_json

WORTH = 64 << 20  # bytes of files below which processes cost more than they save
TEXTS = ("task", "document", "prompt", "answer", "doc_hash", "prompt_hash", "text_hash", "passage")
SampleFile = tuple[Path, str]  # a file, and the task whose items it holds


def read_sample_files(
    files: Sequence[SampleFile], on_file: Callable[[Path], None] = lambda path: None
) -> list[list[LoggedItem]]:
    """Items of each file, in the order of the files, with one copy of each text for all files.

    Parameters
    ----------
    files : files of samples or details
    on_file : called with the path of each file after it is read
    """
    sizes = [path.stat().st_size if path.is_file() else 0 for path, _ in files]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    texts: dict[str, str] = {}
    if sum(sizes) < WORTH or cores < 2 or len(files) < 2:
        found = []
        for path, task in steps(files, "files read"):
            found.append(_shared(read_samples(path, task), texts))
            on_file(path)
        return found
    items: list[list[LoggedItem]] = [[] for _ in files]
    with ProcessPoolExecutor(min(cores, len(files)), multiprocessing.get_context("fork")) as pool:
        order = sorted(range(len(files)), key=lambda i: -sizes[i])
        waiting = {pool.submit(read_samples, *files[i]): i for i in order}
        try:
            for done in steps(as_completed(waiting), "files read", total=len(files)):
                i = waiting.pop(done)
                items[i] = _shared(done.result(), texts)
                on_file(files[i][0])
        except BrokenProcessPool as error:
            raise BenchcastError(
                "a process that read logs was ended from outside, perhaps for lack of memory"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return items


def _shared(items: list[LoggedItem], texts: dict[str, str]) -> list[LoggedItem]:
    """The items with one copy of each text for all files: few-shot prompts of thousands of items fill the memory.

    Files are shared as they arrive, so that at most a few hold prompts of their own. The items are new and nobody else
    holds them, so their texts are exchanged in place; copies take four times as long.
    """
    for item in items:
        for name in TEXTS:
            text = getattr(item, name)
            object.__setattr__(item, name, texts.setdefault(text, text))
    return items


def read_samples(path: Path, task: str) -> list[LoggedItem]:
    """Items of one file of samples or details."""
    if path.suffix == ".parquet":
        return read_details(path, task)
    rows = [SampleRow.of(where, row) for where, row in _rows(path)]
    if not rows:
        raise InputError(f"{path}: no samples")
    return items_of(task, rows)


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Rows with their places; a file is one JSON array, or has one row in each line."""
    need_file(path)
    loads, lines = fast_json(), lines_of(path)
    for i, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}: line {i}"
        if i == 1 and line.lstrip().startswith("["):
            rows = parse_json(line + "".join(lines), str(path))
            yield from ((f"{path}: sample {k}", row) for k, row in enumerate(rows, start=1))
            return
        row = None
        with suppress(ValueError):  # orjson refuses NaN and half a surrogate pair, which harnesses write
            row = loads(line)
        yield where, parse_json(line, where) if row is None else row


@cache
def fast_json() -> Callable[[str], Any]:
    """The parser of `orjson`, two to three times as fast on logs, or that of the library without it."""
    if find_spec("orjson") is None:
        return json.loads
    loads: Callable[[str], Any] = import_module("orjson").loads
    return loads
