"""The OLMo 2 model ladder (allenai/OLMo-ladder): 190M to 3B at 0.5 to 10 times Chinchilla, and the 7B and 13B runs.

The study has up to ten evenly spaced checkpoints of each run, without its first tenth. Runs up to 1B are training
models, 3B are validation models, 7B and 13B test models. The 7B and 13B checkpoints are in the middle of a
learning-rate schedule, except `peteish7@anneal` and `peteish13@596057`, the targets of the published study. Runs at
another learning rate (`peteish7_medlr`) and overlapping files are excluded. The runs of length 1xC were run twice; the
column seed tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchcast.importers.loss_table import PublicStudyTables, column, number, read_rows
from benchcast.records import ModelInfo, Score, Task

FOLDER = Path("OLMo-ladder/src/scripts/paper/data/ladder-runs")
TARGETS = ("peteish7@anneal", "peteish13@596057")
CHECKPOINTS = 10  # most checkpoints of a run
SKIPPED = 0.1  # share of a run that is skipped at its start
# Non-embedding parameters, and the value of the split column.
SIZES = {
    "190M": (190_354_176, "train"),
    "370M": (371_262_464, "train"),
    "760M": (758_220_288, "train"),
    "1B": (1_279_395_840, "train"),
    "3B": (3_169_537_280, "validation"),
    "peteish7": (6_887_575_552, "test"),
    "peteish13": (13_202_396_160, "test"),
}
LENGTHS = ("0.5xC", "10xC", "1xC-rerun", "1xC", "2xC", "5xC")
RUN_TWICE = {"1xC": "1", "1xC-rerun": "2"}  # length → seed
PERPLEXITY_SETS = (
    *("c4_en", "dolma_books", "dolma_common-crawl", "dolma_pes2o", "dolma_reddit", "dolma_stack", "dolma_wiki"),
    *("ice", "m2d2_s2orc", "pile", "wikitext_103"),
)
MMLU = ("mmlu_stem", "mmlu_humanities", "mmlu_social_sciences", "mmlu_other")
# Task → chance. Scores are 5-shot, in cloze form, normalised by length; that of BoolQ is plain accuracy.
CHANCE = {
    **dict.fromkeys([f"{name}_test" for name in MMLU], 0.25),
    "hellaswag_val": 0.25,
    "arc_easy_test": 0.25,
    "arc_challenge_test": 0.25,
    "csqa_val": 0.2,
    "openbookqa_test": 0.25,
    "piqa_val": 0.5,
    "socialiqa_val": 1 / 3,
    "boolq_val": 0.5,
    "winogrande_val": 0.5,
}
BOTH = (*MMLU, "arc_challenge", "arc_easy", "openbookqa")  # sets with a validation and a test part
ANSWER_SETS = tuple(sorted({*CHANCE, *(f"{name}_{part}" for name in BOTH for part in ("val", "test"))}))
LOSSES = {f"bpb.{name}": f"eval/downstream_bpb/{name}_rc_5shot_bpb" for name in ANSWER_SETS} | {
    f"ce.{name}": f"eval/{name}-validation/CrossEntropyLoss" for name in PERPLEXITY_SETS
}
SCORES = {task: f"eval/downstream/{task}_rc_5shot_{'acc' if task == 'boolq_val' else 'len_norm'}" for task in CHANCE}


# −ln of the probability of the right option, of log-likelihoods per character; the file has it with the other sign.
CHOICES = {f"choice.{task}": f"eval/downstream_soft_log/{task}_rc_5shot_soft_log" for task in CHANCE}


class Checkpoint(NamedTuple):
    """One row of a run's file."""

    model: str
    size: str
    row: dict[str, str]


def read(raw: Path) -> PublicStudyTables:
    """Read the tables of the ladder from the repository's files in the folder `raw`."""
    return _read(raw, {})


def read_with_choices(raw: Path) -> PublicStudyTables:
    """The same with one more column for each task, which holds its choice losses."""
    return _read(raw, CHOICES)


def _read(raw: Path, choices: dict[str, str]) -> PublicStudyTables:
    checkpoints = list(_checkpoints(raw / FOLDER))
    units = {"bpb": "bits-per-byte", "ce": "nats", "choice": "nats"}
    return PublicStudyTables(
        columns=[column(name, name.split(".")[0], units[name.split(".")[0]]) for name in (*LOSSES, *choices)],
        losses={
            c.model: [
                *(float(c.row[cell]) for cell in LOSSES.values()),
                *(-number(c.row[cell]) for cell in choices.values()),
            ]
            for c in checkpoints
        },
        models=[_info(c) for c in checkpoints],
        scores=[
            Score(c.model, task, float(c.row[cell]), shots="5") for c in checkpoints for task, cell in SCORES.items()
        ],
        tasks=[
            Task(task, chance, answers=(f"bpb.{task}",), choices=(f"choice.{task}",) if choices else ())
            for task, chance in CHANCE.items()
        ],
    )


def _checkpoints(folder: Path) -> Iterator[Checkpoint]:
    for size in SIZES:
        if size.startswith("peteish"):
            yield from _run(folder / f"{size}_eval_full.csv", size, size)
        else:
            for length in LENGTHS:
                yield from _run(folder / f"{size}-{length}.csv", f"{size}-{length}", size)
    (annealed,) = read_rows(folder / "peteish7_eval_anneal.csv", _cells())
    yield Checkpoint("peteish7@anneal", "peteish7", annealed)


def _cells() -> list[str]:
    return [*LOSSES.values(), *SCORES.values()]


def _run(path: Path, name: str, size: str) -> Iterator[Checkpoint]:
    """Checkpoints of one run that have all losses and scores."""
    rows = [r for r in read_rows(path, ["_step", *_cells()]) if all(r[cell] for cell in _cells())]
    last = max(int(r["_step"]) for r in rows)
    late = [r for r in rows if int(r["_step"]) >= SKIPPED * last]
    for i in np.linspace(0, len(late) - 1, min(CHECKPOINTS, len(late))).round().astype(int):
        yield Checkpoint(f"{name}@{late[i]['_step']}", size, late[i])


def _info(checkpoint: Checkpoint) -> ModelInfo:
    """Row of models.csv; training tokens are step × batch size if the file does not state them."""
    row, (params, role) = checkpoint.row, SIZES[checkpoint.size]
    tokens = number(row.get("throughput/total_tokens", ""))
    if not tokens > 0:
        tokens = number(row["_step"]) * number(row["batch_size_in_tokens"])
    length = checkpoint.model.partition("@")[0].removeprefix(f"{checkpoint.size}-")
    return ModelInfo(
        model=checkpoint.model,
        family=checkpoint.size,
        params=params,
        tokens=tokens,
        flops=6 * params * tokens,
        split=role,
        seed=RUN_TWICE.get(length, ""),
    )
