"""Do intervals hold beyond the range? Models up to compute C train, models of 1.4 to 11 C are forecast.

    python -m lab.log.beyond [STUDY]...

STUDY is the embedded study (zoo) or a public one with known compute (olmo-ladder); default: both. C takes seven
values, evenly spaced in the logarithm, between the lowest compute with enough training models and a 1.4th of the
largest. Shares
are over all tasks, models and values of C.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from benchcast import datasets
from benchcast.forecasts.intervals import predict
from benchcast.losses.dataset import Dataset
from benchcast.methods.spec import fit_method
from benchcast.splits import Fold

BINS = ((1.4, 2.8), (2.8, 5.6), (5.6, 11.0))  # multiples of C
VALUES = 7
FEWEST = 30  # training models


def load(name: str) -> Dataset:
    study = datasets.load_zoo() if name == "zoo" else datasets.fetch(name)
    return study.dataset()


def limits(flops: np.ndarray) -> np.ndarray:
    known = np.sort(flops[np.isfinite(flops)])
    return np.geomspace(known[FEWEST - 1], known[-1] / BINS[0][0], VALUES)


def main(names: list[str]) -> None:
    print("| study | held out at | forecasts | covered | lowest task | width, points | said to be beyond |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in names:
        dataset = load(name)
        flops = dataset.metadata.flops
        rows: defaultdict[tuple[float, float], list[tuple[int, bool, float, bool]]] = defaultdict(list)
        # by bin: task, covered, width, beyond
        for limit in limits(flops):
            train = flops <= limit
            fold = Fold(train, np.zeros_like(train), ~train)
            for t, fit in enumerate(fit_method("stack", dataset, [fold])[0]):
                for low, high in BINS:
                    picked = (flops > low * limit) & (flops <= high * limit) & np.isfinite(dataset.accuracy[t])
                    if not picked.any():
                        continue
                    p = predict(fit, dataset.nats[picked], dataset.metadata.take(picked))
                    score = dataset.accuracy[t][picked]
                    inside = (p.low <= score) & (score <= p.high)
                    rows[low, high] += [
                        (t, bool(ok), float(w), bool(s))
                        for ok, w, s in zip(inside, p.high - p.low, p.position.stronger, strict=True)
                    ]
        for (low, high), found in rows.items():
            task, covered, width, beyond = (np.array(column) for column in zip(*found, strict=True))
            lowest = min(covered[task == t].mean() for t in np.unique(task))
            print(
                f"| {name} | {low:g} to {high:g} C | {len(task)} | {covered.mean():.3f} | {lowest:.2f} | "
                f"{100 * width.mean():.1f} | {beyond.mean():.0%} |"
            )


if __name__ == "__main__":
    main(sys.argv[1:] or ["olmo-ladder", "zoo"])
