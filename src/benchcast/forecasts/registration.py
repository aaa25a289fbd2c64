"""Register forecasts before the scores are known, and verify them afterwards.

The document contains the forecasts, the hashes of their inputs, the date, and a hash of all this in a canonical form.
Publishing the hash proves later that the forecast was not changed.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

import benchcast
from benchcast.choices import DEFAULT_LEVEL, ScoreUnit
from benchcast.errors import InputError
from benchcast.forecasts.forecast import Forecast, ScoredForecast
from benchcast.forecasts.predict import ModelForecasts, forecast_models
from benchcast.forecasts.stored_fit import Fit, read_model
from benchcast.importers.scores import ImportOptions, gather
from benchcast.messages import as_names, did_you_mean, few, number, plain
from benchcast.records import Score, Task, TokenLosses
from benchcast.study.atomic import HASH, content_digest, hashed, local_folder, write_new
from benchcast.study.model_names import NO_RENAMES, check_renames
from benchcast.study.reading import need_file
from benchcast.study.study import Study, StudyLike

FORMAT = 1
FIELDS = {"forecast": "accuracy", "low": "low", "high": "high", "chance": "chance", "constant": "constant"}


@dataclass(frozen=True, slots=True)
class VerifiedForecast(ScoredForecast):
    """A registered forecast and the observed score."""

    chance: float
    constant: float  # mean score of the fit's training models; NaN if unknown
    remark: str

    def __repr__(self) -> str:
        return f"<VerifiedForecast of {self.task}: {number(self.forecast, '.3f')}, scored {self.observed:.3f}>"

    def to_dict(self) -> dict[str, Any]:
        """The fields, the error and whether the interval covers the score, as plain values; unknown is None."""
        return dict(plain(asdict(self) | {"error": self.error, "inside": self.inside}))


def register(
    study: StudyLike | Fit,
    model: str | PathLike[str],
    path: str | PathLike[str],
    *,
    tasks: Sequence[str] = (),
    level: float = DEFAULT_LEVEL,
    restrict: bool = False,
) -> dict[str, Any]:
    """Forecast a model and write that, dated and hashed, to a new file.

    Parameters
    ----------
    study : an opened study or its folder, whose stored fits forecast; or one fit
    model : a model of the study that has losses; with one fit, a file of the model's losses
    path : the file to write; one that exists is an error
    tasks : tasks of the study that have a fit; none given: all of them
    level : nominal coverage of the intervals on unseen families, between 0 and 1
    restrict : fit again on the tokens that the model has losses for; nothing is stored

    Returns
    -------
    the document as written; publish its "sha256", and `verify` scores it later

    >>> import benchcast as bc
    >>> document = bc.register("study", "oak-64M@16B", "forecast.json")
    >>> [row["task"] for row in document["forecasts"]]
    ['code']
    """
    if isinstance(study, Fit):
        losses = read_model(Path(model), study.texts)
        made = ModelForecasts([study], losses, [study.predict(losses, level=level)])
    else:
        answer = forecast_models(Study.of(study), [str(model)], tasks=as_names(tasks), level=level, restrict=restrict)
        for why in answer.forecasts.failed.values():
            raise InputError(why)
        (made,) = answer.models
    registered = document(made.fits, made.losses, made.forecasts)
    write(Path(path), registered)
    return registered


def document(fits: Sequence[Fit], losses: TokenLosses, forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """The forecasts of one model by these fits from these losses, with today's date and a hash, as plain values."""
    rows = [
        {k: v for k, v in forecast.to_dict().items() if k not in ("model", "level", "observed")}
        | {
            "chance": fit.task_fit.task.chance,
            "constant": fit.about.get("mean_accuracy"),
            "method": fit.task_fit.method,
        }
        | {"fit_sha256": fit.digest}
        for fit, forecast in zip(fits, forecasts, strict=True)
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
    return hashed(content)


def losses_digest(losses: TokenLosses) -> str:
    """SHA-256 of a model's token counts, boundaries, nats and, if it has any, choice losses."""
    parts = [losses.counts.astype("<i8"), losses.edges.astype("<i8"), losses.nats.astype("<f8")]
    parts += [values.astype("<f8") for values in losses.choices.values()]
    return hashlib.sha256(b"".join(x.tobytes() for x in parts)).hexdigest()


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document; InputError if the file exists."""
    try:
        write_new(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    except FileExistsError as error:
        raise InputError(f"{path}: exists; a registered forecast is never overwritten, give another name") from error


def read(path: Path) -> dict[str, Any]:
    """Read a registered forecast; InputError if it is incomplete or its hash is wrong."""
    need_file(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a registered forecast (not JSON: {error})") from error
    if not isinstance(document, dict) or document.get("kind") != "benchcast forecast" or HASH not in document:
        raise InputError(f"{path}: not a registered forecast (`benchcast predict … --register FILE` writes one)")
    try:
        actual = content_digest(document)
    except ValueError as error:  # NaN or a lone surrogate, which are never registered
        raise InputError(f"{path}: not a registered forecast ({error})") from error
    if actual != document[HASH]:
        raise InputError(
            f"{path}: altered since it was registered: it states {HASH} {str(document[HASH])[:16]}…, its content has "
            f"{actual[:16]}…"
        )
    version = document.get("format")
    if not isinstance(version, int) or version > FORMAT:
        raise InputError(f"{path}: of format {version!r}, this version reads {FORMAT}; upgrade benchcast")
    if not _complete(document):
        raise InputError(f"{path}: its hash is right, but fields of a registered forecast are missing")
    return dict(document)


def _complete(document: Mapping[str, Any]) -> bool:
    """Whether a document has all fields that `verify` reads; a valid hash does not guarantee it."""
    texts, rows = [document.get(k) for k in ("model", "registered", "texts")], document.get("forecasts")
    if not all(isinstance(x, str) for x in texts) or "level" not in document or not isinstance(rows, list) or not rows:
        return False
    return all(
        isinstance(row, dict)
        and isinstance(row.get("task"), str)
        and isinstance(row.get("remark"), str)
        and isinstance(row.get("chance"), (int, float))
        and all(isinstance(row.get(k, ""), (int, float, NoneType)) for k in FIELDS.values())
        for row in rows
    )


def verify(
    document: Mapping[str, Any] | str | PathLike[str],
    scores: Sequence[Score] | StudyLike,
    *,
    unit: ScoreUnit | None = None,
    renames: Mapping[str, str] = NO_RENAMES,
) -> list[VerifiedForecast]:
    """Compare registered forecasts with scores.

    Parameters
    ----------
    document : a file that `register` wrote, or its content from `read`; an altered file raises an error
    scores : a study that has them, files of any kind that `import_scores` reads, or scores of any models
    unit : of a wide table in such a file, "fraction" or "percent"
    renames : model or task in score files → name in the registered forecast, as for `import_scores`

    Returns
    -------
    one entry for each forecast whose task has a score of the model; at least one, else InputError

    >>> import benchcast as bc
    >>> document = bc.register("study", "oak-64M@16B", "forecast.json", tasks=["code"])
    >>> [row.task for row in bc.verify("forecast.json", "study")]
    ['code']
    """
    registered = read(Path(document)) if isinstance(document, str | PathLike) else document
    rows = _scores(scores, registered, unit, renames)
    observed = {s.task: s.accuracy for s in rows if s.model == registered["model"]}
    verified = [
        VerifiedForecast(
            task=row["task"],
            observed=observed[row["task"]],
            remark=row["remark"],
            **{k: math.nan if row[v] is None else float(row[v]) for k, v in FIELDS.items()},
        )
        for row in registered["forecasts"]
        if row["task"] in observed
    ]
    if not verified:
        names, wanted = sorted({s.model for s in rows}), ", ".join(row["task"] for row in registered["forecasts"])
        where = f"{scores}: " if isinstance(scores, str | PathLike) else ""
        there = few(names) or "no model"
        raise InputError(
            f"{where}no score of {registered['model']!r} on {wanted} yet; there are scores of {there}"
            f"{did_you_mean(registered['model'], names)} (--rename OLD=NEW gives a model of files another name)"
        )
    return verified


def _scores(
    source: Sequence[Score] | StudyLike,
    registered: Mapping[str, Any],
    unit: ScoreUnit | None,
    renames: Mapping[str, str],
) -> list[Score]:
    """Scores of a study, or of score files with the names of the registered model and its tasks."""
    if isinstance(source, str | PathLike) and (local_folder(source) / "study.toml").is_file():
        source = Study.open(source)
    if renames and not isinstance(source, str | PathLike):
        raise InputError("--rename goes with score files; `benchcast rename` changes the name of a model of a study")
    if isinstance(source, Study):
        return source.scores()
    if not isinstance(source, str | PathLike):
        return list(source)
    check_renames(renames)
    options = ImportOptions(unit=unit, allow_mixed=True, renames=renames)
    tasks = [Task(row["task"], row["chance"]) for row in registered["forecasts"]]
    return [*gather([local_folder(source)], tasks, [registered["model"]], [], options).scores]
