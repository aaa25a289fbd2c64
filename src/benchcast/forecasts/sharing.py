"""Share a fit: its model card, and the Hugging Face hub."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.choices import level_text
from benchcast.errors import InputError, library, one_line
from benchcast.forecasts.intervals import out_of_fold_coverage, spread_of
from benchcast.methods.task_fit import TaskFit

MOST_NAMES = 400  # characters of a list of names in the card
ID = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ("fit.json", "salience.safetensors", "README.md")


def fit_card(task_fit: TaskFit, about: dict[str, Any], *, texts: int, include_texts: bool) -> str:
    """README.md of a shared fit, with the front matter of the Hugging Face hub.

    Parameters
    ----------
    task_fit : the fit
    about : provenance of the fit
    texts : number of texts
    include_texts : whether the texts are shared with the fit
    """
    task = task_fit.task.name
    families = sorted(set(map(str, task_fit.out_of_fold.families)))
    lines = [
        "---",
        "library_name: benchcast",
        "tags:",
        "- benchcast",
        "- benchmark-forecast",
        f"- {json.dumps('task:' + task, ensure_ascii=False)}",
        "---",
        f"# Forecasts of {task} from token losses",
        f"Made by benchcast {about['benchcast']} with the method `{task_fit.method}`: a weight for each token of "
        f"{texts} texts and a sigmoid law map a language model's losses on these texts to its score on **{task}** "
        f"(chance {task_fit.task.chance:.3g}).",
        "## Error",
        _error(task_fit),
        "## Training data",
        f"- training models ({len(about.get('train', ()))}): {_names(about.get('train', ()))}",
        f"- validation models ({len(about.get('validation', ()))}): {_names(about.get('validation', ()))}",
        f"- families ({len(families)}): {_names(families)}",
        f"- split: {about['split']}",
        f"- mean score of these models: {about.get('mean_accuracy', float('nan')):.3f}",
        f"- reference tokens: of {'scorer ' + about['scorer'] if about['scorer'] else 'words, no scorer'}",
        f"- texts: {texts}, hash `{about['texts']}`, "
        + ("included" if include_texts else "not included: only their ids, sources and lengths are"),
        "## How to use it",
        "```python\nimport benchcast as bc\n\n"
        'fit = bc.Fit.from_pretrained("this/repository")\nforecast = fit.predict(losses)\n```',
        "or `benchcast predict --fit this/repository --losses my-model.jsonl`. Losses are those of your model on the "
        "texts with the hash above"
        + (", which are included." if include_texts else "; ask the author of the fit for them."),
        "## Limits",
        "Forecasts are valid for models similar to the training models. Outside their range the interval is wider, and "
        "a remark says so. Scores from another harness, prompt or number of shots than the training scores are another "
        "task. A model that was trained on these texts gets too high a forecast.",
    ]
    head, body = "\n".join(lines[:7]), "\n\n".join(lines[7:])
    return f"{head}\n\n{body}\n".replace("\n\n- ", "\n- ")


def _error(task_fit: TaskFit) -> str:
    """Out-of-fold error and coverage, as sentences."""
    out_of_fold = task_fit.out_of_fold
    spread, coverage = spread_of(task_fit), out_of_fold_coverage(task_fit)
    if not np.isfinite(spread.half_width):
        return "Unknown: too few models were held out."
    sentence = (
        f"On {len(out_of_fold.errors)} held-out models ({out_of_fold.kind}): root mean squared error "
        f"{100 * spread.scale:.1f} points, mean absolute error {100 * float(np.abs(out_of_fold.errors).mean()):.1f} "
        f"points; the {level_text()} interval is ±{100 * min(1.0, spread.half_width):.1f} points"
    )
    if not np.isfinite(coverage):
        return sentence + "."
    return f"{sentence}. Intervals from the other families contain {coverage:.0%} of a held-out family's scores."


def _names(names: Sequence[str]) -> str:
    text = ", ".join(names)
    if len(text) <= MOST_NAMES:
        return text or "none"
    return text[:MOST_NAMES].rpartition(", ")[0] + ", … (all are in fit.json)"


def is_id(name: str) -> bool:
    """Whether a name has the form of a hub repository, user/name."""
    return ID.fullmatch(name) is not None and not name.startswith(".")


def fetch(repo_id: str, revision: str | None = None) -> Path:
    """Download a fit unless it is cached; returns its folder."""
    hub = library("huggingface_hub", "hub", f"; there is no folder {repo_id}")
    try:
        return Path(hub.snapshot_download(repo_id, revision=revision, allow_patterns=list(FILES)))
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError, OSError, ValueError) as error:
        raise InputError(
            f"{repo_id}: neither a local folder nor a readable fit on the hub ({one_line(error).rstrip('.')}); "
            "is HF_TOKEN set, if it is private?"
        ) from error


def push(folder: Path, repo_id: str, *, private: bool | None = None) -> str:
    """Upload a fit's folder, creating the repository if needed; returns its address."""
    if not is_id(repo_id):
        raise InputError(f"{repo_id!r} is not a repository of the hub; needed is user/name")
    hub = library("huggingface_hub", "hub")
    api = hub.HfApi(library_name="benchcast")
    try:
        repository = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository.repo_id,
            folder_path=folder,
            allow_patterns=list(FILES),
            commit_message="Upload a benchcast fit",
        )
    except (hub.errors.HfHubHTTPError, OSError, ValueError) as error:
        raise InputError(
            f"{repo_id}: the upload to the hub failed ({one_line(error).rstrip('.')}); is HF_TOKEN set?"
        ) from error
    return str(repository)
