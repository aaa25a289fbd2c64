"""Measure how often a calibration curve is fitted to a plain sigmoid by chance, and what that costs.

    python -m lab.log.bends [WORLDS]

Synthetic worlds of 1 to 8 families, size split. The first table shows which share of the error of left-out families a
calibration curve saves by chance, times the number of families; the threshold `StackSettings.least_curve_gain` is
larger. The second table compares errors on the larger models with the curve always, never, and above the threshold.
"""

import sys

import numpy as np

from benchcast.folds import make_folds
from benchcast.methods.stack import salience
from benchcast.methods.stack.settings import StackSettings
from lab.log.worlds import RIVALS, errors, errors_of, make

FAMILIES = (1, 2, 3, 5, 8)
RULES = {
    "always": StackSettings(least_curve_gain=-np.inf),
    "never": StackSettings(least_curve_gain=np.inf),
    "where it pays": StackSettings(),
}


def main(count: int) -> None:
    print("| families | saved × families: median | 95% | 99% | most |", "|---|---|---|---|---|", sep="\n")
    ratios: dict[tuple[int, str], list[float]] = {}
    for families in FAMILIES:
        saved: list[float] = []
        for number in range(count):
            world, dataset = make(number, families=families, first_seed=1000 * families)
            folds = make_folds(world.models, "size")[1]
            best = np.min([errors(dataset, folds, rival) for rival in RIVALS], axis=0)
            for rule, settings in RULES.items():
                fits = salience(dataset, folds, settings=settings)
                ratios.setdefault((families, rule), []).extend(errors_of(fits, dataset, folds) / best)
            saved += [f.notes["bend_saves"] * families for f in salience(dataset, folds)[0]]
        cells = " | ".join(f"{np.quantile(saved, p):.3f}" for p in (0.5, 0.95, 0.99, 1.0))
        print(f"| {families} | {cells} |", flush=True)
    print(
        "\n| families | calibration curve | first or within 10% | worst | mean ratio to the best baseline |",
        "|---|---|---|---|---|",
        sep="\n",
    )
    for (families, rule), values in ratios.items():
        x = np.array(values)
        good, mean = f"{np.mean(x <= 1.1):.0%} of {len(x)}", np.exp(np.log(x).mean())
        print(f"| {families} | {rule} | {good} | {x.max():.2f} | {mean:.3f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 80)
