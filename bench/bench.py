"""Time the solvers on a CPU and print the tables of lab/LOG.md and docs/performance.md.

    make bench                              everything, under ten minutes on two cores
    python bench/bench.py --part solvers    one part: startup, regroup, solvers, reduced, closed, wide or growth
    python bench/bench.py --small           all parts on small arrays, to see that they run

Generated data at the paper's size unless said otherwise: 165,000 reference tokens × 2048 features, 59 models, 6
tasks. Every figure stands beside its floor: the bytes that must move over the bandwidth of all cores reading the
features, measured in the same part; for the closed form also its multiplications over the speed of a large matrix
product, whichever is more. Memory is what the process holds itself, without mapped files.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

import benchcast.methods.paper as algorithm
from benchcast.losses.dataset import Dataset
from benchcast.losses.regroup import regroup
from benchcast.methods.features import Inputs, measure, prepare_inputs
from benchcast.methods.paper import DescentSettings, descend, paper
from benchcast.methods.ridge import ridge
from benchcast.methods.stack import salience
from benchcast.records import Ints
from benchcast.splits import Fold
from growth import grow
from plain import plain_loop
from timing import Table, bandwidth, timed
from world import Generated, make_dataset, problems_of, write_rows


@dataclass(frozen=True)
class Size:
    """What is timed."""

    tokens: int = 165_000
    dims: int = 2048
    models: int = 59
    steps: int = 300
    many: int = 1000  # models and, times a thousand, tokens of the wide part


SMALL = Size(8_000, 128, 30, 20, 20)


def multiplications() -> float:
    """Multiply-adds a second of a large matrix product in float32."""
    a = np.ones((2048, 2048), np.float32)
    return 2048**3 / min(timed(lambda: a @ a) for _ in range(5))


def part_startup(size: Size) -> None:
    """`benchcast --help` beside an import of numpy."""
    script = str(Path(sys.executable).with_name("benchcast"))

    def median(*command: str) -> float:
        return statistics.median(
            timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(9)
        )

    numpy_seconds = median(sys.executable, "-c", "import numpy")
    seconds = median(script, "--help")
    print(
        f"\nbenchcast --help: {seconds:.3f} s, {seconds / numpy_seconds:.2f} × `import numpy` ({numpy_seconds:.3f} s)"
    )


def edges(tokens: int, seed: int) -> Ints:
    """Token edges drawn at random over four bytes a token."""
    rng = np.random.default_rng(seed)
    inner = np.sort(rng.choice(4 * tokens - 1, tokens - 1, replace=False)) + 1
    return np.concatenate([[0], inner, [4 * tokens]])


def part_regroup(size: Size) -> None:
    """Every model's losses from its own tokens onto the reference tokens."""
    target, sources = edges(size.tokens, 0), [edges(size.tokens, 1 + k) for k in range(8)]
    nats = np.random.default_rng(2).random(size.tokens)
    table = Table(f"regroup, {size.tokens} tokens a model, 8 tokenizers")
    table.run(f"{size.models} models", lambda: [regroup(nats, sources[m % 8], target) for m in range(size.models)])


def part_solvers(size: Size) -> None:
    """All methods that read features, and the plain loop they replace."""
    with tempfile.TemporaryDirectory() as folder:
        values = write_rows(Path(folder) / "features.npy", size.tokens, size.dims)
        dataset, fold = make_dataset(values, models=size.models)
        whole = np.array(values)
        rate = bandwidth(whole)
        a_pass = whole.nbytes / rate
        del whole
        print(f"\n{size.tokens} tokens × {size.dims} features float32 on disk, {size.models} models, six tasks")
        table = Table(f"solvers; all cores read {rate / 1e9:.1f} GB/s, a pass over the features takes {a_pass:.3f} s")
        table.run("salience, families left out in turn", lambda: salience(dataset, [fold]))
        with_law = descents(table, size, dataset, fold, a_pass)
        loop = timed(plain_loop(dataset, fold, 3, "cpu")) * size.steps / 3
        print(f"| plain autograd loop over tasks, {size.steps} steps (3 measured, scaled) | {loop:.2f} | | | |")
        print(f"\npaper is {loop / with_law:.1f} times faster than the plain loop")


def descents(table: Table, size: Size, dataset: Dataset, fold: Fold, a_pass: float) -> float:
    """Algorithm 2 with and without following the law, at one learning rate and two; seconds of the first."""
    kept: list[Inputs] = []
    prepare = "paper: features laid out in tiles, mean and spread"
    table.run(prepare, lambda: kept.append(prepare_inputs(dataset, standardise=True)))
    law_steps, found = algorithm.LAW_STEPS, []
    for law, rates, steps in ((law_steps, 1, size.steps), (0, 1, size.steps // 10), (law_steps, 2, size.steps // 10)):
        algorithm.LAW_STEPS = law
        problems, settings = problems_of(dataset, fold, rates), DescentSettings(steps=steps)
        what = f"paper, six tasks × {rates} rates × {steps} steps{'' if law else ', law not followed'}"
        work = partial(descend, kept[0], problems, settings)
        found.append(table.run(what, work, 2 * steps * a_pass))
    algorithm.LAW_STEPS = law_steps
    return found[0]


def part_reduced(size: Size) -> None:
    """What fewer or coarser features cost `paper` in error, on the embedded study, and save in time."""
    from benchcast.collection.hidden_states import reduce
    from benchcast.datasets import load_zoo
    from benchcast.splits import make_folds

    study = load_zoo()
    dataset = study.dataset()
    folds = make_folds(study.infos(dataset.models), "size")[1]
    stored = np.asarray(dataset.features.values, np.float32)
    n, d = stored.shape
    print(f"\nfewer features: test error of paper on the embedded study ({n} tokens × {d}, split by size)\n")
    print("| features | geometric mean of squared errors | change |\n|---|---|---|")
    base = 0.0
    for dims, kind in ((d, "float32"), (d, "float16"), (d // 2, "float32"), (d // 4, "float32")):
        values = stored if dims == d else reduce(stored, dims)[0]
        seen = replace(dataset, features=replace(dataset.features, values=values.astype(kind)))
        fits = paper(seen, folds, settings=DescentSettings(steps=size.steps))[0]
        errors = []
        for t, fit in enumerate(fits):
            tested = folds[0].test & np.isfinite(dataset.accuracy[t])
            gap = fit.forecast(dataset.nats[tested], dataset.of_models(tested).metadata) - dataset.accuracy[t][tested]
            errors.append(float(np.mean(gap**2)))
        mean = float(np.exp(np.mean(np.log(errors))))
        base = base or mean
        print(f"| {dims}, {kind} | {mean:.6f} | {100 * (mean / base - 1):+.1f}% |", flush=True)


def part_closed(size: Size) -> None:
    """The closed form as tokens grow, each size in a process of its own."""
    own = [sys.executable, __file__, *(["--small"] if size == SMALL else [])]
    for factor in ("0.1", "1", "4", "100"):
        subprocess.run([*own, "--factor", factor], check=True)


def closed_at(size: Size, factor: float) -> None:
    tokens = int(size.tokens * factor)
    sample = np.ones((min(tokens, size.tokens), size.dims), np.float32)
    rate, speed = bandwidth(sample), multiplications()
    del sample
    a_pass = 4 * tokens * size.dims / rate
    product = tokens * size.dims * size.models / speed
    with tempfile.TemporaryDirectory() as folder:
        if factor > 4:
            dataset, _ = make_dataset(Generated(tokens, size.dims), models=size.models, generated=True)
            for part, _ in islice(dataset.features.blocks(), 4):
                dataset.nats[:, part]  # made before the clock runs; then they come round
            table = Table(f"closed form, {tokens} tokens generated in blocks: mean, spread and L H in one pass")
            table.run("one pass", lambda: measure(dataset, weigh=True), max(a_pass, product))
            return
        values = write_rows(Path(folder) / "features.npy", tokens, size.dims)
        dataset, fold = make_dataset(values, models=size.models)
        table = Table(
            f"closed form, {tokens} tokens on disk; bytes alone take {a_pass:.2f} s, products {product:.2f} s"
        )
        table.run("one pass: mean, spread and L H", lambda: measure(dataset, weigh=True), max(a_pass, product))
        table.run(
            "ridge, six tasks: that pass and one for the weights",
            lambda: ridge(dataset, [fold]),
            max(a_pass, product) + a_pass,
        )


def part_wide(size: Size) -> None:
    """Many checkpoints on many tokens: regroup onto a file of float16, then fit from it."""
    models, tokens, dims = size.many, 1000 * size.many, size.dims // 2
    print(f"\n{models} checkpoints × {tokens} tokens, {dims} features, float16 on disk")
    with tempfile.TemporaryDirectory() as folder:
        values = write_rows(Path(folder) / "features.npy", tokens, dims, dtype=np.float16)
        small, fold = make_dataset(values, models=models, generated=True)
        nats = np.lib.format.open_memmap(Path(folder) / "nats.npy", mode="w+", dtype=np.float16, shape=(models, tokens))
        target, sources = edges(tokens, 0), [edges(tokens, 1 + k) for k in range(8)]
        rng = np.random.default_rng(3)
        ability = rng.normal(size=models)
        base = np.exp(0.3 * rng.standard_normal(tokens))

        def fill() -> None:
            for m in range(models):
                moved = regroup(np.roll(base, m) * np.exp(-0.3 * ability[m]), sources[m % 8], target)
                nats[m] = np.minimum(moved, 60000)

        table = Table("in all of this, memory must stay under 24 GB")
        table.run("regroup every model and write its losses", fill)
        accuracy = 1 / (1 + np.exp(-(ability + 0.3 * rng.normal(size=(6, models)))))
        dataset = replace(small, nats=nats, accuracy=accuracy)
        table.run("ridge, six tasks", lambda: ridge(dataset, [fold]))
        table.run("salience, six tasks, families left out in turn", lambda: salience(dataset, [fold]))


def part_growth(size: Size) -> None:
    """How cost grows with tokens, models, tasks and features, with a figure."""
    grow(small=size == SMALL)


PARTS = {
    "startup": part_startup,
    "regroup": part_regroup,
    "solvers": part_solvers,
    "reduced": part_reduced,
    "closed": part_closed,
    "wide": part_wide,
    "growth": part_growth,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small arrays and few steps")
    parser.add_argument("--part", choices=PARTS, help="only this part, in this process")
    parser.add_argument("--factor", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = SMALL if arguments.small else Size()
    if arguments.factor:
        closed_at(size, arguments.factor)
    elif arguments.part:
        PARTS[arguments.part](size)
    else:
        for name in PARTS:
            small = ["--small"] if arguments.small else []
            seconds = timed(
                lambda name=name, small=small: subprocess.run(
                    [sys.executable, __file__, "--part", name, *small], check=True
                )
            )
            print(f"({name}: {seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
