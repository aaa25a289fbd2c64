"""Find the runs of lm-evaluation-harness or lighteval below a folder: results, and the samples that belong to them.

From 0.4.3 on, `results_<time>.json` lies beside `samples_<task>_<time>.jsonl`. Before, `results.json` lies beside
`<model arguments>_<task>.jsonl`, which is one JSON array. Files of lighteval are found by `lighteval_details`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.importers.logs.item_table import ItemTable
from benchcast.importers.logs.lighteval import details_of
from benchcast.importers.logs.sample_files import read_sample_files
from benchcast.importers.scores.entries import ScoreFile, number
from benchcast.importers.scores.lm_eval import HARNESS, LIGHTEVAL, as_lm_eval, is_lighteval, model_name

SAMPLES, RESULTS = "samples_", "results"
FIRST_KEY = re.compile(r'\s*(?:\[\s*)?\{\s*"doc_id"')  # how every sample file starts


@dataclass(frozen=True, slots=True)
class Results:
    """A results file of either harness, read once, and the sample files that belong to it."""

    file: ScoreFile  # as the harness wrote it
    document: Mapping[str, Any]  # in the form of lm-evaluation-harness
    harness: str
    samples: Mapping[str, Path]  # task → file of its samples

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read a results file and find its samples."""
        return cls.of(ScoreFile.read(path))

    @classmethod
    def of(cls, file: ScoreFile) -> Results:
        """Find the samples of a results file that has been read."""
        if not isinstance(file.head, Mapping) or not isinstance(file.head.get("results"), Mapping):
            raise InputError(
                f"{file.path}: not a results file of lm-evaluation-harness or lighteval (no 'results' object)"
            )
        if is_lighteval(file.head):
            document = as_lm_eval(file.head)
            return cls(file=file, document=document, harness=LIGHTEVAL, samples=details_of(file.path, document))
        return cls(file=file, document=file.head, harness=HARNESS, samples=_samples_beside(file.path, file.head))


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run of a harness: a model, its results, and its items by task."""

    model: str  # as named in the results
    params: float  # number of parameters; NaN if it is not stated
    results: Results
    items: Mapping[str, ItemTable]  # task → its items


def read_runs(folder: Path, on_file: Callable[[Path], None] = lambda path: None) -> list[LoggedRun]:
    """All runs below a folder, by path; see `read_folders`."""
    (runs,) = read_folders([folder], on_file=on_file)
    return runs


def read_folders(folders: Sequence[Path], on_file: Callable[[Path], None] = lambda path: None) -> list[list[LoggedRun]]:
    """All runs below each folder, by path; `on_file` is called with the path of each file of samples after it is read.

    A folder without results, results without samples, and samples without results are errors.
    """
    found = [_results_with_samples(folder) for folder in folders]
    runs = iter(runs_of([results for below in found for results in below], on_file=on_file))
    return [[next(runs) for _ in below] for below in found]


def _results_with_samples(folder: Path) -> list[Results]:
    found = [Results.read(path) for path in results_below(folder)]
    used = {sample for of_run in found for sample in of_run.samples.values()}
    lost = sorted(p for p in folder.rglob(f"{SAMPLES}*.jsonl") if p not in used)
    if lost:
        raise InputError(f"{lost[0]}: no results of the same run beside it (results_<time>.json)")
    return found


def results_below(folder: Path) -> list[Path]:
    """The results files below a folder, sorted; an error if there is none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the output folder of lm_eval --log_samples")
    results = sorted(p for p in folder.rglob(f"{RESULTS}*.json") if p.is_file())
    if not results:
        raise InputError(f"{folder}: no results_*.json of lm-evaluation-harness below this folder")
    return results


def runs_of(
    results: Sequence[Results], only: Path | None = None, on_file: Callable[[Path], None] = lambda path: None
) -> list[LoggedRun]:
    """The runs of these results, their files read together; `only` restricts them to one sample file."""
    wanted = [{task: file for task, file in r.samples.items() if only is None or file == only} for r in results]
    for of_run, files in zip(results, wanted, strict=True):
        if not files:
            how = "lighteval with --save-details" if of_run.harness == LIGHTEVAL else "lm_eval with --log_samples"
            raise InputError(f"{of_run.file.path}: no samples beside it; run {how}")
    items = iter(read_sample_files([(file, task) for files in wanted for task, file in files.items()], on_file))
    return [_run(of_run, {task: next(items) for task in files}) for of_run, files in zip(results, wanted, strict=True)]


def _run(results: Results, items: Mapping[str, ItemTable]) -> LoggedRun:
    path, document = results.file.path, results.document
    config = document.get("config")
    params = number(config.get("model_num_parameters")) if isinstance(config, Mapping) else math.nan
    return LoggedRun(
        model=model_name(path, document), params=params if params > 0 else math.nan, results=results, items=items
    )


def read_run(path: Path) -> LoggedRun:
    """One run by its results file."""
    return run_of(Results.read(path))


def run_of(results: Results, only: Path | None = None) -> LoggedRun:
    """The run of these results; `only` restricts it to one sample file."""
    (run,) = runs_of([results], only)
    return run


def _samples_beside(path: Path, document: Mapping[str, Any]) -> dict[str, Path]:
    """Sample files of lm-evaluation-harness beside a results file, by task."""
    tasks = [str(task) for task in document["results"]]
    time = path.stem.removeprefix(RESULTS)  # "_<time>", or empty before 0.4.3
    if time:
        files = {task: path.with_name(f"{SAMPLES}{task}{time}.jsonl") for task in tasks}
        return {task: file for task, file in files.items() if file.is_file()}
    file_of_task: dict[str, Path] = {}
    for file in path.parent.glob("*.jsonl"):
        task = max((t for t in tasks if file.stem.endswith(f"_{t}")), key=len, default=None)
        if task is not None and task in file_of_task:
            raise InputError(f"{path.parent}: {file_of_task[task].name} and {file.name} are both samples of {task!r}")
        if task is not None:
            file_of_task[task] = file
    return {task: file_of_task[task] for task in tasks if task in file_of_task}


def is_log(path: Path) -> bool:
    """Whether losses are to be read from an evaluation log: a folder, or a file of samples."""
    if path.is_dir():
        return True
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    if path.name.startswith(SAMPLES):
        return True
    with path.open(encoding="utf-8", errors="replace") as lines:
        return FIRST_KEY.match(lines.read(200)) is not None


def results_beside(path: Path, read: Callable[[Path], Results]) -> Results:
    """The results of the run that a sample file belongs to; `read` reads one candidate."""
    for candidate in sorted(path.parent.glob(f"{RESULTS}*.json")):
        results = read(candidate)
        if path in results.samples.values():
            return results
    raise InputError(f"{path}: no results of the same run beside it (results_<time>.json)")
