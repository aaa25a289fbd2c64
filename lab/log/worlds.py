"""Twenty synthetic studies: is `salience` ever a bad idea?

    python -m lab.log.worlds [WORLDS]

Four kinds take turns: accuracy rests on kinds of tokens, on the label tokens, on kinds with one family that
scores off the common law, and on kinds with scores from only 200 items.
"""

import sys
from collections.abc import Sequence

import numpy as np

from benchcast.assemble import AssemblyOptions, assemble
from benchcast.dataset import Dataset, Features, Fold
from benchcast.folds import make_folds
from benchcast.methods import METHODS
from benchcast.task_fit import TaskFit
from lab.synthetic import Plan, World, make_world

WORLD_KINDS = ("kinds", "label", "odd family", "noisy scores")
RIVALS = ("all-token", "source-token", "label-token")


def make(number: int, *, families: int = 8, first_seed: int = 0) -> tuple[World, Dataset]:
    kind = WORLD_KINDS[number % 4]
    plan = Plan(
        seed=first_seed + number,
        families=families,
        truth="label" if kind == "label" else "kinds",
        odd_family=kind == "odd family",
        n_items=200 if kind == "noisy scores" else 2000,
    )
    world = make_world(plan)
    parts = (world.texts, world.losses, world.models, world.scores, world.tasks)
    return world, assemble(*parts, AssemblyOptions(Features(world.features, world.edges, "synthetic")))


def errors(dataset: Dataset, folds: Sequence[Fold], method: str) -> np.ndarray:
    return errors_of(METHODS[method](dataset, folds), dataset, folds)


def errors_of(fits: list[list[TaskFit]], dataset: Dataset, folds: Sequence[Fold]) -> np.ndarray:
    squares = [
        [
            (f.forecast(dataset.nats[fold.test], dataset.metadata.take(fold.test)) - a[fold.test]) ** 2
            for f, a in zip(row, dataset.accuracy, strict=True)
        ]
        for fold, row in zip(folds, fits, strict=True)
    ]
    return np.array([np.concatenate(task).mean() for task in zip(*squares, strict=True)])


def main(count: int) -> None:
    print("| world | split | salience ÷ best of all-, source-, label-token, by task | correlation with true weights |")
    print("|---|---|---|---|")
    ratios: dict[str, list[float]] = {}
    for number in range(count):
        world, dataset = make(number)
        for split in ("size", "family"):
            _, folds = make_folds(world.models, split)
            best = np.min([errors(dataset, folds, rival) for rival in RIVALS], axis=0)
            ratio = errors(dataset, folds, "salience") / best
            fits = METHODS["salience"](dataset, folds[:1])[0]
            correlations = [
                np.corrcoef(f.salience(dataset.nats), w)[0, 1] for f, w in zip(fits, world.salience, strict=True)
            ]
            cells = " ".join(f"{r:.2f}" for r in ratio), " ".join(f"{c:.2f}" for c in correlations)
            print(f"| {number} {WORLD_KINDS[number % 4]} | {split} | {cells[0]} | {cells[1]} |", flush=True)
            ratios.setdefault(split, []).extend(ratio)
    for split, values in ratios.items():
        x = np.array(values)
        share, mean = np.mean(x <= 1.1), np.exp(np.log(x).mean())
        print(f"{split}: first or within 10% on {share:.0%} of {len(x)} tasks, worst {x.max():.2f}, mean {mean:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
