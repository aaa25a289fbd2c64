"""Run one function of work.py on a cluster: `drive.py ADDRESS FUNCTION COUNT FOLDER`; results as JSON on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import work

from benchcast.errors import BenchcastError
from benchcast.executors import open_executor, ray
from benchcast.executors.local import Job


def main() -> None:
    """Print results by job, what was noted, and what was refused."""
    address, name, count, folder = sys.argv[1:]
    if name in ("starve", "killed"):
        ray.PAUSE_SECONDS = 0.2  # the pauses are for nodes, whose loss is noticed late; a process is missed at once
    jobs = [Job(f"job {i}", i, group=f"group {i % 2}") for i in range(int(count))]
    notes: list[str] = []
    results, error = {}, ""
    try:
        with open_executor("ray", address=address, note=notes.append) as executor:
            for number, result in executor.run(getattr(work, name), jobs, Path(folder)):
                assert number not in results, "a result comes once"
                results[number] = result
    except BenchcastError as refused:
        error = f"{type(refused).__name__}: {refused}"
    print(json.dumps({"results": results, "notes": notes, "error": error}))


if __name__ == "__main__":
    main()
