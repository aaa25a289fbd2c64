"""Rows of models.csv and scores.csv for one model; a file is parsed again only after it changed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from benchcast.aggregates import derived_scores
from benchcast.records import ModelInfo, Score, Task
from benchcast.storage.tables import read_models, read_scores

Stamp = tuple[int, int, int]


def known_info(path: Path, model: str) -> ModelInfo:
    """The model's row of models.csv, or an empty row."""
    return _models(path, _stamp(path)).get(model, ModelInfo(model)) if path.exists() else ModelInfo(model)


def known_scores(path: Path, tasks: tuple[Task, ...], model: str) -> tuple[Score, ...]:
    """The model's rows of scores.csv."""
    return _scores(path, _stamp(path), tasks).get(model, ()) if path.exists() else ()


def _stamp(path: Path) -> Stamp:
    """A value that changes with the file: files are replaced, never written in place."""
    state = path.stat()
    return state.st_ino, state.st_mtime_ns, state.st_size


@lru_cache(maxsize=4)
def _models(path: Path, _: Stamp) -> dict[str, ModelInfo]:
    return {m.model: m for m in read_models(path)}


@lru_cache(maxsize=4)
def _scores(path: Path, _: Stamp, tasks: tuple[Task, ...]) -> dict[str, tuple[Score, ...]]:
    by_model: dict[str, tuple[Score, ...]] = {}
    stored = read_scores(path, tasks)
    for score in (*stored, *derived_scores(stored, tasks)):
        by_model[score.model] = (*by_model.get(score.model, ()), score)
    return by_model
