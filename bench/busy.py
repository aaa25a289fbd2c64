"""Time `fit` on the embedded study alone, and beside as many busy processes as there are cores.

    python bench/busy.py                  at most 2 times the time alone, or it fails
    python bench/busy.py --threads 2      with this many threads of linear algebra, to see what they cost

Both are timed in turns, and the medians are compared, so that other work on the machine slows both.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import benchcast as bc
from benchcast import devices
from timing import timed

MOST = 2.0  # times the time alone
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


def measure(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Median seconds alone, and beside busy processes."""
    seconds: dict[int, list[float]] = {0: [], count: []}
    for _ in range(ROUNDS):
        for beside, found in seconds.items():
            with busy(beside):
                found.append(timed(work))
    return statistics.median(seconds[0]), statistics.median(seconds[count])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=0, help="threads of linear algebra; 0: as fits choose")
    parser.add_argument("--tasks", nargs="*", default=[], help="tasks of the study; none given: all")
    args = parser.parse_args()
    study, count = bc.datasets.load_zoo(), os.cpu_count() or 1
    bc.fit_tasks(study, ["code"], method="label-token")  # imports, and reads the files
    devices.BLAS_THREADS = args.threads or devices.BLAS_THREADS
    alone, beside = measure(lambda: bc.fit_tasks(study, args.tasks), count)
    print(f"| threads | alone | beside {count} busy processes | ratio |\n|---|---|---|---|")
    print(f"| {args.threads or 'as chosen'} | {alone:.1f} s | {beside:.1f} s | {beside / alone:.2f} |")
    sys.exit(int(not args.threads and beside > MOST * alone))


if __name__ == "__main__":
    main()
