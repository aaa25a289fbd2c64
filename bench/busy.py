"""Time `fit` on the embedded study alone, and beside as many busy processes as there are cores.

    python bench/busy.py                  at most 2 times the time alone, or it fails
    python bench/busy.py --threads 2      with this many threads of linear algebra, to see what they cost

Both are timed in turns, and the medians are compared. A fit of one thread beside n busy processes on n cores gets n of
n + 1 shares, so it takes (n + 1) / n times as long at best: 1.5 on two cores. It takes up to 2 times as long where the
scheduler leaves it on the core of a busy process. CPU seconds say what the fit itself does: they grow if its threads
wait for each other, and hardly if it only waits for its share. Where the fit alone does not get a whole core, the
machine has other work, and the ratio of times says nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import benchcast as bc
from benchcast import devices
from timing import timed

MOST = 2.0  # times the time alone
QUIET = 0.95  # share of a core that the fit alone gets on a machine without other work
ROUNDS = 3


def spin() -> None:
    while True:
        pass


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that take all the time they get."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


@dataclass(frozen=True)
class Took:
    """What one run took."""

    seconds: float
    cpu_seconds: float


def measure(work: Callable[[], object], count: int) -> tuple[Took, Took]:
    """Medians alone, and beside busy processes."""
    runs: dict[int, list[Took]] = {0: [], count: []}
    for _ in range(ROUNDS):
        for beside, found in runs.items():
            with busy(beside):
                before = time.process_time()
                found.append(Took(timed(work), time.process_time() - before))
    alone, beside = (
        Took(statistics.median(r.seconds for r in found), statistics.median(r.cpu_seconds for r in found))
        for found in runs.values()
    )
    return alone, beside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=0, help="threads of linear algebra; 0: as fits choose")
    parser.add_argument("--tasks", nargs="*", default=[], help="tasks of the study; none given: all")
    args = parser.parse_args()
    study, count = bc.datasets.load_zoo(), os.cpu_count() or 1
    bc.fit_tasks(study, ["code"], method="label-token")  # imports, and reads the files
    devices.BLAS_THREADS = args.threads or devices.BLAS_THREADS
    alone, beside = measure(lambda: bc.fit_tasks(study, args.tasks), count)
    ratio, of_cpu = beside.seconds / alone.seconds, beside.cpu_seconds / alone.cpu_seconds
    print(f"| threads | what | alone | beside {count} busy processes | ratio |\n|---|---|---:|---:|---:|")
    threads = args.threads or "as chosen"
    print(f"| {threads} | s | {alone.seconds:.1f} | {beside.seconds:.1f} | {ratio:.2f} |")
    print(f"| {threads} | CPU s | {alone.cpu_seconds:.1f} | {beside.cpu_seconds:.1f} | {of_cpu:.2f} |")
    share = alone.cpu_seconds / alone.seconds
    if share < QUIET:
        print(f"not quiet: the fit alone got {share:.0%} of a core, other work took the rest")
    sys.exit(int(not args.threads and share >= QUIET and ratio > MOST))


if __name__ == "__main__":
    main()
