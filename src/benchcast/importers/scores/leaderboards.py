"""Read the Open LLM Leaderboard: tables of version 2 and version 1, and result files of version 1.

Version 2 shows scores rescaled so that chance is 0; its `… Raw` columns are accuracies.
Version 1 shows percentages; its result files contain fractions, and MMLU as 57 subjects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchcast.errors import InputError
from benchcast.importers.scores.entries import (
    FRACTION,
    PERCENT,
    ReaderOptions,
    ScoreEntry,
    ScoreFile,
    fraction,
    quantity,
    refuse_percent,
    results_in,
)
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


def read_v2(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """Scores of the raw columns of a version 2 table."""
    task_of = {c: c.removesuffix(RAW) for c in file.rows[0] if c.endswith(RAW)}
    if not task_of:
        raise InputError(
            f"{file.path}: has only the rescaled columns of the leaderboard; the accuracies are in its '… Raw' columns"
        )
    return _table(file, task_of, V2_SHOTS, harness=V2, perfect=options.perfect(FRACTION))


def read_v1(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """Scores of the six columns of a version 1 table."""
    task_of = {c: c for c in file.rows[0] if c in V1_SHOTS}
    return _table(file, task_of, V1_SHOTS, harness=V1, perfect=options.perfect(PERCENT))


def _table(
    file: ScoreFile, task_of: Mapping[str, str], shots: Mapping[str, str], *, harness: str, perfect: float
) -> list[ScoreEntry]:
    """Scores of a table with one row for each model.

    Parameters
    ----------
    file : the table
    task_of : column → task
    shots : task → number of examples in the prompt
    harness : origin of the scores
    perfect : value of a perfect score
    """
    name = next((n for n in NAMES if n in file.rows[0]), None)
    if name is None:
        raise InputError(f"{file.path}: no column with the models' names; one of {', '.join(NAMES)} is needed")
    entries = []
    for number, row in enumerate(file.rows, start=2):
        model = row[name].strip()
        if not model or model.startswith("<"):
            raise InputError(
                f"{file.path}: line {number}: {name} {model[:20]!r} is not a model name; keep the column 'fullname'"
            )
        for column, task in task_of.items():
            where = f"{file.path}: line {number}: {column}"
            value = fraction(where, row[column], perfect)
            if value is not None:
                entries.append(ScoreEntry(where, Score(model, task, value, harness=harness, shots=shots.get(task, ""))))
    return entries


def is_v1_results(document: Any) -> bool:
    """Whether a document has the keys of a version 1 result file, such as `harness|hellaswag|10`."""
    return any("|" in key for key in results_in(document))


def read_v1_results(file: ScoreFile, options: ReaderOptions) -> list[ScoreEntry]:
    """Scores of a version 1 result file; MMLU is the mean of its 57 subjects, which are returned as well."""
    refuse_percent(file, options)
    path, document = file.path, file.head
    model = _model(file)
    versions = document.get("versions")
    versions = versions if isinstance(versions, Mapping) else {}
    if any(versions.get(key) == 0 for key in document["results"] if SUBJECT in key):
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
        score = Score(model, name, value, harness=V1, shots=shots)
        stderr = quantity(where, f"{metric}_stderr", metrics.get(f"{metric}_stderr"))
        entries.append(ScoreEntry(where, score, metric, stderr))
        subjects += [score] if subject else []
    if subjects and len(subjects) != SUBJECTS:
        raise InputError(f"{path}: {len(subjects)} subjects of MMLU, its score is the mean of all {SUBJECTS}")
    if subjects:
        mean = float(np.mean([s.accuracy for s in subjects]))
        score = Score(model, "mmlu", mean, harness=V1, shots=subjects[0].shots)
        entries.append(ScoreEntry(f"{path}: mean of {SUBJECTS} subjects", score, "acc"))
    return entries


def _model(file: ScoreFile) -> str:
    general = file.head.get("config_general") or file.head.get("config") or {}
    model = general.get("model_name") or general.get("model_args") if isinstance(general, Mapping) else None
    if not isinstance(model, str):
        raise InputError(f"{file.path}: does not name its model (no config_general.model_name)")
    named = PRETRAINED.search(model)
    return (named.group(1) if named else model).strip()
