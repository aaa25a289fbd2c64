"""Numbers that must stay while modules move: `python tests/frozen/frozen_numbers.py` writes numbers.json again.

That is right only after a change that is meant to change forecasts. The studies and fits beside this file were written
by version 0.1.0 and are never written again.

Sums in float32 depend on the instructions of the processor, and steps of an optimizer multiply the difference: with
others `paper` moves by up to 3e-3, `stack` by 1e-5. So they are made in a process of their own, on one thread, with
instructions that all x86 processors since 2013 have; on another architecture only the first digits can be compared.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import benchcast as bc

HERE = Path(__file__).parent
NUMBERS = HERE / "numbers.json"
TASKS = ("arithmetic", "facts", "code")  # of the embedded study: chance 0 and 0.25, few and many reach the ceiling
METHODS = (
    "stack", "salience", "paper", "ridge", "pls", "perplexity-correlations", "logistic-4", "two-step", "observational",
    "rbridge", "label-token", "source-token", "all-token", "compute", "constant",
)  # fmt: skip
HIDDEN_FAMILIES = ("cedar", "hazel", "oak-a")
COLUMNS = ("forecast", "low", "high", "capability")
INSTRUCTIONS = {
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_SKX AVX512_ICL AVX512_SPR",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}
TOLERANCE = 1e-6 if platform.machine() in ("x86_64", "AMD64") else 1e-2
STORED = {"stack": HERE / "study" / "fits", "paper": HERE / "paper_fits"}

Numbers = dict[str, list[float]]


def held_out(comparison: bc.Comparison) -> Numbers:
    """Forecasts, intervals and capabilities of the held-out models, by task, method and column."""
    return {
        f"{task} {method} {column}": np.asarray(getattr(held, column), float).tolist()
        for (task, method), held in comparison.held_out.items()
        for column in COLUMNS
    }


def by_size(folder: Path, methods: Sequence[str] = METHODS) -> Numbers:
    """Every method on the embedded study, the largest models held out."""
    return held_out(bc.compare(bc.datasets.load_zoo(), TASKS, split="size", methods=methods))


def of_three_families(folder: Path) -> Numbers:
    """The default method on the embedded study without its scorer, three families held out by the split column."""
    root = folder / "study"
    shutil.copytree(bc.datasets.load_zoo().root, root, ignore=shutil.ignore_patterns("features", "READ-ONLY", ".lock"))
    head, *rows = (root / "models.csv").read_text(encoding="utf-8").splitlines()
    marked = [f"{row}{'test' if row.split(',')[1] in HIDDEN_FAMILIES else 'train'}" for row in rows]
    (root / "models.csv").write_text("\n".join([head, *marked]) + "\n", encoding="utf-8")
    settings = (root / "study.toml").read_text(encoding="utf-8")
    (root / "study.toml").write_text(settings.replace('scorer = "zoo-scorer-16M"\n', ""), encoding="utf-8")
    return held_out(bc.compare(root, TASKS, split="column", methods=["stack"]))


def columns(forecasts: bc.Forecasts, name: str) -> Numbers:
    """Forecasts of many models, column by column."""
    kept = ("accuracy", "low", "high", "capability")
    return {f"{name} {column}": [getattr(row, column) for row in forecasts] for column in kept}


def of_stored_fits(folder: Path) -> Numbers:
    """What fits of version 0.1.0 forecast for all models of the study beside them."""
    numbers: Numbers = {}
    for method, fits in STORED.items():
        for path in sorted(fits.iterdir()):
            fit = bc.load(path)
            numbers |= columns(fit.predict(bc.Study.open(HERE / "study"), level=0.8), f"{fit.task} {method}")
    return numbers


def of_new_fits(folder: Path) -> Numbers:
    """The same by fits that are made again of the stored study."""
    shutil.copytree(HERE / "study", folder / "again")
    numbers: Numbers = {}
    for method in STORED:
        for fit in bc.fit_tasks(folder / "again", method=method, split="size"):
            numbers |= columns(fit.predict(bc.Study.open(folder / "again"), level=0.8), f"{fit.task} {method}")
    return numbers


SECTIONS: dict[str, Callable[[Path], Numbers]] = {
    "by size": by_size,
    "three families, no scorer": of_three_families,
    "stored fits": of_stored_fits,
    "fits made again": of_new_fits,
}


def rounded(values: list[float]) -> list[Any]:
    """Nine digits are enough for a comparison at one part in a million; a missing value is null."""
    return [float(f"{x:.9g}") if np.isfinite(x) else None for x in values]


def compute() -> dict[str, dict[str, list[Any]]]:
    """All sections, in this process."""
    made = {}
    for name, section in SECTIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            made[name] = {k: rounded(v) for k, v in section(Path(folder)).items()}
    return made


def compute_alike() -> dict[str, dict[str, list[Any]]]:
    """All sections, in a process that computes as it does on other machines, with the package that is imported here."""
    package = str(Path(bc.__file__).resolve().parents[1])
    environment = {**os.environ, **INSTRUCTIONS, "PYTHONPATH": package}
    ran = subprocess.run([sys.executable, __file__, "--print"], env=environment, capture_output=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr.decode())
    return json.loads(ran.stdout)


def main() -> None:
    if sys.argv[1:] == ["--print"]:
        json.dump(compute(), sys.stdout)
        return
    lines = [
        f'"{section}": {{\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n}"
        for section, rows in compute_alike().items()
    ]
    NUMBERS.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
