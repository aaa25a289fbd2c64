"""53 public language models, publishers left out in turn: `salience` against the mean bits per byte.

    python -m lab.log.public FOLDER

FOLDER holds bits_per_byte.csv (models × texts, from the repository TristanThrush/perplexity-correlations) and
scores.csv (model, family, Open LLM Leaderboard v1 scores as fractions, from felipemaiapolo/sloth). Each text is one
token.
"""

import csv
import sys
from pathlib import Path

import numpy as np

from benchcast.dataset import Dataset, ReferenceTokens
from benchcast.folds import make_folds
from benchcast.metadata import ModelMetadata
from benchcast.methods import METHODS
from benchcast.records import ModelInfo, Task

CHANCE = {"ARC": 0.25, "HellaSwag": 0.25, "MMLU": 0.25, "TruthfulQA": 0.0, "Winogrande": 0.5, "GSM8K": 0.0}
BYTES = 1000  # of a text; lengths are not given, and texts are of like length


def read(folder: Path) -> Dataset:
    with (folder / "bits_per_byte.csv").open(encoding="utf-8", newline="") as lines:
        bits = {row[0]: np.array(row[1:], float) for row in list(csv.reader(lines))[1:]}
    with (folder / "scores.csv").open(encoding="utf-8", newline="") as lines:
        rows = [r for r in csv.DictReader(lines) if r["ARC"] and r["model"] in bits]
    nats = np.array([bits[r["model"]] for r in rows]) * np.log(2) * BYTES
    n = nats.shape[1]
    tokens = ReferenceTokens(
        np.arange(n + 1) * BYTES, np.arange(n), np.zeros(n, int), np.zeros(n, bool), ("prose",), np.ones(n, bool)
    )
    accuracy = np.array([[float(r[task]) for r in rows] for task in CHANCE])
    tasks = tuple(Task(name, chance, ("prose",)) for name, chance in CHANCE.items())
    return Dataset(
        tuple(r["model"] for r in rows),
        ModelMetadata.of([ModelInfo(r["model"], r["family"]) for r in rows], []),
        nats.astype(np.float32),
        float(n * BYTES),
        tasks,
        accuracy,
        np.full_like(accuracy, np.nan),
        tokens,
    )


def main(folder: Path) -> None:
    dataset = read(folder)
    infos = [ModelInfo(m, f) for m, f in zip(dataset.models, dataset.families, strict=True)]
    _, folds = make_folds(infos, "family")
    errors = {}
    for method in ("all-token", "salience", "pls", "perplexity-correlations", "logistic-4", "constant"):
        fits = METHODS[method](dataset, folds)
        forecasts = np.empty_like(dataset.accuracy)
        for fold, row in zip(folds, fits, strict=True):
            for t, fit in enumerate(row):
                forecasts[t, fold.test] = fit.forecast(dataset.nats[fold.test], dataset.metadata.take(fold.test))
        errors[method] = forecasts - dataset.accuracy
    base = errors["all-token"]
    print(f"{len(dataset.models)} models of {len(folds)} publishers; ratios to the mean-bits sigmoid (all-token)")
    print("| method | measure | " + " | ".join(CHANCE) + " |")
    print("|---|---|" + "---|" * len(CHANCE))
    for method, e in errors.items():
        mse = (e**2).mean(axis=1) / (base**2).mean(axis=1)
        median = np.median(np.abs(e), axis=1) / np.median(np.abs(base), axis=1)
        for name, values in (("mean squared error", mse), ("median error", median)):
            print(f"| {method} | {name} | " + " | ".join(f"{v:.2f}" for v in values) + " |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
