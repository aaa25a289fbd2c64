"""Do 90% intervals cover 90%? Synthetic studies, one family of each held out.

    python -m lab.log.coverage [WORLDS [FLOOR]]

Worlds differ in the number of families (4 to 10), of checkpoints, in what accuracy rests on, in how far mixtures lie
apart and in the noise of scores. FLOOR is what models score that know nothing; default: nominal chance, 0.25. Every
world holds out its last family; shares and their standard errors are over worlds.
"""

import sys
from collections import defaultdict

import numpy as np

from benchcast.forecasts.intervals import distance, predict
from benchcast.losses.assemble import AssemblyOptions, assemble
from benchcast.losses.dataset import Features
from benchcast.methods.law import at_share
from benchcast.methods.spec import fit_method
from benchcast.splits import Fold
from tests.synthetic import Plan, make_world

METHOD_NAMES = ("stack", "salience", "label-token", "all-token")


def make(number: int, floor: float | None) -> Plan:
    rng = np.random.default_rng([7, number])
    return Plan(
        seed=10_000 + number,
        families=int(rng.integers(4, 11)),
        sizes=4,
        checkpoints=int(rng.integers(1, 3)),
        tasks=2,
        texts_per_source=15,
        n_items=int(rng.choice([200, 2000])),
        truth=str(rng.choice(["kinds", "label"])),
        mixture=float(rng.uniform(0.15, 0.6)),
        floor=floor,
    )


def held_out(plan: Plan) -> dict[str, list[np.ndarray]]:
    """For each method and task: columns covered, width, near chance, outside the training range; a row a model."""
    world = make_world(plan)
    options = AssemblyOptions(Features(world.features, world.edges, "synthetic"))
    dataset = assemble(world.texts, world.losses, world.models, scores=world.scores, tasks=world.tasks, options=options)
    test = dataset.families == np.unique(dataset.families)[-1]
    fold = Fold(~test, np.zeros_like(test), test)
    metadata = dataset.metadata.take(test)
    out = defaultdict(list)
    for method in METHOD_NAMES:
        for t, fit in enumerate(fit_method(method, dataset, [fold])[0]):
            predicted = predict(fit, dataset.nats[test], metadata)
            forecast, low, high = predicted.accuracy, predicted.low, predicted.high
            score = dataset.accuracy[t][test]
            near_chance = forecast < at_share(0.1, fit.law.chance)
            covered = (low <= score) & (score <= high)
            out[method].append(
                np.stack([covered, high - low, near_chance, distance(fit, predicted.capability) > 0], axis=1)
            )
    return out


def main(count: int, floor: float | None) -> None:
    rows = defaultdict(list)
    for number in range(count):
        plan = make(number, floor)
        for method, tables in held_out(plan).items():
            rows[method].append((plan.families, np.concatenate(tables)))
    print("| method | where | worlds | covered | width |")
    print("|---|---|---|---|---|")
    for method, worlds in rows.items():
        cuts = {
            "everywhere": [(x, np.ones(len(x), bool)) for _, x in worlds],
            "4 to 6 families": [(x, np.ones(len(x), bool)) for f, x in worlds if f <= 6],
            "7 to 10 families": [(x, np.ones(len(x), bool)) for f, x in worlds if f > 6],
            "near chance": [(x, x[:, 2] > 0) for _, x in worlds],
            "outside the training range": [(x, x[:, 3] > 0) for _, x in worlds],
        }
        for where, chosen in cuts.items():
            shares = np.array([x[rows, 0].mean() for x, rows in chosen if rows.any()])
            widths = np.array([x[rows, 1].mean() for x, rows in chosen if rows.any()])
            error = shares.std() / np.sqrt(len(shares))
            print(f"| {method} | {where} | {len(shares)} | {shares.mean():.1%} ± {error:.1%} | {widths.mean():.3f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 240, float(sys.argv[2]) if len(sys.argv) > 2 else None)
