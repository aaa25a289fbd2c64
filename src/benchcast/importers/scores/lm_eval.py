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
from benchcast.importers.scores.entries import (
    ReaderOptions,
    ScoreEntry,
    ScoreFile,
    number,
    quantity,
    refuse_percent,
    results_in,
)
from benchcast.records import Score

HARNESS = "lm-eval"
PRETRAINED = re.compile(r"(?:^|,)\s*(?:pretrained|model|path|engine)=([^,]+)")
NOT_METRICS = ("alias", "name", "sample_len", "sample_count")


def read_lm_eval(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """All metrics of all tasks that can be accuracies."""
    if not isinstance(file.head, Mapping) or not isinstance(file.head.get("results"), Mapping):
        raise InputError(
            f"{file.path}: not a results file of lm-evaluation-harness or the leaderboard (no 'results' object)"
        )
    return read_harness(file, file.head, options, harness=HARNESS)


def read_harness(
    file: ScoreFile, document: Mapping[str, Any], options: ReaderOptions, *, harness: str
) -> list[ScoreEntry]:
    """Scores from a document in the form of lm-evaluation-harness; on a part of the items if the options say so."""
    refuse_percent(file, options)
    entries = read_results(file.path, document, allow_limit=options.allow_limit, harness=harness)
    return entries if options.rescore is None else options.rescore(file, document, entries)


def limit_of(document: Mapping[str, Any]) -> Any:
    """The `--limit` of results, items of each task or a share of them; None without one."""
    limit = _config(document).get("limit")
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def read_results(path: Path, document: Mapping[str, Any], *, allow_limit: bool, harness: str) -> list[ScoreEntry]:
    """All metrics of all tasks that can be accuracies.

    Parameters
    ----------
    path : the file, for messages
    document : its content
    allow_limit : whether to accept results of a part of each task (`--limit` of the harness)
    harness : name of the harness that the scores are of
    """
    limit = limit_of(document)
    if limit is not None and not allow_limit:
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
    config = _config(document)
    arguments = config.get("model_args")
    if not isinstance(arguments, Mapping):  # the harness writes an object, or the string `pretrained=…,dtype=…`
        pairs = (part.partition("=") for part in str(arguments or "").split(","))
        arguments = {key.strip(): value.strip() for key, _, value in pairs}
    named = (arguments[k] for k in ("pretrained", "model", "path", "engine") if arguments.get(k))
    adapter = arguments.get("peft") or arguments.get("delta")  # the harness names the base model only
    usual = document.get("model_name") or next(named, None) or config.get("model_name")
    name = adapter or arguments.get("gguf_file") or usual
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{path}: does not name its model (no model_name, no pretrained= in model_args)")
    revision = str(arguments.get("revision") or "main")
    return name.strip().rstrip("/") + (f"@{revision}" if revision != "main" else "")  # as `collect` names it


def _config(document: Mapping[str, Any]) -> Mapping[str, Any]:
    config = document.get("config")
    return config if isinstance(config, Mapping) else {}


def _about(path: Path, document: Mapping[str, Any], task: str, metrics: Mapping[str, Any]) -> Score:
    """Number of items, harness, version and shots of a score; names and accuracy are empty."""
    where = f"{path}: {task}"
    items = _items(where, document, task)
    if math.isnan(items):
        items = quantity(where, "sample_len", metrics.get("sample_len"))
    members = _at(document, "group_subtasks", task, [])
    if math.isnan(items) and isinstance(members, list) and members and all(isinstance(m, str) for m in members):
        items = float(sum(_items(where, document, m) for m in members))  # NaN if one is unknown
    of_run = _config(document).get("num_fewshot")  # older files: one value for the run
    shots = _at(document, "n-shot", task, of_run)
    version = _at(document, "versions", task, None)
    return Score(
        model="",
        task="",
        accuracy=math.nan,
        n_items=items,
        version="" if version is None else f"{float(version):g}" if _numeric(version) else str(version),
        shots="" if shots is None else str(shots),
    )


def _items(where: str, document: Mapping[str, Any], task: str) -> float:
    counts = _at(document, "n-samples", task, {})
    return quantity(where, "n-samples", counts.get("effective")) if isinstance(counts, Mapping) else math.nan


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


def is_lighteval(document: Any) -> bool:
    """Whether results were written by lighteval; the Open LLM Leaderboard's own (`harness|…`) are another format."""
    keys = [str(key) for key in results_in(document) if "|" in str(key)]
    return bool(keys) and "config_general" in document and not any(key.startswith("harness|") for key in keys)


def read_lighteval(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """All metrics of all tasks that can be accuracies."""
    return read_harness(file, as_lm_eval(file.head), options, harness=LIGHTEVAL)


def split_key(key: str) -> tuple[str, str]:
    """Task and number of shots of a key of the results."""
    parts = key.split("|")
    if len(parts) == 4:  # suite|task|shots|whether to truncate
        parts.pop()
    return (parts[-2], parts[-1]) if len(parts) > 1 else (key, "")


def as_lm_eval(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same results with the keys that lm-evaluation-harness uses."""
    general = document["config_general"] if isinstance(document["config_general"], Mapping) else {}
    configs = document.get("config_tasks")
    configs = configs if isinstance(configs, Mapping) else {}
    keys = [str(key) for key in document["results"] if "|" in str(key)]
    tasks = {key: split_key(key)[0].removesuffix(AVERAGE) for key in keys}
    stated = [key for key in keys if isinstance(configs.get(key), Mapping) and configs[key].get("version") is not None]
    groups = {
        tasks[key]: [tasks[k] for k in keys if tasks[k].startswith(f"{tasks[key]}:")]
        for key in keys
        if split_key(key)[0].endswith(AVERAGE)
    }
    return {
        "results": {tasks[key]: document["results"][key] for key in keys},
        "n-shot": {tasks[key]: split_key(key)[1] for key in keys},
        "versions": {tasks[key]: configs[key]["version"] for key in stated},
        "group_subtasks": groups,
        "model_name": general.get("model_name"),
        "config": {"limit": general.get("max_samples")},
    }
