"""`init --from-lm-eval`: a study from evaluation logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchcast.cli.output import say
from benchcast.cli.scores import read_metrics

if TYPE_CHECKING:
    from benchcast.scores.gather import ImportOptions


def log_options(metrics: tuple[str, ...], *, allow_limit: bool) -> ImportOptions:
    """What the user said of the logs."""
    from benchcast.scores.gather import ImportOptions

    return ImportOptions(metrics=read_metrics(metrics), allow_limit=allow_limit)


def init_from_logs(study: Path, folder: Path, items: float, options: ImportOptions, *, seed: int, preset: str) -> None:
    """Create the study and print what it holds."""
    from benchcast.logs.study import create_from_logs

    made = create_from_logs(study, folder, items=items, seed=seed, options=options, preset=preset)
    texts, found = made.study.texts, made.scores
    say(f"{study}: {len(made.study.models_with_losses())} models, {len(texts)} items ({', '.join(texts.sources)})")
    say("tasks: " + ", ".join(f"{t.name} (chance {t.chance:g})" for t in made.study.tasks))
    say("metrics: " + ", ".join(f"{task} {metric}" for task, metric in found.metrics.items()))
    for note in made.notes:
        say(note)
    say(f"next: benchcast import models {study} models.csv (families), then `benchcast compare {study} --split family`")
