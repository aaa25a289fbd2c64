"""Read the Open LLM Leaderboard: tables of version 2 and version 1, and result files of version 1.

Version 2 shows scores rescaled so that chance is 0; its `… Raw` columns are accuracies.
Version 1 shows percentages; its result files contain fractions, and MMLU as 57 subjects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.errors import InputError
from benchcast.importers.scores.entries import FRACTION, PERCENT, UNITS, ScoreEntry, fraction, quantity
from benchcast.importers.scores.lm_eval import PRETRAINED
from benchcast.records import Score

V1, V2 = "open-llm-leaderboard-v1", "open-llm-leaderboard-v2"
RAW = " Raw"
V2_SHOTS = {"IFEval": "0", "BBH": "3", "MATH Lvl 5": "4", "GPQA": "0", "MUSR": "0", "MMLU-PRO": "5"}
V1_SHOTS = {"ARC": "25", "HellaSwag": "10", "MMLU": "5", "TruthfulQA": "0", "Winogrande": "5", "GSM8K": "5"}
V1_METRIC = {"arc:challenge": "acc_norm", "hellaswag": "acc_norm", "truthfulqa:mc": "mc2"}
SUBJECT = "hendrycksTest-"
SUBJECTS = 57
NAMES = ("fullname", "model_name_for_query", "Model", "model")


def is_v2(header: Sequence[str]) -> bool:
    """Whether a header is that of a version 2 table, with or without raw columns."""
    return any(h.endswith(RAW) for h in header) or {"IFEval", "MUSR"} <= set(header)


def is_v1(header: Sequence[str]) -> bool:
    """Whether a header is that of a version 1 table."""
    return any(h.startswith("Average") for h in header) and len(set(header) & set(V1_SHOTS)) >= 3


def read_v2(path: Path, rows: Sequence[Mapping[str, Any]], *, unit: str | None = None) -> list[ScoreEntry]:
    """Read the raw columns of a version 2 table; `unit` is "fraction" by default."""
    columns = [c for c in rows[0] if c.endswith(RAW)]
    if not columns:
        raise InputError(
            f"{path}: has only the rescaled columns of the leaderboard; the accuracies are in its '… Raw' columns"
        )
    return _table(
        path, rows, {c: c.removesuffix(RAW) for c in columns}, V2_SHOTS, V2, UNITS[unit] if unit else FRACTION
    )


def read_v1(path: Path, rows: Sequence[Mapping[str, Any]], *, unit: str | None = None) -> list[ScoreEntry]:
    """Read the six columns of a version 1 table; `unit` is "percent" by default."""
    perfect = UNITS[unit] if unit else PERCENT
    return _table(path, rows, {c: c for c in rows[0] if c in V1_SHOTS}, V1_SHOTS, V1, perfect)


def _table(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    shots: Mapping[str, str],
    harness: str,
    perfect: float,
) -> list[ScoreEntry]:
    name = next((n for n in NAMES if n in rows[0]), None)
    if name is None:
        raise InputError(f"{path}: no column with the models' names; one of {', '.join(NAMES)} is needed")
    entries = []
    for number, row in enumerate(rows, start=2):
        model = str(row[name]).strip()
        if not model or model.startswith("<"):
            raise InputError(
                f"{path}: line {number}: {name} {model[:20]!r} is not a model name; keep the column 'fullname'"
            )
        for column, task in columns.items():
            where = f"{path}: line {number}: {column}"
            value = fraction(where, row[column], perfect)
            if value is not None:
                entries.append(ScoreEntry(where, Score(model, task, value, harness=harness, shots=shots.get(task, ""))))
    return entries


def read_v1_results(path: Path, document: Mapping[str, Any]) -> list[ScoreEntry]:
    """Read a version 1 result file with keys such as `harness|hellaswag|10`.

    MMLU is the mean of its 57 subjects, which are returned as well.
    """
    model = _model(path, document)
    if any(_at(document, "versions", key) == 0 for key in document["results"] if SUBJECT in key):
        raise InputError(
            f"{path}: its MMLU was scored by a version that the leaderboard itself leaves out (version 0); "
            "use a later results file"
        )
    entries, subjects = [], []
    for key, metrics in document["results"].items():
        parts = key.split("|")
        if len(parts) != 3:
            continue
        if not isinstance(metrics, Mapping):
            raise InputError(f"{path}: results of {key!r} must be an object, found {metrics!r}")
        task, shots = parts[1].strip(), parts[2].strip()
        metric = V1_METRIC.get(task, "acc")
        where = f"{path}: {key}"
        value = fraction(where, metrics.get(metric), FRACTION)
        if value is None:
            continue
        subject = task.startswith(SUBJECT)
        name = f"mmlu_{task.removeprefix(SUBJECT)}" if subject else task
        score = Score(model.strip(), name, value, harness=V1, shots=shots)
        entries.append(
            ScoreEntry(where, score, metric, quantity(where, f"{metric}_stderr", metrics.get(f"{metric}_stderr")))
        )
        subjects += [score] if subject else []
    return entries + _mmlu(path, subjects)


def _model(path: Path, document: Mapping[str, Any]) -> str:
    general = document.get("config_general") or document.get("config") or {}
    model = general.get("model_name") or general.get("model_args") if isinstance(general, Mapping) else None
    if not isinstance(model, str):
        raise InputError(f"{path}: does not name its model (no config_general.model_name)")
    named = PRETRAINED.search(model)
    return named.group(1).strip() if named else model


def _at(document: Mapping[str, Any], part: str, key: str) -> Any:
    table = document.get(part)
    return table.get(key) if isinstance(table, Mapping) else None


def _mmlu(path: Path, subjects: Sequence[Score]) -> list[ScoreEntry]:
    if not subjects:
        return []
    if len(subjects) != SUBJECTS:
        raise InputError(f"{path}: {len(subjects)} subjects of MMLU, its score is the mean of all {SUBJECTS}")
    mean = float(np.mean([s.accuracy for s in subjects]))
    one = subjects[0]
    return [
        ScoreEntry(
            f"{path}: mean of {SUBJECTS} subjects", Score(one.model, "mmlu", mean, harness=V1, shots=one.shots), "acc"
        )
    ]
