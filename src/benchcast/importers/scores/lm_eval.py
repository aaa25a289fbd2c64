"""Read results_*.json of lm-evaluation-harness: version 0.4, and older files whose metrics have no filter.

Scores are fractions. Metrics have the names of its own table: `acc`, or `exact_match,strict-match` with a filter
other than `none`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.importers.scores.entries import ScoreEntry, number, quantity
from benchcast.records import Score

HARNESS = "lm-eval"
PRETRAINED = re.compile(r"(?:^|,)\s*(?:pretrained|model|path|engine)=([^,]+)")
NOT_METRICS = ("alias", "name", "sample_len", "sample_count")


def read_results(
    path: Path, document: Mapping[str, Any], *, allow_limit: bool, harness: str = HARNESS
) -> list[ScoreEntry]:
    """All metrics of all tasks that can be accuracies.

    Parameters
    ----------
    path : the file, for messages
    document : its content
    allow_limit : whether to accept results of a part of each task (`--limit` of the harness)
    harness : name of the harness that the scores are of
    """
    config = document.get("config")
    config = config if isinstance(config, Mapping) else {}
    limit = config.get("limit")
    if limit is not None and not allow_limit:
        limit = int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        raise InputError(
            f"{path}: made with limit = {limit}, so it covers only a part of each task; "
            "run it without --limit, or accept it with --allow-limit"
        )
    model = model_name(path, document)
    entries: list[ScoreEntry] = []
    for task, metrics in document["results"].items():
        if not isinstance(metrics, Mapping):
            raise InputError(f"{path}: results of {task!r} must be an object, found {metrics!r}")
        about = _about(path, document, task, metrics)
        score = replace(about, model=model, task=task.strip(), harness=harness)
        of_task = list(_metrics(path, metrics, score, _at(document, "higher_is_better", task, {})))
        if not of_task and any(isinstance(v, (int, float)) for k, v in metrics.items() if k not in NOT_METRICS):
            of_task = [ScoreEntry(f"{path}: {task}", score)]
        entries += of_task
    if not entries:
        raise InputError(f"{path}: contains no results")
    return entries


def model_name(path: Path, document: Mapping[str, Any]) -> str:
    """The model of a results file, as `collect` would name it; an error if the file does not say."""
    config = document.get("config")
    config = config if isinstance(config, Mapping) else {}
    arguments = _arguments(config.get("model_args"))
    named = (arguments[k] for k in ("pretrained", "model", "path", "engine") if arguments.get(k))
    name = arguments.get("gguf_file") or document.get("model_name") or next(named, None) or config.get("model_name")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{path}: does not name its model (no model_name, no pretrained= in model_args)")
    revision = str(arguments.get("revision") or "main")
    return name.strip().rstrip("/") + (f"@{revision}" if revision != "main" else "")  # as `collect` names it


def _arguments(model_args: Any) -> dict[str, Any]:
    """`model_args` as a dictionary; the harness writes an object, or the string `pretrained=…,dtype=…`."""
    if isinstance(model_args, Mapping):
        return {str(k): v for k, v in model_args.items()}
    pairs = (part.partition("=") for part in str(model_args or "").split(","))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _about(path: Path, document: Mapping[str, Any], task: str, metrics: Mapping[str, Any]) -> Score:
    """Number of items, harness, version and shots of a score; names and accuracy are empty."""
    where = f"{path}: {task}"
    items = _items(where, document, task)
    if math.isnan(items):
        items = quantity(where, "sample_len", metrics.get("sample_len"))
    if math.isnan(items):
        items = _items_of_subtasks(where, document, task)
    config = document.get("config")
    of_run = config.get("num_fewshot") if isinstance(config, Mapping) else None  # older files: one value for the run
    shots = _at(document, "n-shot", task, of_run)
    version = _at(document, "versions", task, None)
    return Score(
        "",
        "",
        math.nan,
        n_items=items,
        version="" if version is None else f"{float(version):g}" if _numeric(version) else str(version),
        shots="" if shots is None else str(shots),
    )


def _items(where: str, document: Mapping[str, Any], task: str) -> float:
    counts = _at(document, "n-samples", task, {})
    return quantity(where, "n-samples", counts.get("effective")) if isinstance(counts, Mapping) else math.nan


def _items_of_subtasks(where: str, document: Mapping[str, Any], group: str) -> float:
    members = _at(document, "group_subtasks", group, [])
    if not isinstance(members, list) or not members or not all(isinstance(m, str) for m in members):
        return math.nan
    return float(sum(_items(where, document, m) for m in members))  # NaN if one is unknown


def _at(document: Mapping[str, Any], part: str, task: str, default: Any) -> Any:
    table = document.get(part)
    return table.get(task, default) if isinstance(table, Mapping) else default


def _numeric(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _metrics(path: Path, metrics: Mapping[str, Any], score: Score, higher: Any) -> Iterator[ScoreEntry]:
    """Metrics in 0..1 for which higher is better."""
    for key, value in metrics.items():
        metric, _, filter_name = str(key).partition(",")
        if key in NOT_METRICS or metric.endswith("_stderr") or not math.isfinite(number(value)):
            continue
        if (isinstance(higher, Mapping) and higher.get(metric) is False) or not 0 <= value <= 1:
            continue
        error = metrics.get(f"{metric}_stderr,{filter_name}" if filter_name else f"{metric}_stderr")
        name = metric if filter_name in ("", "none") else key
        where = f"{path}: {score.task}"
        stderr = quantity(where, f"{metric}_stderr", error)
        yield ScoreEntry(where, replace(score, accuracy=float(value)), name, stderr)


LIGHTEVAL = "lighteval"
AVERAGE = ":_average"


def is_lighteval(document: Mapping[str, Any]) -> bool:
    """Whether results were written by lighteval; the Open LLM Leaderboard's own (`harness|…`) are another format."""
    keys = [str(key) for key in document["results"] if "|" in str(key)]
    return bool(keys) and "config_general" in document and not any(key.startswith("harness|") for key in keys)


def split_key(key: str) -> tuple[str, str]:
    """Task and number of shots of a key of the results."""
    parts = key.split("|")
    if len(parts) == 4:  # suite|task|shots|whether to truncate
        parts.pop()
    return (parts[-2], parts[-1]) if len(parts) > 1 else (key, "")


def as_lm_eval(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same results with the keys that lm-evaluation-harness uses."""
    general = document["config_general"] if isinstance(document["config_general"], Mapping) else {}
    keys = [str(key) for key in document["results"] if "|" in str(key)]
    tasks = {key: split_key(key)[0].removesuffix(AVERAGE) for key in keys}
    groups = {
        tasks[key]: [tasks[k] for k in keys if tasks[k].startswith(f"{tasks[key]}:")]
        for key in keys
        if split_key(key)[0].endswith(AVERAGE)
    }
    return {
        "results": {tasks[key]: document["results"][key] for key in keys},
        "n-shot": {tasks[key]: split_key(key)[1] for key in keys},
        "versions": {tasks[key]: version for key in keys if (version := _version(document, key)) is not None},
        "group_subtasks": groups,
        "model_name": general.get("model_name"),
        "config": {"limit": general.get("max_samples")},
    }


def _version(document: Mapping[str, Any], key: str) -> Any:
    configs = document.get("config_tasks")
    config = configs.get(key) if isinstance(configs, Mapping) else None
    return config.get("version") if isinstance(config, Mapping) else None
