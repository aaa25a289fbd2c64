"""Spoil every file that benchcast reads, kill it while it writes, and count what went wrong.

    PYTHONPATH=tests python tests/fuzz/fuzz.py --count 5000 --kills 200 [--seed 1] [--only "lm-eval"]

Prints one line for each kind of file and the sums: mutations, those that were refused in one line, tracebacks (also
crashes, warnings and messages of several lines) and, where a hash protects the file, different numbers; then kills,
reruns that failed and data that was lost. The tests run a few of each (test_fuzz.py).
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kills
import numpy as np
from targets import Sandbox, Target, workplace

from benchcast.errors import BenchcastError

LONGEST_LINE = 3000


@dataclass
class Count:
    """What became of the mutations of one kind of file."""

    name: str
    mutations: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)  # tracebacks
    different: list[str] = field(default_factory=list)


def try_one(sandbox: Sandbox, target: Target, seed: Sequence[int], right: Any, place: Path) -> tuple[str, str]:
    """Spoil a copy of one file and use it: ("right" | "refused" | "failure" | "different", what happened)."""
    rng = np.random.default_rng(seed)
    here = sandbox.copy(place)
    path = here / target.file
    way = target.ways[int(rng.integers(len(target.ways)))]
    path.write_bytes(way(path.read_bytes(), rng))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = target.use(here)
        except (BenchcastError, OSError) as error:
            line = str(error)
            whole = line and "\n" not in line and len(line) < LONGEST_LINE
            return ("refused" if whole else "failure"), f"{way.__name__}: {type(error).__name__}: {line[:300]}"
        except Exception:  # noqa: BLE001  this is what is looked for
            return "failure", f"{way.__name__}: {traceback.format_exc()}"
    if target.protected and result != right:
        return "different", f"{way.__name__}: {str(result)[:200]}"
    return "right", ""


def run_target(sandbox: Sandbox, target: Target, count: int, seed: int, place: Path) -> Count:
    """Many mutations of one kind of file."""
    tally = Count(target.name)
    right = target.use(sandbox.copy(place))
    for number in range(count):
        what, description = try_one(sandbox, target, (seed, number, *target.name.encode()), right, place)
        tally.mutations += 1
        tally.refused += what == "refused"
        if what in ("failure", "different"):
            (tally.failures if what == "failure" else tally.different).append(f"seed {seed}, {number}, {description}")
    return tally


def in_a_process(sandbox: Sandbox, target: Target, count: int, seed: int, place: Path) -> Count:
    """The same in a process of its own: a library that crashes counts as a traceback."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            with os.fdopen(writer, "wb") as out:
                pickle.dump(run_target(sandbox, target, count, seed, place), out)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            os._exit(1)  # not through the caller's clean-up
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as incoming:
        blob = incoming.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(blob) if blob else Count(target.name, count, 0, [f"the process died (status {status})"])


def mutate(count: int, seed: int, *, only: str = "", apart: bool = False) -> Iterator[Count]:
    """About `count` mutations, the same number of every kind of file."""
    with workplace() as folder:
        sandbox = Sandbox(Path(folder) / "whole")
        targets = [t for t in sandbox.targets() if only in t.name]
        for target in targets:
            share = -(-count // len(targets))
            yield (in_a_process if apart else run_target)(sandbox, target, share, seed, Path(folder) / "spoiled")


def main() -> None:
    """Print the counts; exit status 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    wanted = parser.parse_args()
    total: Counter[str] = Counter()
    for count in mutate(wanted.count, wanted.seed, only=wanted.only, apart=True) if wanted.count else ():
        wrong = Counter(tracebacks=len(count.failures), different=len(count.different))
        total += Counter(mutations=count.mutations, refused=count.refused) + wrong
        print(f"{count.name:24} {count.mutations:6} mutations {count.refused:6} refused {dict(wrong)}", flush=True)
        for description in (*count.failures, *count.different)[:3]:
            print("   ", description)
    print({k: total[k] for k in ("mutations", "refused", "tracebacks", "different")}, flush=True)
    killed = kills.run(wanted.kills, wanted.seed) if wanted.kills else kills.Killed()
    print(
        {
            "kills": killed.kills,
            "in time": killed.in_time,
            "lost": len(killed.lost),
            "reruns failed": len(killed.failed),
        }
    )
    for description in (*killed.lost, *killed.failed)[:5]:
        print("   ", description)
    sys.exit(bool(total["tracebacks"] or total["different"] or killed.lost or killed.failed))


if __name__ == "__main__":
    main()
