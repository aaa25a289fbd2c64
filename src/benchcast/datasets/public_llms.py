"""89 public LLMs: bits per byte on 263 English texts (TristanThrush/perplexity-correlations) and two sets of scores.

Scores are accuracies on arc_easy, piqa and sciq from the same repository, and those of the Open LLM Leaderboard v1 as
collected by felipemaiapolo/sloth, joined by exact id. Rows of the first repository with perplexities (lambada) are
excluded. LLM360/Amber is listed under two publishers and is used once. The family of a model is its publisher, or the
family of its base model if it is known to continue another model, which `base` then names.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path

from benchcast.importers.loss_table import PublicStudyTables, column, read_rows
from benchcast.records import ModelInfo, Score, Task

EXAMPLES = Path("perplexity-correlations/examples/get_error_and_bpb")
LOSSES = EXAMPLES / "bpb_csvs" / "chunked_synthetic_sample_bpb_id.csv"
ERRORS = EXAMPLES / "error_csvs" / "error.csv"
LEADERBOARD = Path("sloth/data/open-llm-leaderboard_old.csv")
MEASURED = {"arc_easy": 0.25, "piqa": 0.5, "sciq": 0.25}  # task → chance; the file has 1 − accuracy
# Task → column of the leaderboard, chance and shots. TruthfulQA (mc2) has no fixed chance.
LISTED = {
    "arc_challenge": ("ARC", 0.25, "25"),
    "hellaswag": ("HellaSwag", 0.25, "10"),
    "mmlu": ("MMLU", 0.25, "5"),
    "truthfulqa_mc2": ("TruthfulQA", 0.0, "0"),
    "winogrande": ("Winogrande", 0.5, "5"),
    "gsm8k": ("GSM8K", 0.0, "5"),
}
# Models built on another publisher's model → the base model, or its family.
BASE = {
    **dict.fromkeys(
        ("codellama/CodeLlama-7b-hf", "TencentARC/LLaMA-Pro-8B", "Wanfq/FuseLLM-7B"), "meta-llama/Llama-2-7b-hf"
    ),
    **dict.fromkeys(
        ("TencentARC/Mistral_Pro_8B_v0.1", "scb10x/typhoon-7b", "gordicaleksa/YugoGPT"), "mistralai/Mistral-7B-v0.1"
    ),
    "itsliupeng/openllama-7b-base": "open-llama",
    **{f"sail/Sailor-{size}": f"Qwen/Qwen1.5-{size}" for size in ("0.5B", "1.8B", "4B", "7B")},
}
SIZE = re.compile(r"(?:^|[-_])(\d+(?:[._]\d+)?)([bm])(?![a-z])", re.IGNORECASE)


def read(raw: Path) -> PublicStudyTables:
    """Read losses and scores of the models from the files in the folder `raw`."""
    texts, table = _by_model(raw / LOSSES)
    publishers = {model: publisher for publisher, model in reversed(table)}  # the first, if there are two
    losses = {model: [float(x) for x in table[publisher, model]] for model, publisher in publishers.items()}
    family = publishers | {m: publishers.get(base, base) for m, base in BASE.items()}
    return PublicStudyTables(
        columns=[column(text.strip(), "prose", "bits-per-byte") for text in texts],
        losses=losses,
        models=[ModelInfo(m, family[m], params_of(m), base=BASE.get(m, "")) for m in losses],
        scores=[*_measured(raw / ERRORS, publishers), *_listed(raw / LEADERBOARD, publishers)],
        tasks=[Task(t, c) for t, c in MEASURED.items()] + [Task(t, c) for t, (_, c, _) in LISTED.items()],
    )


def _by_model(path: Path) -> tuple[list[str], dict[tuple[str, str], list[str]]]:
    """Names of the rows, and the cells of each column; a column is a model, named ('publisher', 'id')."""
    with path.open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
    models = [ast.literal_eval(name) for name in header[1:]]
    return [r[0] for r in rows], {tuple(m): [r[i] for r in rows] for i, m in enumerate(models, start=1)}


def _measured(path: Path, publishers: dict[str, str]) -> Iterator[Score]:
    names, table = _by_model(path)
    for model, publisher in publishers.items():
        errors = dict(zip(names, table[publisher, model], strict=True))
        for task in MEASURED:
            yield Score(model, task, 1 - float(errors[task]), shots="0")


def _listed(path: Path, models: dict[str, str]) -> Iterator[Score]:
    """Scores of the leaderboard; if a model has several rows, the earliest that is not 4-bit."""
    rows: dict[str, list[dict[str, str]]] = {}
    for row in read_rows(path, ["Model", "Precision", "date", *(cell for cell, _, _ in LISTED.values())]):
        if row["Model"] in models:
            rows.setdefault(row["Model"], []).append(row)
    for model in models:
        for row in sorted(rows.get(model, ()), key=lambda r: (r["Precision"] == "4bit", r["date"]))[:1]:
            for task, (cell, _, shots) in LISTED.items():
                yield Score(model, task, float(row[cell]) / 100, shots=shots, harness="Open LLM Leaderboard v1")


def params_of(model: str) -> float:
    """Number of parameters in the model's name; NaN if there is none."""
    size = SIZE.search(model.rpartition("/")[2])
    if size is None:
        return float("nan")
    return float(size[1].replace("_", ".")) * (1e9 if size[2].lower() == "b" else 1e6)
