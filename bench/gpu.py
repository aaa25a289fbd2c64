"""Time the solvers on a GPU at the paper's size and print the tables of docs/performance.md.

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchcast.evidence import Evidence, Features, Fold
from benchcast.methods import descent
from benchcast.methods.descent import DescentSettings, descend
from benchcast.methods.inputs import measure, prepare_inputs
from benchcast.methods.paper import paper
from benchcast.methods.ridge import ridge
from benchcast.methods.salience import salience
from benchcast.products import Rows
from world import Generated, make_evidence, problems_of  # beside this file


@dataclass(frozen=True)
class Size:
    """What is timed, and where."""

    device: str
    tokens: int
    dims: int
    models: int
    steps: int
    repeats: int


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def timed(work: Callable[[], object], size: Size, *, repeats: int = 1) -> float:
    """Least seconds of a few runs."""
    best = float("inf")
    for _ in range(repeats):
        wait(size.device)
        start = time.perf_counter()
        work()
        wait(size.device)
        best = min(best, time.perf_counter() - start)
    return best


def features_on(size: Size, tokens: int | None = None) -> torch.Tensor:
    generator = torch.Generator(device=size.device).manual_seed(0)
    return torch.randn(tokens or size.tokens, size.dims, generator=generator, device=size.device)


def bandwidth(values: torch.Tensor, size: Size) -> float:
    """Bytes a second of a copy, read and written."""
    other = torch.empty_like(values)
    other.copy_(values)
    return 2 * values.nbytes / timed(lambda: other.copy_(values), size, repeats=size.repeats)


class Table:
    """Rows of seconds beside their floor, printed as they come."""

    def __init__(self, title: str) -> None:
        print(f"\n{title}\n\n| what | seconds | floor | ratio |\n|---|---|---|---|")
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, seconds: float, floor: float | None = None) -> None:
        cells = f"{floor:.4f} | {seconds / floor:.2f}" if floor else "– | –"
        print(f"| {what} | {seconds:.4f} | {cells} |", flush=True)
        self.rows.append({"what": what, "seconds": seconds, "floor": floor})


def part_products(size: Size) -> Table:
    """Both products of a step, in every form that may be the fastest."""
    values = features_on(size)
    rate = bandwidth(values, size)
    floor = values.nbytes / rate
    table = Table(f"products of {tuple(values.shape)} float32 with few columns; copy {rate / 1e9:.0f} GB/s")
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for q in (6, 8, 12, 16):
            w = torch.randn(q, size.dims, device=size.device)
            g = torch.randn(q, size.tokens, device=size.device)
            kind = "TF32" if tf32 else "float32"
            forms: dict[str, Callable[[], object]] = {
                "X Wᵀ": lambda w=w: values @ w.T,
                "W Xᵀ": lambda w=w: w @ values.T,
                "G X": lambda g=g: g @ values,
                "Xᵀ Gᵀ": lambda g=g: values.T @ g.T,
            }
            for rows in (512, 1024, 2048, 4096, 8192):
                n = size.tokens // rows * rows
                stack = values[:n].reshape(-1, rows, size.dims)
                part = g[:, :n].reshape(q, -1, rows).transpose(0, 1)
                forms[f"G X in parts of {rows}"] = lambda stack=stack, part=part: (part @ stack).sum(0)
            for name, work in forms.items():
                work()
                table.add(f"{kind}, {q} columns, {name}", timed(work, size, repeats=size.repeats), floor)
    torch.backends.cuda.matmul.allow_tf32 = False
    return table


def evidence_on(size: Size, values: Any) -> tuple[Evidence, Fold]:
    evidence, fold = make_evidence(Features(values, scorer="generated"), models=size.models)
    return replace(evidence, device=size.device), fold


def part_descent(size: Size) -> Table:
    """Algorithm 2 with the features on the device: recorded and not, with and without the law's steps."""
    values = features_on(size)
    rate = bandwidth(values, size)
    evidence, fold = evidence_on(size, values)
    table = Table(f"descent, {size.steps} steps, features on the device; copy {rate / 1e9:.0f} GB/s")
    seconds = timed(lambda: prepare_inputs(evidence, standardise=True), size)
    table.add("mean and spread, and all that is made ready", seconds, values.nbytes / rate)
    inputs = prepare_inputs(evidence, standardise=True)
    floor = 2 * size.steps * values.nbytes / rate
    plain, law_steps = descent.repeat, descent.LAW_STEPS
    for recorded in (True, False):
        descent.repeat = plain if recorded else (lambda step, state, times, record: plain(step, state, times))
        for law in (0, law_steps):
            descent.LAW_STEPS = law
            for rates in (1, 2):
                problems = problems_of(evidence, fold, rates)
                settings = DescentSettings(steps=size.steps)
                descend(inputs, problems, replace(settings, steps=3))
                seconds = timed(lambda p=problems, s=settings: descend(inputs, p, s), size, repeats=2)
                how = "recorded" if recorded else "launched one by one"
                table.add(f"six tasks × {rates} rates, {law} law steps, {how}", seconds, floor)
    descent.repeat, descent.LAW_STEPS = plain, law_steps
    return table


def part_parts(size: Size) -> Table:
    """Where a step's time goes."""
    values = features_on(size)
    rate = bandwidth(values, size)
    evidence, fold = evidence_on(size, values)
    inputs = prepare_inputs(evidence, standardise=True)
    table = Table(f"parts of a step, launched one by one, {size.repeats * 5} times each; copy {rate / 1e9:.0f} GB/s")
    problems, settings = problems_of(evidence, fold, 1), DescentSettings(steps=1)
    state = descent._start(inputs, problems, settings)
    kept, capability = descent._forward(inputs, state["head"], settings)
    pull = torch.randn(capability.shape, device=size.device)
    block = Rows(values)
    z = torch.randn(6, size.tokens, device=size.device)
    forms: dict[str, Callable[[], object]] = {
        "project": lambda: block.project(state["head"]["weight"].T),
        "gather": lambda: block.gather(z),
        "forward": lambda: descent._forward(inputs, state["head"], settings),
        "backward": lambda: descent._backward(inputs, state["head"], settings, kept, pull),
        "weights times losses": lambda: z @ inputs.nats.T,
        "pull times losses": lambda: pull @ inputs.nats,
        "look (forward, law, errors)": lambda: descent._look(inputs, problems, settings, state),
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
    evidence, fold = evidence_on(size, values)
    kept, _ = evidence_on(size, torch.from_numpy(values).to(size.device))
    table = Table("whole methods, six tasks")
    for name, method in (("ridge", ridge), ("salience", salience), ("paper", paper)):
        table.add(f"{name}, first call", timed(lambda m=method: m(evidence, [fold]), size))
        table.add(f"{name}, features from the host", timed(lambda m=method: m(evidence, [fold]), size))
        table.add(f"{name}, features on the device", timed(lambda m=method: m(kept, [fold]), size))
    families = np.unique(evidence.families)
    folds = [Fold(evidence.families != f, evidence.families == "", evidence.families == f) for f in families]
    table.add(f"salience, each of {len(folds)} families left out", timed(lambda: salience(kept, folds), size))
    return table


def part_autograd(size: Size) -> Table:
    """A plain autograd loop over tasks on the same features."""
    from benchcast.law import fit_laws

    values = features_on(size)
    evidence, fold = evidence_on(size, values)
    nats = torch.from_numpy(evidence.nats).to(size.device)
    train = torch.from_numpy(fold.train).to(size.device)
    steps = 10

    def one_task(t: int) -> None:
        head = torch.nn.Linear(size.dims, 1, device=size.device)
        optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
        accuracy = torch.from_numpy(evidence.accuracy[t]).to(size.device)
        chance = torch.tensor(evidence.tasks[t].chance, dtype=torch.float64, device=size.device)
        for _ in range(steps):
            capability = nats @ torch.sigmoid(head(values))[:, 0] / evidence.characters
            law = fit_laws(capability.detach().double()[train], accuracy[train], chance, steps=20)
            forecast = chance + (1 - chance) * torch.sigmoid(law.slope * capability.double() + law.offset)
            loss = ((forecast - accuracy)[train] ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    one_task(0)
    table = Table("a plain autograd loop over tasks")
    seconds = timed(lambda: [one_task(t) for t in range(len(evidence.tasks))], size)
    table.add(f"six tasks × {size.steps} steps ({steps} measured, scaled)", seconds * size.steps / steps)
    return table


def part_scale(size: Size) -> Table:
    """The closed form's pass (mean, spread and sums weighted by losses) as tokens grow; peak memory stays flat."""
    rate = bandwidth(features_on(size), size)
    table = Table(f"closed form: mean, spread and L H in one pass; copy {rate / 1e9:.0f} GB/s")
    for factor in (0.1, 1, 4, 100):
        tokens = int(size.tokens * factor)
        if factor > 4:
            features: Any = Generated(tokens, size.dims, device=size.device)
        else:
            features = features_on(size, tokens)
        evidence, _ = make_evidence(Features(features), models=size.models, generated=factor > 4)
        evidence = replace(evidence, device=size.device)
        if size.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        seconds = timed(lambda e=evidence: measure(e, weigh=True), size, repeats=1 if factor > 4 else 2)
        peak = torch.cuda.max_memory_allocated() / 2**30 if size.device.startswith("cuda") else 0.0
        own = 0 if factor > 4 else features.nbytes / 2**30
        what = f"{tokens} tokens ({'generated in blocks' if factor > 4 else 'on the device'})"
        table.add(f"{what}, {peak - own:.2f} GiB beside them", seconds, 4 * tokens * size.dims / rate)
    return table


def part_agree(size: Size) -> Table:
    """The same fits on the device and in numpy, on a smaller world."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4096, 128), dtype=np.float32)
    evidence, fold = make_evidence(Features(values), models=size.models)
    there = replace(evidence, device=size.device)
    table = Table("largest difference of forecasts between numpy and the device")
    for name, method in (
        ("ridge", ridge),
        ("salience", salience),
        ("paper", lambda e, f: paper(e, f, settings=DescentSettings(steps=20))),
    ):
        here, other = method(evidence, [fold])[0], method(there, [fold])[0]
        gap = max(
            float(np.abs(a.forecast(evidence.nats, evidence.facts) - b.forecast(evidence.nats, evidence.facts)).max())
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
