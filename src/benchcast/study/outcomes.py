"""`outcomes/<model>.parquet`: how a model did on each item of its tasks, from evaluation logs.

One row per item: the task of the study, the part of the task that logged the item (a group such as MMLU has several),
the item, how right the model was, the metric that says so, and the passage that items share. Two models answered the
same item where `part` and `item` are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchcast.errors import InputError
from benchcast.messages import did_you_mean
from benchcast.records import Floats
from benchcast.study.atomic import file_name, locked, write_whole
from benchcast.study.parquet import decoded, read_metadata, read_table, write_table
from benchcast.study.study import Study, StudyLike

COLUMNS = ("task", "part", "item", "right", "metric", "passage")
MOST_ROWS = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class TaskOutcomes:
    """How one model did on the items of one task; one entry per item."""

    metric: str
    parts: tuple[str, ...]  # task of the log, which is a part of the task if that is a group
    items: tuple[str, ...]  # number of the item in its part, and a hash of the document
    passages: tuple[str, ...]  # hash of the passage that the item shares with others; empty without one
    right: Floats  # from 0 (wrong) to 1 (right)

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """What tells an item from the other items of the task."""
        return tuple(zip(self.parts, self.items, strict=True))

    def equals(self, other: TaskOutcomes) -> bool:
        """Whether both hold the same items with the same outcomes, in any order."""
        same = self.metric == other.metric and len(self.items) == len(other.items)
        return same and dict(zip(self.keys, self.right, strict=True)) == dict(zip(other.keys, other.right, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """How one model did on each item, by task.

    >>> import numpy as np
    >>> right = TaskOutcomes("acc", ("arc",) * 2, ("0-a5f1", "1-77c0"), ("", ""), np.array([1.0, 0.0]))
    >>> Outcomes("oak-16M", {"arc": right})
    <Outcomes of oak-16M: 2 items of 1 task>
    """

    model: str
    tasks: Mapping[str, TaskOutcomes]

    def __repr__(self) -> str:
        count, tasks = sum(len(t.items) for t in self.tasks.values()), len(self.tasks)
        return f"<Outcomes of {self.model}: {count} items of {tasks} task{'' if tasks == 1 else 's'}>"


def outcomes_path(study: Study, model: str) -> Path:
    """Path of the file of a model's outcomes."""
    return study.root / "outcomes" / f"{file_name(model)}.parquet"


def models_with_outcomes(study: StudyLike) -> list[str]:
    """Names of the models whose outcomes are here, sorted."""
    files = (Study.of(study).root / "outcomes").glob("*.parquet")
    return sorted(read_metadata(path).get("model", path.stem) for path in files)


def read_outcomes(study: StudyLike, model: str) -> Outcomes | None:
    """How a model did on each item; None where the study does not have it.

    Parameters
    ----------
    study : an opened study or its folder
    model : name of a model
    """
    path = outcomes_path(Study.of(study), model)
    return _read(path) if path.is_file() else None


def need_outcomes(study: StudyLike, model: str) -> Outcomes:
    """As `read_outcomes`; InputError where the study does not have them."""
    found = read_outcomes(study, model)
    if found is None:
        known = models_with_outcomes(study)
        raise InputError(f"{Study.of(study).root}: no outcomes of model {model!r}{did_you_mean(model, known)}")
    return found


def metrics_of_outcomes(study: StudyLike) -> dict[str, str]:
    """The metric of each task that has outcomes, from the first model that has it."""
    opened, metrics = Study.of(study), dict[str, str]()
    for model in models_with_outcomes(opened):
        if all(t.name in metrics for t in opened.tasks if not t.members):
            break
        found = need_outcomes(opened, model)
        metrics = {task: of_task.metric for task, of_task in found.tasks.items()} | metrics
    return metrics


def add_outcomes(study: StudyLike, outcomes: Sequence[Outcomes], *, force: bool = False) -> int:
    """Store outcomes of models beside those of other tasks that the study has; returns how many files changed.

    Other outcomes of the same model and task are an error unless forced; nothing is written then.

    Parameters
    ----------
    study : an opened study or its folder
    outcomes : how each model did, at most once per model
    force : replace other outcomes of the same tasks
    """
    opened = Study.of(study)
    with locked(opened.root):
        merged = [_merged(read_outcomes(opened, new.model), new, force=force) for new in outcomes if new.tasks]
        changed = [one for one in merged if one is not None]
        for one in changed:
            write_whole(outcomes_path(opened, one.model), partial(write_outcomes, outcomes=one))
    return len(changed)


def _merged(old: Outcomes | None, new: Outcomes, *, force: bool) -> Outcomes | None:
    """What to store; None if nothing changes."""
    if old is None:
        return new
    for task, of_task in new.tasks.items():
        known = old.tasks.get(task)
        if known is not None and not known.equals(of_task) and not force:
            raise InputError(
                f"{new.model!r} has other outcomes of the items of {task!r} in the study "
                f"({len(known.items)} of {known.metric}, the logs have {len(of_task.items)} of {of_task.metric}); "
                "--force replaces them"
            )
    if all(task in old.tasks and old.tasks[task].equals(of_task) for task, of_task in new.tasks.items()):
        return None
    return Outcomes(new.model, {**old.tasks, **new.tasks})


def rename_outcomes(study: Study, old: str, new: str) -> int:
    """Give the file of a model's outcomes another name; how many files there are."""
    source, target = outcomes_path(study, old), outcomes_path(study, new)
    if source.is_file():
        write_whole(target, partial(write_outcomes, outcomes=replace(_read(source), model=new)))
        if source != target:
            source.unlink()
    return int(target.is_file())


def write_outcomes(path: Path, outcomes: Outcomes) -> None:
    """Write the rows of all tasks."""
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for task, of_task in outcomes.tasks.items():
        count = len(of_task.items)
        columns["task"] += [task] * count
        columns["part"] += of_task.parts
        columns["item"] += of_task.items
        columns["right"] += of_task.right.tolist()
        columns["metric"] += [of_task.metric] * count
        columns["passage"] += of_task.passages
    kinds = {name: pa.float64() if name == "right" else pa.string() for name in COLUMNS}
    table = pa.table({name: pa.array(columns[name], kinds[name]) for name in COLUMNS})
    write_table(path, table, {"model": outcomes.model}, delta={})


def _read(path: Path) -> Outcomes:
    table = read_table(path, rows=MOST_ROWS)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: no column {missing[0]}; outcomes have {', '.join(COLUMNS)}")
    columns = {name: table.column(name).to_pylist() for name in COLUMNS}
    if any(None in values for values in columns.values()):
        raise InputError(f"{path}: a cell is empty; remove the file and import the logs again")
    rows: dict[str, list[int]] = {}
    for i, task in enumerate(columns["task"]):
        rows.setdefault(task, []).append(i)
    model = decoded(table.schema.metadata).get("model", path.stem)
    return Outcomes(model, {task: _of_task(path, task, columns, of_task) for task, of_task in rows.items()})


def _of_task(path: Path, task: str, columns: Mapping[str, list[object]], rows: Sequence[int]) -> TaskOutcomes:
    metrics = {str(columns["metric"][i]) for i in rows}
    right = np.array([columns["right"][i] for i in rows], np.float64)
    if len(metrics) > 1 or not ((right >= 0) & (right <= 1)).all():
        raise InputError(f"{path}: {task}: needed are values from 0 to 1 of one metric; import the logs again")
    parts, items, passages = (tuple(str(columns[name][i]) for i in rows) for name in ("part", "item", "passage"))
    return TaskOutcomes(metrics.pop(), parts, items, passages, right)
