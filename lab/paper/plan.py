"""A folder with all it takes to reproduce Table 1: tables, commands, and what they will cost.

The estimate counts, for each model, reading its weights in bfloat16 and one forward pass over the texts
on as many 80 GB GPUs as the weights need. Reading dominates: the texts are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchcast.errors import InputError
from benchcast.importers.mixture import PAPER_MIX, build_mixture
from benchcast.messages import did_you_mean
from benchcast.records import ModelInfo, TextSet
from benchcast.study.atomic import write_text
from benchcast.study.study import Study
from benchcast.study.tables import MODEL_COLUMNS, SCORE_COLUMNS, as_csv
from lab.paper.models import SCORER, hub_ids, paper_models, paper_scores
from lab.paper.standins import write_stand_ins

BACKENDS = ("vllm", "lmdeploy", "hf")  # those that load a model themselves
PARALLEL = {"vllm": "tensor_parallel_size"}  # the setting that spreads a model over several GPUs
STAND_INS = "stand-ins"
FIND_DATA = (
    ': "${BENCHMARKS:?set it to the folder with the files of the benchmarks (docs/texts.md)}"',
    'data=$(cd "$BENCHMARKS" && pwd)',
)
PLACE = ('cd "$(dirname "$0")"', ': "${WEIGHTS:=}"', "")
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
    """Cost of scoring texts of `text_bytes` bytes with each of the models, and of storing the results."""
    tokens = text_bytes / BYTES_PER_TOKEN
    hours, weights = 0.0, []
    for m in models:
        gpus = gpus_for(m)
        weights.append(m.params * BYTES_PER_PARAM)
        seconds = START_SECONDS + weights[-1] / READ_BYTES_PER_SECOND + 2 * m.params * tokens / FLOPS_PER_SECOND / gpus
        hours += gpus * seconds / 3600
    stored = tokens * (SCORER_DIMS * 2 + LOSS_BYTES * len(models))
    return Cost(hours, max(map(gpus_for, models)), sum(weights), max(weights), stored)


def write_plan(
    folder: Path, data: Path | None, *, seed: int = 0, backend: str = "vllm", stand_ins: bool = False
) -> Cost:
    """Write models.csv, scores.csv and commands.sh; with the benchmarks' files, the study as well.

    `stand_ins` adds tiny models to rehearse the commands with.
    """
    if backend not in BACKENDS:
        raise InputError(
            f"unknown backend {backend!r}; a plan loads every model itself, with {', '.join(BACKENDS)}"
            f"{did_you_mean(backend, BACKENDS)}"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists and is not empty; a plan needs a folder of its own")
    models, scores = paper_models(), paper_scores()
    texts = None
    if data is not None:
        mixture = build_mixture(PAPER_MIX, data, seed=seed)
        texts = mixture.texts
        study = Study.create(folder / "study", texts, tasks=mixture.tasks, seed=seed)
        study.add_models(models)
        study.add_scores(scores)
    cost = estimate(models, _bytes(texts))
    write_text(folder / "models.csv", as_csv(MODEL_COLUMNS, models))
    write_text(folder / "scores.csv", as_csv(SCORE_COLUMNS, scores))
    start = [] if texts else _setup(seed)
    lines = [
        *_heading(cost, models, backend),
        *(FIND_DATA if start else []),
        *PLACE,
        *start,
        *_commands(models, backend),
    ]
    write_text(folder / "commands.sh", "\n".join(lines) + "\n")
    if stand_ins:
        write_stand_ins(folder / STAND_INS)
    return cost


def _bytes(texts: TextSet | None) -> float:
    return float(texts.starts[-1]) if texts else sum(PAPER_MIX.values()) * MEAN_TEXT_BYTES


def _heading(cost: Cost, models: Sequence[ModelInfo], backend: str) -> list[str]:
    large = sum(gpus_for(m) > 1 for m in models)
    alone = [f"# {backend} loads a model onto one GPU: {large} of {len(models)} need more than 80 GB there."]
    return [
        "#!/bin/sh",
        "# Reproduces Table 1. Every command can be stopped and run again: what is done is passed over.",
        f"# {describe(cost)}",
        *([] if backend in PARALLEL else alone),
        "# Weights of Llama and Gemma are given out after their licences are accepted on the hub.",
        "# Models lie on the hub; with WEIGHTS=FOLDER/, absolute or seen from this file, in folders of the same names.",
        "set -eu",
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
        f'[ -e study/study.toml ] || benchcast init study --mix {mix} --data "$data" --seed {seed}',
        "benchcast import models study models.csv",
        "benchcast import scores study scores.csv",
        "",
    ]


def _commands(models: Sequence[ModelInfo], backend: str) -> list[str]:
    ids = hub_ids()
    lines = []
    for m in sorted(models, key=lambda m: m.params):
        arguments = f"pretrained=${{WEIGHTS}}{ids[m.model]},dtype=bfloat16"
        arguments += ",trust_remote_code=True" if ids[m.model].startswith("internlm/") else ""
        if backend in PARALLEL and gpus_for(m) > 1:
            arguments += f",{PARALLEL[backend]}={gpus_for(m)}"
        lines.append(
            f'benchcast collect study --model {backend} --model_args "{arguments}" --name {m.model} --family {m.family}'
        )
    return [
        *lines,
        "",
        f'benchcast features study --scorer "${{WEIGHTS}}{SCORER}" --name {SCORER.rpartition("/")[2]} '
        "--model_args trust_remote_code=True",
        "benchcast fit study --method paper --split column",
        "benchcast compare study --split column",
    ]
