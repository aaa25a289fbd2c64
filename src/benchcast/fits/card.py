"""The model card of a fit: what it learned from, how far it misses, how to use it, what it cannot do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchcast.intervals import LEVEL, out_of_fold_coverage, spread_of
from benchcast.task_fit import TaskFit

MOST_NAMES = 400


def fit_card(core: TaskFit, about: dict[str, Any], *, texts: int, include_texts: bool) -> str:
    """README.md with the front matter that the hub reads."""
    task = core.task.name
    families = sorted(set(map(str, core.out_of_fold.families)))
    lines = [
        "---",
        "library_name: benchcast",
        "tags:",
        "- benchcast",
        "- benchmark-forecast",
        f"- {json.dumps('task:' + task, ensure_ascii=False)}",
        "---",
        f"# Forecasts of {task} from token losses",
        f"Made by benchcast {about['benchcast']} with the method `{core.method}`: a weight for each token of "
        f"{texts} texts and a sigmoid law turn a language model's losses on these texts into the score it will get "
        f"on **{task}** (chance {core.task.chance:.3g}).",
        "## How far it misses",
        _misses(core),
        "## What it learned from",
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
        "very texts of the hash above"
        + (", which come with it." if include_texts else "; ask whoever made the fit for them."),
        "## Limits",
        "Forecasts hold for models like those it learned from. Beyond their range the interval widens, and it "
        "says so. Scores of another harness, prompt or number of shots than the training scores are another task. A "
        "model trained on the texts themselves looks better than it is.",
    ]
    head, body = "\n".join(lines[:7]), "\n\n".join(lines[7:])
    return f"{head}\n\n{body}\n".replace("\n\n- ", "\n- ")


def _misses(core: TaskFit) -> str:
    unseen = core.out_of_fold
    spread, covered = spread_of(unseen), out_of_fold_coverage(unseen)
    if not np.isfinite(spread.half_width):
        return "Too few unseen models to say."
    said = (
        f"On {len(unseen.errors)} models it had not seen ({unseen.kind}): root mean squared error "
        f"{100 * spread.scale:.1f} points, mean absolute error {100 * float(np.abs(unseen.errors).mean()):.1f} "
        f"points; the {LEVEL:.0%} interval is ±{100 * min(1.0, spread.half_width):.1f} points"
    )
    if not np.isfinite(covered):
        return said + "."
    return f"{said}. Intervals made without a family held {covered:.0%} of that family's scores."


def _names(names: Sequence[str]) -> str:
    text = ", ".join(names)
    if len(text) <= MOST_NAMES:
        return text or "none"
    return text[:MOST_NAMES].rpartition(", ")[0] + ", … (all are in fit.json)"
