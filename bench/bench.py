"""Time the solvers at the paper's size and print the table of docs/performance.md.

    make bench                      everything, about five minutes on two cores
    python bench/bench.py --small   a tenth of the tokens, to see that it runs

Generated data: 165,000 reference tokens × 2048 features in float32 on disk, 59 models, 6 tasks. Every
figure stands beside its floor, the bytes that must move over the bandwidth measured in the same run.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchcast.align import regroup
from benchcast.evidence import Evidence, Features, Fold, Tokens
from benchcast.methods.descent import DescentSettings, Inputs, Problems, descend
from benchcast.methods.paper import paper, prepare_inputs
from benchcast.methods.ridge import ridge
from benchcast.methods.salience import salience
from benchcast.records import Task

TOKENS, DIMS, MODELS, TASKS, STEPS = 165_000, 2048, 59, 6, 300
TEXTS, FAMILIES = 550, 9


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "linux" else 1 << 30)


def make_features(path: Path, tokens: int) -> np.ndarray:
    """A memory-mapped file of features, written in blocks."""
    rng = np.random.default_rng(0)
    values = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(tokens, DIMS))
    for start in range(0, tokens, 8192):
        part = values[start : start + 8192]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
    values.flush()
    return np.load(path, mmap_mode="r")


def make_evidence(values: np.ndarray) -> tuple[Evidence, Fold]:
    """Losses and scores with some structure, so that solvers do real work."""
    rng = np.random.default_rng(1)
    n = len(values)
    ability = rng.normal(size=(MODELS, 1)).astype(np.float32)
    nats = np.exp(0.3 * rng.standard_normal((MODELS, n), dtype=np.float32) - 0.3 * ability)
    accuracy = 1 / (1 + np.exp(-(ability.T + 0.3 * rng.normal(size=(TASKS, MODELS)))))
    text = np.arange(n) * TEXTS // n
    tokens = Tokens(
        edges=np.arange(n + 1) * 4,
        text=text,
        source=text % TASKS,
        answer=rng.random(n) < 0.05,
        sources=tuple(f"source{t}" for t in range(TASKS)),
        supported=np.ones(n, bool),
    )
    evidence = Evidence(
        models=tuple(f"m{i}" for i in range(MODELS)),
        families=np.array([f"family{i % FAMILIES}" for i in range(MODELS)]),
        nats=nats,
        characters=4.0 * n,
        tasks=tuple(Task(f"task{t}", 0.25 * (t % 2), (f"source{t}",)) for t in range(TASKS)),
        accuracy=accuracy,
        n_items=np.full(accuracy.shape, 2000.0),
        flops=np.full(MODELS, np.nan),
        tokens=tokens,
        features=Features(values, scorer="generated"),
    )
    role = np.arange(MODELS) % 5
    return evidence, Fold(role < 3, role == 3, role == 4)


def bandwidth(inputs: Inputs) -> float:
    """Bytes a second that a sum over the features reads: what a pass over them cannot beat."""
    size = sum(block.nbytes for _, block in inputs.blocks)
    return size / min(timed(lambda: [block.sum() for _, block in inputs.blocks]) for _ in range(3))


def autograd_step_seconds(evidence: Evidence, fold: Fold, steps: int = 3) -> float:
    """One step of a plain torch loop over tasks: forward, law by Levenberg–Marquardt, backward, Adam."""
    import torch

    from benchcast.law import fit_laws

    features = torch.from_numpy(np.array(evidence.features.values))
    features = (features - features.mean(0)) / features.std(0)
    nats = torch.from_numpy(evidence.nats)
    train = torch.from_numpy(fold.train)

    def one_task(t: int) -> None:
        head = torch.nn.Linear(DIMS, 1)
        optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
        accuracy = torch.from_numpy(evidence.accuracy[t])
        chance = torch.tensor(evidence.tasks[t].chance, dtype=torch.float64)
        for _ in range(steps):
            capability = nats @ torch.sigmoid(head(features))[:, 0] / evidence.characters
            law = fit_laws(capability.detach().double()[train], accuracy[train], chance)
            log_odds = law.slope * capability.double() + law.offset
            forecast = chance + (1 - chance) * torch.sigmoid(log_odds)
            loss = ((forecast - accuracy)[train] ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return timed(lambda: [one_task(t) for t in range(TASKS)]) / steps


def bench_regroup(tokens: int) -> float:
    rng = np.random.default_rng(2)
    last = 4 * tokens
    target = np.concatenate([[0], np.sort(rng.choice(last - 1, tokens - 1, replace=False)) + 1, [last]])
    sources = [
        np.concatenate([[0], np.sort(rng.choice(last - 1, tokens - 1, replace=False)) + 1, [last]]) for _ in range(8)
    ]
    nats = rng.random(tokens)
    return timed(lambda: [regroup(nats, sources[m % 8], target) for m in range(MODELS)])


def descent_seconds(inputs: Inputs, evidence: Evidence, fold: Fold, steps: int) -> float:
    """Six tasks at one learning rate, side by side."""
    masks = [np.repeat(mask[None].astype(float), TASKS, axis=0) for mask in (fold.train, fold.validation)]
    problems = Problems(evidence.accuracy, evidence.chance, *masks, np.full(TASKS, 1e-2, np.float32))
    return timed(lambda: descend(inputs, problems, DescentSettings(steps=steps)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tenth of the tokens and 30 steps")
    small = parser.parse_args().small
    tokens, steps = (TOKENS // 10, 30) if small else (TOKENS, STEPS)
    print(f"{tokens} tokens × {DIMS} features float32, {MODELS} models, {TASKS} tasks\n")
    print("| what | seconds | floor | ratio | peak GiB so far |\n|---|---|---|---|---|")

    def row(what: str, seconds: float, floor: float | None = None) -> None:
        floor_cells = f"{floor:.2f} | {seconds / floor:.2f}" if floor else "– | –"
        print(f"| {what} | {seconds:.2f} | {floor_cells} | {peak_gib():.2f} |", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        row(f"regroup {MODELS} models", bench_regroup(tokens))
        values = make_features(Path(folder) / "features.npy", tokens)
        evidence, fold = make_evidence(values)
        inputs = prepare_inputs(evidence, standardise=True)
        rate = bandwidth(inputs)
        a_pass = values.nbytes / rate
        row(f"one pass over the features ({rate / 1e9:.1f} GB/s)", a_pass)
        seconds = timed(lambda: ridge(evidence, [fold]))
        row("ridge, six tasks: passes for mean and spread, for the losses, for the weights", seconds, 3 * a_pass)
        row("salience, six tasks, families left out in turn", timed(lambda: salience(evidence, [fold])))
        row(f"paper, six tasks × {steps} steps", descent_seconds(inputs, evidence, fold, steps), 2 * steps * a_pass)
        whole = timed(lambda: paper(evidence, [fold], settings=DescentSettings(steps=steps // 10)))
        row(f"paper, both learning rates, {steps // 10} steps", whole, 2 * steps // 10 * a_pass)
        loop = autograd_step_seconds(evidence, fold)
        row(f"plain autograd loop over tasks in torch, {steps} steps (3 measured)", loop * steps, 2 * steps * a_pass)


if __name__ == "__main__":
    main()
