"""How good is `stack` on small studies? A few families are drawn from a large study, all others are held out.

    python -m lab.log.small_studies [STUDY]... [--seeds N]

STUDY is the embedded study (zoo), a public one, or a folder of tables that `$BENCHCAST_TABLES` names; default: zoo,
dclm, llm-line and the folder pythia if it is there. Each draw has two families of 20 models, one family of 10, or
three families of 2, as far as the study has such families.
Printed is the squared error of each method on a task over that of the best of `PEERS` on this task, found afterwards,
so that 1 is out of reach for a method that is chosen beforehand.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchcast import datasets
from benchcast.errors import BenchcastError
from benchcast.losses.dataset import Dataset
from benchcast.methods import MethodName
from benchcast.methods.spec import fit_method
from benchcast.splits import Fold
from lab.table_folders import study_of_tables, table_folders

DRAWS = {"two of 20": (2, 20), "one of 10": (1, 10), "three of 2": (3, 2)}  # families and models of each
PEERS: tuple[MethodName, ...] = ("salience", "pls", "logistic-4", "label-token")
FEWEST_TESTS = 5  # held-out models with a score


def load(name: str) -> Dataset:
    """The dataset of a study by its name."""
    if name == "zoo":
        return datasets.load_zoo().dataset()
    for tables in table_folders():
        if tables.name == name:
            with tempfile.TemporaryDirectory() as folder:
                return study_of_tables(tables, Path(folder) / name).dataset()
    return datasets.fetch(name).dataset()


def draws(dataset: Dataset, seeds: int) -> Iterator[tuple[str, Fold]]:
    """Folds whose training models are drawn; the other families are held out."""
    names, counts = np.unique(dataset.groups, return_counts=True)
    for label, (families, models) in DRAWS.items():
        large = names[counts >= models]
        for seed in range(seeds if len(large) > families else 0):
            rng = np.random.default_rng(seed)
            chosen = rng.choice(large, families, replace=False)
            train = np.zeros(len(dataset.models), bool)
            for family in chosen:
                train[rng.choice(np.flatnonzero(dataset.groups == family), models, replace=False)] = True
            yield label, Fold(train, np.zeros_like(train), ~np.isin(dataset.groups, chosen))


def task_errors(dataset: Dataset, fold: Fold, method: MethodName) -> np.ndarray:
    """Mean squared error of each task; NaN where it cannot be said."""
    errors = np.full(len(dataset.tasks), np.nan)
    try:
        fits = fit_method(method, dataset, [fold])[0]
    except BenchcastError:
        return errors
    for t, fit in enumerate(fits):
        scores = dataset.accuracy[t]
        test = fold.test & np.isfinite(scores)
        if test.sum() >= FEWEST_TESTS:
            forecast = fit.forecast(dataset.nats[test], dataset.metadata.take(test))
            errors[t] = np.mean((forecast - scores[test]) ** 2)
    return errors


def main() -> None:
    """Print one row for each study and draw, and one for all draws of a study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", default=["zoo", "dclm", "llm-line", *(t.name for t in table_folders())])
    parser.add_argument("--seeds", type=int, default=6)
    given = parser.parse_args()
    methods: tuple[MethodName, ...] = ("stack", *PEERS)
    print("| study | drawn | tasks | " + " | ".join(methods) + " |\n|---|---|---:|" + "---|" * len(methods))
    for name in dict.fromkeys(given.studies):
        dataset = load(name)
        found: dict[str, list[np.ndarray]] = {}
        for label, fold in draws(dataset, given.seeds):
            errors = np.stack([task_errors(dataset, fold, method) for method in methods])
            found.setdefault(label, []).append(errors / np.nanmin(errors[1:], axis=0))
        for label, parts in [*found.items(), ("all", [ratio for drawn in found.values() for ratio in drawn])]:
            ratios = np.concatenate(parts, axis=1)
            ratios = ratios[:, np.isfinite(ratios[0])]
            cells = [
                f"{np.exp(np.nanmean(np.log(row))):.2f}; {np.nanmedian(row):.2f}; {np.nanquantile(row, 0.9):.1f}"
                for row in ratios
            ]
            print(f"| {name} | {label} | {ratios.shape[1]} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
