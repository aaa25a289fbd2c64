"""Find the runs of lm-evaluation-harness or lighteval below a folder: results, and the samples that belong to them.

From 0.4.3 on, `results_<time>.json` lies beside `samples_<task>_<time>.jsonl`. Before, `results.json` lies beside
`<model arguments>_<task>.jsonl`, which is one JSON array. Files of lighteval are found by `lighteval_details`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.importers.benchmarks import read_utf8
from benchcast.importers.logs.items import LoggedItem
from benchcast.importers.logs.lighteval import details_of, read_details
from benchcast.importers.logs.lm_eval import SampleRow, items_of
from benchcast.importers.scores.entries import number
from benchcast.importers.scores.lm_eval import HARNESS, LIGHTEVAL, as_lm_eval, is_lighteval, model_name
from benchcast.study.reading import need_file, parse_json

SAMPLES, RESULTS = "samples_", "results"
FIRST_KEY = re.compile(r'\s*(?:\[\s*)?\{\s*"doc_id"')  # how every sample file starts
MARK = "written by"  # key of a document that names another harness than lm-evaluation-harness


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run of a harness: a model, its results, and its items by task."""

    path: Path  # of the results
    model: str  # as named in the results
    params: float  # number of parameters; NaN if it is not stated
    document: Mapping[str, Any]  # the results, in the form of lm-evaluation-harness
    harness: str
    items: Mapping[str, Sequence[LoggedItem]]  # task → its items


def read_runs(folder: Path) -> list[LoggedRun]:
    """All runs below a folder, by path.

    A folder without results, results without samples, and samples without results are errors.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the output folder of lm_eval --log_samples")
    results = sorted(p for p in folder.rglob(f"{RESULTS}*.json") if p.is_file())
    if not results:
        raise InputError(f"{folder}: no results_*.json of lm-evaluation-harness below this folder")
    shared: dict[str, str] = {}
    runs = [_shared(read_run(path), shared) for path in results]
    used = {sample for path, run in zip(results, runs, strict=True) for sample in sample_files(path, run.document)[1]}
    lost = sorted(p for p in folder.rglob(f"{SAMPLES}*.jsonl") if p not in used)
    if lost:
        raise InputError(f"{lost[0]}: no results of the same run beside it (results_<time>.json)")
    return runs


def _shared(run: LoggedRun, prompts: dict[str, str]) -> LoggedRun:
    """The run with one copy of each prompt for all runs: few-shot prompts of thousands of items fill the memory."""
    items = {
        task: [replace(item, prompt=prompts.setdefault(item.prompt, item.prompt)) for item in of_task]
        for task, of_task in run.items.items()
    }
    return replace(run, items=items)


def read_run(path: Path, only: Path | None = None) -> LoggedRun:
    """One run by its results file; `only` restricts it to one sample file."""
    document = read_document(path)
    tasks, files = sample_files(path, document)
    file_of_task = {t: f for t, f in zip(tasks, files, strict=True) if only is None or f == only}
    if not file_of_task:
        how = "lighteval with --save-details" if harness_of(document) == LIGHTEVAL else "lm_eval with --log_samples"
        raise InputError(f"{path}: no samples beside it; run {how}")
    config = document.get("config")
    params = number(config.get("model_num_parameters")) if isinstance(config, Mapping) else math.nan
    items = {task: read_samples(file, task) for task, file in file_of_task.items()}
    params = params if params > 0 else math.nan
    return LoggedRun(path, model_name(path, document), params, document, harness_of(document), items)


def read_document(path: Path) -> Mapping[str, Any]:
    """A results file of either harness, in the form of lm-evaluation-harness."""
    document = parse_json(read_utf8(path), str(path))
    if not isinstance(document, Mapping) or not isinstance(document.get("results"), Mapping):
        raise InputError(f"{path}: not a results file of lm-evaluation-harness or lighteval (no 'results' object)")
    return as_lm_eval(document) | {MARK: LIGHTEVAL} if is_lighteval(document) else document


def harness_of(document: Mapping[str, Any]) -> str:
    """Name of the harness that wrote a results file."""
    return LIGHTEVAL if MARK in document else HARNESS


def sample_files(path: Path, document: Mapping[str, Any]) -> tuple[list[str], list[Path]]:
    """Tasks of a results file that have samples, and their files."""
    if harness_of(document) == LIGHTEVAL:
        return details_of(path, document)
    time = path.stem.removeprefix(RESULTS)  # "_<time>", or empty before 0.4.3
    file_of_task: dict[str, Path] = {}
    for task in map(str, document["results"]):
        if time:
            file = path.with_name(f"{SAMPLES}{task}{time}.jsonl")
            file_of_task |= {task: file} if file.is_file() else {}
            continue
        same = [
            p for p in path.parent.glob("*.jsonl") if p.stem.endswith(f"_{task}") and not _longer(p, task, document)
        ]
        if len(same) > 1:
            raise InputError(f"{path.parent}: {same[0].name} and {same[1].name} are both samples of {task!r}")
        file_of_task |= dict.fromkeys([task], same[0]) if same else {}
    return list(file_of_task), list(file_of_task.values())


def _longer(path: Path, task: str, document: Mapping[str, Any]) -> bool:
    """Whether the file belongs to a task whose name ends with that of `task`."""
    return any(len(t) > len(task) and path.stem.endswith(f"_{t}") for t in map(str, document["results"]))


def read_samples(path: Path, task: str) -> list[LoggedItem]:
    """Items of one file of samples or details."""
    if path.suffix == ".parquet":
        return read_details(path, task)
    rows = [SampleRow.of(where, row) for where, row in _rows(path)]
    if not rows:
        raise InputError(f"{path}: no samples")
    return items_of(task, rows)


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    need_file(path)
    content = read_utf8(path)
    if content.lstrip().startswith("["):
        rows = parse_json(content, str(path))
        yield from ((f"{path}: sample {i}", row) for i, row in enumerate(rows, start=1))
        return
    for i, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            yield f"{path}: line {i}", parse_json(line, f"{path}: line {i}")


def is_log(path: Path) -> bool:
    """Whether losses are to be read from an evaluation log: a folder, or a file of samples."""
    if path.is_dir():
        return True
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as lines:
        return path.name.startswith(SAMPLES) or FIRST_KEY.match(lines.read(200)) is not None


def results_beside(path: Path) -> Path:
    """The results file of the run that a sample file belongs to."""
    for candidate in sorted(path.parent.glob(f"{RESULTS}*.json")):
        if path in sample_files(candidate, read_document(candidate))[1]:
            return candidate
    raise InputError(f"{path}: no results of the same run beside it (results_<time>.json)")
