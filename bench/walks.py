"""Whole commands in two source trees, in turns, so that other work on the machine slows both alike.

    python bench/walks.py OLD/src NEW/src --runs 5 [--only fit predict]

Prints the median seconds of each command on the embedded study and the ratio new / old, of waiting and of CPU time. On
a machine that others use, the ratio of CPU time is the one to believe.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = next((ROOT / "tests").rglob("shipped")) / "ash-0.5M"  # a model of half a million parameters
WALKS = {  # in this order: what predicts needs what fits
    "fit": "fit study --split size",
    "fit paper": "fit other --split size --method paper",
    "compare": "compare study --split size --method stack --method paper --method label-token --jobs 1",
    "predict": "predict study --model *-50M@* --json",
    "predict one, 6 tasks": "predict study --model ash-50M@36.0M --use-scores --json",
    "collect": f"collect texts --model hf --model_args pretrained={TINY} --name tiny --device cpu --force",
    "report": "report study --split size -o report.html",
    "status": "status study",
    "help": "compare --help",
}


def cpu_seconds() -> float:
    """CPU time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def benchcast(source: Path, folder: Path, *words: str) -> tuple[float, float]:
    """Seconds of a command with the package of one source tree, waited and of CPU time."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchcast", *words]
    start, used = time.perf_counter(), cpu_seconds()
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start, cpu_seconds() - used
    if ran.returncode:
        sys.exit(f"{source}: {' '.join(words)}\n{ran.stderr}")
    return seconds


def prepare(source: Path, folder: Path) -> None:
    """Two copies of the embedded study, and one of its texts alone."""
    for name in ("study", "other"):
        benchcast(source, folder, "init", name, "--from", "zoo")
    shutil.copy(folder / "study" / "texts.jsonl", folder / "texts.jsonl")
    benchcast(source, folder, "init", "texts", "--texts", "texts.jsonl")
    benchcast(source, folder, "fit", "study", "--split", "size")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("old", type=Path)
    options.add_argument("new", type=Path)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--only", nargs="+", choices=WALKS, default=list(WALKS))
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        sides = {Path(parent, side): getattr(given, side).resolve(strict=True) for side in ("old", "new")}
        for folder, source in sides.items():
            folder.mkdir()
            prepare(source, folder)
        print("| command | old, s | new, s | new / old | old, CPU s | new, CPU s | new / old |")
        print("|---|---|---|---|---|---|---|")
        for name in given.only:
            taken: dict[Path, list[tuple[float, float]]] = {folder: [] for folder in sides}
            for _ in range(given.runs):
                for folder, source in sides.items():
                    taken[folder].append(benchcast(source, folder, *WALKS[name].split()))
            cells = [name]
            for kind in (0, 1):
                old, new = (statistics.median(seconds[kind] for seconds in rows) for rows in taken.values())
                cells += [f"{old:.2f}", f"{new:.2f}", f"{new / old:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
