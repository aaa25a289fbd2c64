"""Losses of logged runs on the texts of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchcast.errors import InputError
from benchcast.logs.items import LoggedItem
from benchcast.logs.runs import LoggedRun, read_run, read_runs, results_beside
from benchcast.records import TextSet, TokenLosses
from benchcast.scores.names import match_models
from benchcast.storage.loss_rows import LossRows, lay_out

BACKEND = "lm-eval"


def runs_at(path: Path) -> list[LoggedRun]:
    """The runs below a folder, or the run of one sample file with only the items of this file."""
    return read_runs(path) if path.is_dir() else [read_run(results_beside(path), only=path)]


def items_by_model(runs: Sequence[LoggedRun], known: Sequence[str] = ()) -> dict[str, dict[str, list[LoggedItem]]]:
    """Items of each model by task, over all of its runs; models have the study's names.

    Parameters
    ----------
    runs : runs of any models
    known : names of the study's models
    """
    names, _ = match_models((run.model for run in runs), known, {})
    by_model: dict[str, dict[str, list[LoggedItem]]] = {}
    for run in runs:
        of_model = by_model.setdefault(names[run.model], {})
        for task, items in run.items.items():
            before = of_model.setdefault(task, list(items))
            differ = [(i.text_id, i.nats) for i in before] != [(i.text_id, i.nats) for i in items]
            if differ and any(item.has_loss for item in (*before, *items)):
                raise InputError(
                    f"{run.path}: {names[run.model]} has other samples of {task!r} in another run; remove one of them"
                )
    return by_model


def losses_from_logs(paths: Sequence[Path], texts: TextSet, known: Sequence[str]) -> list[TokenLosses]:
    """Losses of every model in logs of lm-evaluation-harness, on the texts of a study that was made from such logs.

    Parameters
    ----------
    paths : folders with results and samples, or sample files with their results beside them
    texts : texts of the study
    known : names of the study's models
    """
    models = items_by_model([run for path in paths for run in runs_at(path)], known)
    where = ", ".join(map(str, paths))
    return [model_losses(where, model, tasks, texts) for model, tasks in models.items()]


def model_losses(where: str, model: str, tasks: Mapping[str, Sequence[LoggedItem]], texts: TextSet) -> TokenLosses:
    """Losses of one model: the answer of each text is one token, its prompt one without a loss.

    Items of tasks that the study has no texts of are left out, and so are items whose losses are not in the study.
    """
    items = {i.text_id: i for of_task in tasks.values() for i in of_task if i.has_loss}
    numbers = {text_id.rpartition("-")[0]: text_id for text_id in items}
    sources = {task for task, of_task in tasks.items() if any(i.has_loss for i in of_task)}
    rows = []
    for text in texts:
        if text.source not in sources:
            continue
        item = items.get(text.id)
        if item is None:
            _refuse_item(where, model, text.id, numbers)
        else:
            rows.append(item)
    if not rows:
        raise InputError(
            f"{where}: {model} has no losses of the study's texts; logged are {', '.join(sorted(sources)) or 'none'}, "
            f"the study has {', '.join(texts.sources[:5])}"
        )
    bounds = [_bounds(item) for item in rows]
    nats = [np.array([np.nan, item.nats][-(len(b) - 1) :]) for item, b in zip(rows, bounds, strict=True)]
    return lay_out(LossRows.of(where, model, [i.text_id for i in rows], bounds, nats), texts, {"backend": BACKEND})


def _refuse_item(where: str, model: str, text_id: str, numbers: Mapping[str, str]) -> None:
    item = text_id.rpartition("-")[0]
    if item in numbers:
        raise InputError(
            f"{where}: {model} was asked item {item} with another prompt or answer than the study's models; "
            "were shots, task version or chat template different?"
        )
    raise InputError(f"{where}: {model} lacks item {item} of the study; was it run with --limit or on other data?")


def _bounds(item: LoggedItem) -> np.typing.NDArray[np.int64]:
    """Bounds of the prompt, if there is one, and of the answer, in bytes."""
    start = len(item.prompt.encode())
    return np.array([0, start, start + len(item.answer.encode())][0 if start else 1 :], np.int64)
