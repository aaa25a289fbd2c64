"""A folder with all it takes to reproduce Table 1: tables, commands, and what they will cost.

The estimate counts, for each model, reading its weights in bfloat16 and one forward pass over the texts
on as many 80 GB GPUs as the weights need. Reading dominates: the texts are few.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchcast.errors import InputError
from benchcast.files import write_text
from benchcast.paper.models import SCORER, hub_ids, paper_models, paper_scores
from benchcast.records import ModelInfo, TextSet
from benchcast.store import Study
from benchcast.tables import MODEL_COLUMNS, SCORE_COLUMNS, as_csv
from benchcast.texts.mix import PAPER_MIX, build_mixture

BYTES_PER_PARAM = 2  # bfloat16
GPU_BYTES = 80e9
ROOM = 1.25  # beside the weights: activations, logits, cache
READ_BYTES_PER_SECOND = 1e9  # from local disk to the GPU
START_SECONDS = 60.0  # of a backend, before it reads weights
FLOPS_PER_SECOND = 1e14  # of one GPU, about a third of the peak of an A100 or A800
BYTES_PER_TOKEN = 3.5
MEAN_TEXT_BYTES = 450  # of the mixture
SCORER_DIMS = 2048
LOSS_BYTES = 9  # nats, bounds and the share of the ids, for each token, compressed


@dataclass(frozen=True, slots=True)
class Cost:
    """What collecting losses of some models takes."""

    gpu_hours: float
    most_gpus: int
    weights_bytes: float  # of all models together
    largest_bytes: float  # of the largest, if each is removed before the next
    study_bytes: float


def gpus_for(model: ModelInfo) -> int:
    """80 GB GPUs that hold the weights: one, or a power of two."""
    share = model.params * BYTES_PER_PARAM * ROOM / GPU_BYTES
    return 1 if share <= 1 else 2 ** math.ceil(math.log2(share))


def estimate(models: Sequence[ModelInfo], text_bytes: float) -> Cost:
    """Cost of scoring texts of so many bytes with each of the models, and of storing what comes out."""
    tokens = text_bytes / BYTES_PER_TOKEN
    hours, weights = 0.0, []
    for m in models:
        gpus = gpus_for(m)
        weights.append(m.params * BYTES_PER_PARAM)
        seconds = START_SECONDS + weights[-1] / READ_BYTES_PER_SECOND + 2 * m.params * tokens / FLOPS_PER_SECOND / gpus
        hours += gpus * seconds / 3600
    stored = tokens * (SCORER_DIMS * 2 + LOSS_BYTES * len(models))
    return Cost(hours, max(map(gpus_for, models)), sum(weights), max(weights), stored)


def write_plan(folder: Path, data: Path | None, *, seed: int = 0, backend: str = "vllm") -> Cost:
    """Write models.csv, scores.csv and commands.sh; with the benchmarks' files, the study as well."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists and is not empty; a plan needs a folder of its own")
    models, scores = paper_models(), paper_scores()
    texts = None
    if data is not None:
        made = build_mixture(PAPER_MIX, data, seed=seed)
        texts = made.texts
        study = Study.create(folder / "study", texts, tasks=made.tasks, seed=seed)
        study.add_models(models)
        study.add_scores(scores)
    cost = estimate(models, _bytes(texts))
    write_text(folder / "models.csv", as_csv(MODEL_COLUMNS, models))
    write_text(folder / "scores.csv", as_csv(SCORE_COLUMNS, scores))
    lines = [*_heading(cost), *([] if texts else _setup(seed)), *_commands(models, backend)]
    write_text(folder / "commands.sh", "\n".join(lines) + "\n")
    return cost


def _bytes(texts: TextSet | None) -> float:
    return float(texts.starts[-1]) if texts else sum(PAPER_MIX.values()) * MEAN_TEXT_BYTES


def _heading(cost: Cost) -> list[str]:
    return [
        "#!/bin/sh",
        "# Reproduces Table 1. Every command can be stopped and run again: what is done is passed over.",
        f"# {describe(cost)}",
        "# Weights of Llama and Gemma are given out after their licences are accepted on the hub.",
        "set -e",
        'cd "$(dirname "$0")"',
        "",
    ]


def describe(cost: Cost) -> str:
    """The estimate in one line."""
    return (
        f"About {cost.gpu_hours:.0f} GPU hours, up to {cost.most_gpus} GPUs of 80 GB at once; "
        f"{cost.weights_bytes / 1e12:.1f} TB of weights in all, {cost.largest_bytes / 1e9:.0f} GB for the largest "
        f"model if each is removed before the next; {cost.study_bytes / 1e9:.1f} GB for the study."
    )


def _setup(seed: int) -> list[str]:
    mix = ",".join(f"{name}={count}" for name, count in PAPER_MIX.items())
    return [
        'data="${BENCHMARKS:?set it to the folder with the files of the benchmarks (docs/texts.md)}"',
        f'[ -e study/study.toml ] || benchcast init study --mix {mix} --data "$data" --seed {seed}',
        "benchcast import models study models.csv",
        "benchcast import scores study scores.csv",
        "",
    ]


def _commands(models: Sequence[ModelInfo], backend: str) -> list[str]:
    ids = hub_ids()
    lines = []
    for m in sorted(models, key=lambda m: m.params):
        arguments = f"pretrained={ids[m.model]},dtype=bfloat16"
        arguments += ",trust_remote_code=True" if ids[m.model].startswith("internlm/") else ""
        if backend == "vllm" and gpus_for(m) > 1:
            arguments += f",tensor_parallel_size={gpus_for(m)}"
        words = ["benchcast", "collect", "study", "--model", backend, "--model_args", arguments]
        lines.append(shlex.join([*words, "--name", m.model, "--family", m.family]))
    return [
        *lines,
        "",
        f"benchcast features study --scorer {SCORER} --model_args trust_remote_code=True",
        "benchcast fit study --method paper --split column",
        "benchcast compare study --split column",
        "benchcast reproduce baselines study",
    ]
