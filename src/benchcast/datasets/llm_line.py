"""LLMs on the line (brendel-group/llm-line): checkpoints of seven architectures × training sets.

Each row of the file is a checkpoint, and rows of one model have one name, so that models are numbered in the order of
the file. Excluded are checkpoints that lack a loss, and MMLU, which few of them have. A family is an architecture on a
training set. Many scores lie below nominal chance: lm-eval's `acc` prefers short answers.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from benchcast.importers.loss_table import PublicStudyTables, column, number, read_rows
from benchcast.records import ModelInfo, Score, Task

FILE = Path("llm-line/data/latest_pm_hf.csv")
VALIDATION = ("C4", "The Pile UC", "RefineWeb", "Slimpajama", "FineWeb-Edu")
# Benchmark of the file → chance.
CHANCE = {
    "ARC-Challenge": 0.25,
    "ARC-Easy": 0.25,
    "HellaSwag": 0.25,
    "Winogrande": 0.5,
    "PIQA": 0.5,
    "Social IQa": 1 / 3,
    "CommonSenseQA": 0.2,
    "COPA": 0.5,
    "OpenBookQA": 0.25,
}


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).lower()


LOSSES = {f"{_plain(name)}_validation_bpb": f"{name} Validation BPB" for name in VALIDATION} | {
    f"{_plain(name)}_bpb": f"{name} BPB" for name in CHANCE
}


def read(raw: Path) -> PublicStudyTables:
    """Read the tables of the study from its file in the folder `raw`."""
    scores = {_plain(name): f"{name} Accuracy" for name in CHANCE}
    known = ("Name", "Architecture", "Pretraining Data", "Size", "Tokens")
    rows = read_rows(raw / FILE, [*known, *LOSSES.values(), *scores.values()])
    counts: Counter[str] = Counter()
    kept: dict[str, dict[str, str]] = {}
    for row in rows:
        if all(row[cell] for cell in LOSSES.values()):
            name = row["Name"].rpartition("/")[2]
            counts[name] += 1
            kept[f"{name}@{counts[name]}"] = row
    return PublicStudyTables(
        columns=[
            column(name, "validation" if "Validation" in cell else "answers", "bits-per-byte")
            for name, cell in LOSSES.items()
        ],
        losses={name: [float(r[cell]) for cell in LOSSES.values()] for name, r in kept.items()},
        models=[_info(name, r) for name, r in kept.items()],
        scores=[Score(name, task, float(r[cell])) for name, r in kept.items() for task, cell in scores.items()],
        tasks=[Task(_plain(name), chance, answers=(f"{_plain(name)}_bpb",)) for name, chance in CHANCE.items()],
    )


def _info(name: str, row: dict[str, str]) -> ModelInfo:
    params, tokens = number(row["Size"]), number(row["Tokens"])
    return ModelInfo(
        model=name,
        family=f"{row['Architecture']}_{row['Pretraining Data']}".replace(" ", "_").replace("-", "_"),
        params=params,
        tokens=tokens,
        flops=6 * params * tokens,
    )
