"""Time the solvers on a GPU at the paper's size and print the tables of lab/LOG.md and docs/performance.md.

    make bench-gpu                           everything, about three minutes
    python bench/gpu.py --tiny --device cpu  the same code on small arrays without a GPU, to see that it runs

Needs torch, numpy and array-api-compat. Every part runs in a process of its own, so that one that fails costs
only itself; with $OUT set, results are also written there as JSON. Floors are the bytes that must move over the
bandwidth of a copy measured in the same part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import benchcast.methods.paper as algorithm
from benchcast.losses.dataset import Dataset
from benchcast.methods.features import DEVICE_BLOCKS, measure, prepare_inputs
from benchcast.methods.head import ACTIVATIONS, on_raw_features
from benchcast.methods.paper import DescentSettings, descend, paper
from benchcast.methods.products import RowBlock
from benchcast.methods.ridge import ridge
from benchcast.methods.stack import salience
from benchcast.splits import Fold
from clock import Size, Table, bandwidth, features_on, timed
from plain import plain_loop
from world import Generated, make_dataset, problems_of  # beside this file


def part_products(size: Size) -> Table:
    """Both products of a step, in every form that may be the fastest."""
    values = features_on(size)
    rate = bandwidth(values, size)
    table = Table(f"products of {tuple(values.shape)} float32 with few columns; copy {rate / 1e9:.0f} GB/s")
    stacks = {r: values[: size.tokens // r * r].reshape(-1, r, size.dims) for r in (1024, 2048, 4096)}
    for q in (6, 12):
        w, g = torch.randn(q, size.dims, device=size.device), torch.randn(q, size.tokens, device=size.device)
        forms: dict[str, Callable[[], object]] = {
            "X Wᵀ": lambda w=w: values @ w.T,
            "G X": lambda g=g: g @ values,
            "project": lambda w=w: RowBlock(values).project(w),
            "gather": lambda g=g: RowBlock(values).gather(g),
            "project on tensor cores, head in two": lambda w=w: RowBlock(values, short=True).project(w),
            "gather on tensor cores, values in two": lambda g=g: RowBlock(values, short=True).gather(g),
        }
        for rows, stack in stacks.items():
            wide = w.T.expand(len(stack), size.dims, q)
            forms[f"X Wᵀ in parts of {rows}"] = lambda stack=stack, wide=wide: torch.bmm(stack, wide)
        for name, work in forms.items():
            work()
            table.add(f"{q} columns, {name}", timed(work, size, repeats=size.repeats), values.nbytes / rate)
    return table


def dataset_on(size: Size, values: Any) -> tuple[Dataset, Fold]:
    dataset, fold = make_dataset(values, models=size.models)
    return replace(dataset, device=size.device), fold


def part_descent(size: Size) -> Table:
    """Algorithm 2 with the features on the device: recorded and not, with and without the law's steps."""
    values = features_on(size)
    rate = bandwidth(values, size)
    table = Table(f"descent, {size.steps} steps, features on the device; copy {rate / 1e9:.0f} GB/s")
    plain, law_steps = algorithm.repeat, algorithm.LAW_STEPS
    settings, floor = DescentSettings(steps=size.steps), 2 * size.steps * values.nbytes / rate
    for kind, stored in (("float32", values), ("float16 on disk", values.half().float())):
        dataset, fold = dataset_on(size, stored)
        seconds = timed(lambda e=dataset: prepare_inputs(e, standardise=True), size, repeats=2)
        table.add(f"{kind}: mean and spread, and all that is made ready", seconds)
        inputs = prepare_inputs(dataset, standardise=True)
        for how, law, rates in (
            ("", 0, 1),
            ("", law_steps, 1),
            ("", law_steps, 2),
            (", launched one by one", law_steps, 1),
        ):
            algorithm.repeat = (lambda step, state, times, record: plain(step, state, times)) if how else plain
            algorithm.LAW_STEPS = law
            problems = problems_of(dataset, fold, rates)
            descend(inputs, problems, replace(settings, steps=3))
            seconds = timed(lambda i=inputs, p=problems: descend(i, p, settings), size, repeats=2)
            table.add(f"{kind}: six tasks × {rates} rates, {law} law steps{how}", seconds, floor)
    algorithm.repeat, algorithm.LAW_STEPS = plain, law_steps
    return table


def part_parts(size: Size) -> Table:
    """Where a step's time goes."""
    values = features_on(size).half().float()
    rate = bandwidth(values, size)
    dataset, fold = dataset_on(size, values)
    inputs = prepare_inputs(dataset, standardise=True)
    table = Table(f"parts of a step, launched one by one, {size.repeats * 5} times each; copy {rate / 1e9:.0f} GB/s")
    problems, settings = problems_of(dataset, fold, 1), DescentSettings(steps=1)
    state = algorithm.start(inputs, problems, settings)
    block, activate = inputs.blocks[0], ACTIVATIONS[settings.activation]
    head = on_raw_features(state.head, inputs.mean, inputs.spread)
    _, back = head.forward(block.features, activate)
    pull = torch.randn(problems.accuracy.shape, device=size.device)
    z = torch.randn(6, size.tokens, device=size.device)
    forms: dict[str, Callable[[], object]] = {
        "project": lambda: block.features.project(head.weight.T),
        "gather": lambda: block.features.gather(z),
        "forward": lambda: head.forward(block.features, activate),
        "backward": lambda: head.backward(block.features, back, z),
        "weights times losses": lambda: block.losses.gather(z),
        "pull times losses": lambda: block.losses.project(pull),
        "epoch (forward, law, errors, backward, update)": lambda: algorithm.epoch(inputs, problems, settings, state),
    }
    for name, work in forms.items():
        work()

        def several(work: Callable[[], object] = work) -> None:
            for _ in range(5):
                work()

        table.add(name, timed(several, size, repeats=size.repeats) / 5)
    if size.device.startswith("cuda"):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            descend(inputs, problems, DescentSettings(steps=20))
        print("\nkernels of 20 steps, recorded: microseconds in all, how often, name")
        for kernel in sorted(profile.key_averages(), key=lambda k: -k.self_device_time_total)[:25]:
            print(f"{kernel.self_device_time_total:10.0f} {kernel.count:6d} {kernel.key[:100]}")
    return table


def part_methods(size: Size) -> Table:
    """Whole methods, from features in the host's memory to fits."""
    values = features_on(size).cpu().numpy()
    dataset, fold = dataset_on(size, values)
    kept, _ = dataset_on(size, torch.from_numpy(values).to(size.device))
    table = Table("whole methods, six tasks")
    for name, method in (("ridge", ridge), ("salience", salience), ("paper", paper)):
        table.add(f"{name}, first call", timed(lambda m=method: m(dataset, [fold]), size))
        table.add(f"{name}, features from the host", timed(lambda m=method: m(dataset, [fold]), size))
        table.add(f"{name}, features on the device", timed(lambda m=method: m(kept, [fold]), size))
    families = np.unique(dataset.families)
    folds = [Fold(dataset.families != f, dataset.families == "", dataset.families == f) for f in families]
    table.add(f"salience, each of {len(folds)} families left out", timed(lambda: salience(kept, folds), size))
    return table


def part_autograd(size: Size) -> Table:
    """A plain autograd loop over tasks on the same features."""
    dataset, fold = dataset_on(size, features_on(size))
    table, steps = Table("a plain autograd loop over tasks"), 10
    seconds = timed(plain_loop(dataset, fold, steps, size.device), size) * size.steps / steps
    table.add(f"six tasks × {size.steps} steps ({steps} measured, scaled)", seconds)
    return table


def part_scale(size: Size) -> Table:
    """The closed form's pass (mean, spread and sums weighted by losses) as tokens grow; peak memory stays flat."""
    rate = bandwidth(features_on(size), size)
    square = torch.ones(8192, 8192, device=size.device) if size.tokens > 10_000 else torch.ones(64, 64)
    speed = len(square) ** 3 / timed(lambda: square @ square, size, repeats=size.repeats)
    told = f"copy {rate / 1e9:.0f} GB/s, product {2 * speed / 1e12:.0f} TFLOP/s in float32"
    table = Table(f"closed form: mean, spread and L H in one pass; {told}")
    for factor in (0.1, 1, 4, 100):
        tokens, generated = int(size.tokens * factor), factor > 4
        values: Any = Generated(tokens, size.dims, device=size.device) if generated else features_on(size, tokens)
        dataset, _ = make_dataset(values, models=size.models, generated=True)
        dataset = replace(dataset, device=size.device)
        for part, _ in islice(dataset.features.blocks(blown_up=DEVICE_BLOCKS), 4):
            dataset.nats[:, part]  # made before the clock runs; then they come round
        if size.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        seconds = timed(lambda e=dataset: measure(e, weigh=True), size, repeats=1 if generated else 3)
        peak = torch.cuda.max_memory_allocated() / 2**30 if size.device.startswith("cuda") else 0.0
        own = 0 if generated else values.nbytes / 2**30
        floor = max(4 * tokens * size.dims / rate, tokens * size.dims * size.models / speed)
        what = f"{tokens} tokens ({'generated in blocks' if generated else 'on the device'})"
        table.add(f"{what}, {peak - own:.2f} GiB beside them", seconds, floor)
    return table


def part_agree(size: Size) -> Table:
    """The same fits on the device and in numpy, on a smaller world."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4096, 128), dtype=np.float32)
    dataset, fold = make_dataset(values, models=size.models)
    there = replace(dataset, device=size.device)
    table = Table("largest difference of forecasts between numpy and the device")
    for name, method in (
        ("ridge", ridge),
        ("salience", salience),
        ("paper", lambda e, f: paper(e, f, settings=DescentSettings(steps=20))),
    ):
        here, other = method(dataset, [fold])[0], method(there, [fold])[0]
        gap = max(
            float(np.abs(a.forecast(dataset.nats, dataset.metadata) - b.forecast(dataset.nats, dataset.metadata)).max())
            for a, b in zip(here, other, strict=True)
        )
        table.add(f"{name}: {gap:.2e} (seconds: not timed)", 0.0)
    return table


PARTS = {
    "agree": part_agree,
    "products": part_products,
    "parts": part_parts,
    "descent": part_descent,
    "methods": part_methods,
    "autograd": part_autograd,
    "scale": part_scale,
}


def run_apart(arguments: argparse.Namespace) -> None:
    """Every part in a process of its own."""
    for name in PARTS:
        start = time.perf_counter()
        command = [sys.executable, __file__, "--part", name, "--device", arguments.device]
        done = subprocess.run([*command, *(["--tiny"] if arguments.tiny else [])], check=False, timeout=200)
        print(f"({name}: {time.perf_counter() - start:.0f} s{'' if done.returncode == 0 else ', failed'})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small arrays")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", choices=PARTS, help="only this part, in this process")
    arguments = parser.parse_args()
    if arguments.part is None:
        run_apart(arguments)
        return
    if arguments.tiny:
        size = Size(arguments.device, 6000, 64, 20, 5, 2)
    else:
        size = Size(arguments.device, 165_000, 2048, 59, 300, 10)
    table = PARTS[arguments.part](size)
    if out := os.environ.get("OUT"):
        Path(out, f"gpu-{arguments.part}.json").write_text(json.dumps(table.rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
