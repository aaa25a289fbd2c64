"""What pairing items saves on real logs, and how often models that are equal by construction are called different.

    python -m lab.log.paired_items logs/model-a logs/model-b logs/model-c

For each pair of folders: the width of the interval without pairing, over that with it, on each task and on the mean of
tasks. Equal models are made from the pair: on each cluster of items, a coin decides which model gets which answers, so
the true difference is zero while the items stay as hard and the models as much alike as they really are.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from benchcast.decisions.compare_items import MEAN, compare_sides
from benchcast.decisions.logged_models import LoggedSide, TaskItems, read_sides
from benchcast.records import Floats

DRAWS = 500


def main(folders: list[Path]) -> None:
    """Print a line for each pair, and the rates over all of them."""
    sides, _ = read_sides(folders, models=(), tasks=(), metrics={}, on_file=lambda file: None)
    rng = np.random.default_rng(0)
    called: dict[str, list[bool]] = {}
    for first, second in combinations(sides, 2):
        found = compare_sides([first, second], {}, allow_different_prompts=True).differences
        gains = ", ".join(f"{d.task} {d.unpaired:.2f}" for d in found)
        print(f"{first.name} against {second.name}: {gains}", flush=True)
        for _ in range(DRAWS):
            for d in compare_sides(exchanged(first, second, rng), {}, allow_different_prompts=True).differences:
                called.setdefault(d.task, []).append(d.low > 0 or d.high < 0)
    for task, hits in called.items():
        print(f"{task}: equal models are called different in {np.mean(hits):.1%} of {len(hits)} draws")
    tasks = [hit for task, hits in called.items() if task != MEAN for hit in hits]
    print(f"all tasks: {np.mean(tasks):.1%}")


def exchanged(first: LoggedSide, second: LoggedSide, rng: np.random.Generator) -> list[LoggedSide]:
    """Two sides whose answers are exchanged on half of the clusters, by a coin for each."""
    coins = {task: _heads(items[0], rng) for task in first.tasks for items in [first.of_task(task)]}
    return [_exchanged(one, other, coins) for one, other in ((first, second), (second, first))]


def _heads(items: TaskItems, rng: np.random.Generator) -> Floats:
    names, index = np.unique(items.questions.clusters, return_inverse=True)
    return np.asarray(rng.integers(0, 2, len(names))[index], np.float64)


def _exchanged(one: LoggedSide, other: LoggedSide, coins: dict[str, Floats]) -> LoggedSide:
    """One side with the other's answers where the coin of a cluster shows heads."""
    ((model, tasks),) = one.models.items()
    (others,) = other.models.values()
    answers = {
        task: replace(items, right=np.where(coins[task] > 0, others[task].right, items.right))
        for task, items in tasks.items()
    }
    return replace(one, models={model: answers})


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
