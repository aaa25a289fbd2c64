"""A forecast that is put down before the score is known, and its judgement afterwards.

The document holds the forecasts, what they rest on, the date, and a hash over all of that in a canonical form:
publish the hash, and nobody can say later that the forecast was another one.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

import benchcast
from benchcast.errors import InputError
from benchcast.fits import Fit, Forecast
from benchcast.formatting import nan_to_none, need_file
from benchcast.records import Score, Task, TokenLosses
from benchcast.storage.files import write_new

FORMAT = 1
HASH = "sha256"
FIELDS = {"forecast": "accuracy", "low": "low", "high": "high", "chance": "chance", "constant": "constant"}


@dataclass(frozen=True, slots=True)
class VerifiedForecast:
    """What became of one forecast."""

    task: str
    observed: float
    forecast: float
    low: float
    high: float
    chance: float
    constant: float  # the mean score of the models that the fit learned from; NaN where not known
    remark: str

    @property
    def error(self) -> float:
        """Forecast minus score."""
        return self.forecast - self.observed

    @property
    def inside(self) -> bool:
        """Whether the interval held."""
        return self.low <= self.observed <= self.high


def document(fits: Sequence[Fit], losses: TokenLosses, forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """Forecasts of one model with all they rest on, dated now and hashed."""
    rows = [
        {k: nan_to_none(v) for k, v in asdict(said).items() if k not in ("model", "level")}
        | {"chance": fit.core.task.chance, "constant": fit.about.get("mean_accuracy"), "method": fit.core.method}
        | {"fit_sha256": fit.digest}
        for fit, said in zip(fits, forecasts, strict=True)
    ]
    content = {
        "format": FORMAT,
        "kind": "benchcast forecast",
        "registered": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": losses.model,
        "level": forecasts[0].level,
        "texts": losses.texts_digest or fits[0].texts.digest,
        "annotated_texts": fits[0].texts.annotated_digest,
        "losses_sha256": losses_digest(losses),
        "versions": {"benchcast": benchcast.__version__, "numpy": np.__version__, "python": platform.python_version()},
        "forecasts": rows,
    }
    return {**content, HASH: digest(content)}


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of a document without its own hash: keys sorted, no white space, UTF-8."""
    rest = {k: v for k, v in content.items() if k != HASH}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def losses_digest(losses: TokenLosses) -> str:
    """SHA-256 of where a model's tokens lie and of their nats."""
    parts = (losses.counts.astype("<i8"), losses.edges.astype("<i8"), losses.nats.astype("<f8"))
    return hashlib.sha256(b"".join(x.tobytes() for x in parts)).hexdigest()


def write(path: Path, made: Mapping[str, Any]) -> None:
    """Write a document; one that is there already is never touched."""
    try:
        write_new(path, json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    except FileExistsError as error:
        raise InputError(f"{path}: exists; a registered forecast is never overwritten, take another name") from error


def read(path: Path) -> dict[str, Any]:
    """A registered forecast whose hash is right; anything else is refused."""
    need_file(path)
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a registered forecast (not JSON: {error})") from error
    if not isinstance(made, dict) or made.get("kind") != "benchcast forecast" or HASH not in made:
        raise InputError(f"{path}: not a registered forecast (`benchcast predict … --register FILE` writes one)")
    try:
        found = digest(made)
    except ValueError as error:  # NaN, or half a character: nothing that was ever registered
        raise InputError(f"{path}: not a registered forecast ({error})") from error
    if found != made[HASH]:
        raise InputError(
            f"{path}: altered since it was registered: it says {HASH} {str(made[HASH])[:16]}…, its content has "
            f"{found[:16]}…"
        )
    known = made.get("format")
    if not isinstance(known, int) or known > FORMAT:
        raise InputError(f"{path}: of format {known!r}, this version reads {FORMAT}; upgrade benchcast")
    if not _complete(made):
        raise InputError(f"{path}: its hash is right, but it is not what benchcast registers; parts are missing")
    return dict(made)


def _complete(made: Mapping[str, Any]) -> bool:
    """Whether all that is judged is there; a hash can be made for anything."""
    words, rows = [made.get(k) for k in ("model", "registered", "texts")], made.get("forecasts")
    if not all(isinstance(x, str) for x in words) or "level" not in made or not isinstance(rows, list) or not rows:
        return False
    return all(
        isinstance(row, dict)
        and isinstance(row.get("task"), str)
        and isinstance(row.get("remark"), str)
        and isinstance(row.get("chance"), (int, float))
        and all(isinstance(row.get(k, ""), (int, float, NoneType)) for k in FIELDS.values())
        for row in rows
    )


def tasks_of(made: Mapping[str, Any]) -> list[Task]:
    """The tasks that were forecast."""
    return [Task(row["task"], row["chance"]) for row in made["forecasts"]]


def verify(made: Mapping[str, Any], scores: Sequence[Score]) -> list[VerifiedForecast]:
    """What became of the forecasts that have a score by now."""
    known = {s.task: s.accuracy for s in scores if s.model == made["model"]}
    return [
        VerifiedForecast(
            task=row["task"],
            observed=known[row["task"]],
            remark=row["remark"],
            **{k: _number(row[v]) for k, v in FIELDS.items()},
        )
        for row in made["forecasts"]
        if row["task"] in known
    ]


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
