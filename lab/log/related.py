"""Do 90% intervals cover 90% where training models are related, or few? Synthetic worlds, one family of each held out.

    python -m lab.log.related [WORLDS]

Shares and their standard errors are over worlds.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchcast.forecasts.intervals import predict
from benchcast.losses.assemble import AssemblyOptions, assemble
from benchcast.losses.dataset import Features
from benchcast.methods.spec import fit_method
from benchcast.splits import Fold
from tests.synthetic import Plan, World, make_world

METHOD_NAMES = ("stack", "salience", "all-token")


def plan(number: int, **changes: Any) -> Plan:
    rng = np.random.default_rng([11, number])
    usual = Plan(
        seed=20_000 + number,
        families=int(rng.integers(5, 10)),
        sizes=4,
        checkpoints=1,
        tasks=2,
        texts_per_source=12,
        mixture=float(rng.uniform(0.15, 0.6)),
    )
    return replace(usual, **changes)


def only(world: World, keep: Callable[[str], bool]) -> World:
    """The world with some of its models."""
    kept = {m.model for m in world.models if keep(m.model)}
    return replace(
        world,
        models=tuple(m for m in world.models if m.model in kept),
        losses=tuple(x for x in world.losses if x.model in kept),
        scores=tuple(s for s in world.scores if s.model in kept),
    )


def without_families(world: World) -> World:
    return replace(world, models=tuple(replace(m, family="") for m in world.models))


def copied(world: World) -> World:
    """Every model once more, under another name and family."""

    def twice(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        again = [replace(r, model=f"{r.model}-copy") for r in rows]
        return (*rows, *(replace(r, family=f"{r.family}-copy") if hasattr(r, "family") else r for r in again))

    return replace(world, models=twice(world.models), losses=twice(world.losses), scores=twice(world.scores))


def large_and_small(number: int) -> World:
    """One family of 16 models, four of two, and the held-out one."""
    world = make_world(plan(number, families=6, sizes=4, checkpoints=4))
    first = {f"family{f}": [m.model for m in world.models if m.family == f"family{f}"][::8] for f in range(1, 5)}
    return only(world, lambda name: name.split("-")[0] in ("family0", "family5") or name in first[name.split("-")[0]])


def two_of_two(number: int) -> World:
    world = make_world(plan(number, families=3))
    picked = {m for f in range(2) for m in [m.model for m in world.models if m.family == f"family{f}"][1:4:2]}
    return only(world, lambda name: name.startswith("family2") or name in picked)


WORLDS: dict[str, Callable[[int], World]] = {
    "independent families": lambda n: make_world(plan(n)),
    "clusters of relatives": lambda n: make_world(plan(n, families=9, clusters=3)),
    "no family given": lambda n: without_families(make_world(plan(n))),
    "every model copied": lambda n: copied(make_world(plan(n))),
    "one large family, four of two": large_and_small,
    "two families of two": two_of_two,
    "one family": lambda n: make_world(plan(n, families=2)),
}


def held_out(world: World) -> dict[str, tuple[float, float]]:
    """Coverage and mean width of each method on the last family."""
    last = max(m.model.split("-")[0] for m in world.models)
    options = AssemblyOptions(Features(world.features, world.edges, "synthetic"))
    dataset = assemble(world.texts, world.losses, world.models, scores=world.scores, tasks=world.tasks, options=options)
    of_family = np.array([m.split("-")[0] == last for m in dataset.models])
    test = of_family & np.array([not m.endswith("-copy") for m in dataset.models])
    fold = Fold(~of_family, np.zeros_like(test), test)
    out = {}
    for method in METHOD_NAMES:
        covered, width = [], []
        for t, fit in enumerate(fit_method(method, dataset, [fold])[0]):
            p = predict(fit, dataset.nats[test], dataset.metadata.take(test))
            score = dataset.accuracy[t][test]
            covered.append((p.low <= score) & (score <= p.high))
            width.append(p.high - p.low)
        out[method] = (float(np.mean(covered)), float(np.mean(width)))
    return out


def main(count: int) -> None:
    print("| worlds | " + " | ".join(f"{m}: covered, width" for m in METHOD_NAMES) + " |")
    print("|---|" + "---|" * len(METHOD_NAMES))
    for name, make in WORLDS.items():
        rows = [held_out(make(number)) for number in range(count)]
        cells = []
        for method in METHOD_NAMES:
            covered, width = np.array([row[method] for row in rows]).T
            cells.append(f"{covered.mean():.1%} ± {covered.std() / np.sqrt(count):.1%}, {np.nanmean(width):.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
