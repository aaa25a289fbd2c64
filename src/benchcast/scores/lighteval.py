"""Results of lighteval in the form of lm-evaluation-harness, so that one reader serves both.

Its keys are `task|shots`, or `suite|task|shots` in earlier versions; `task:_average|shots` is the mean of the subsets
of a task. `all` is the mean of everything that was run and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
