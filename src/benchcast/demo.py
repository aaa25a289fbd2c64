"""The study that `benchcast demo` runs on."""

from __future__ import annotations

from pathlib import Path

from benchcast.planted import Plan, plant, write_study
from benchcast.store import Study

MARK = ".benchcast-demo"
SYNTHETIC = "This demo runs on a planted, synthetic study: made-up families, tokenizers and scores with a known truth."


def make_demo_study(out: Path) -> Study:
    """A fresh copy of the demo's study under `out`."""
    out.mkdir(parents=True)
    (out / MARK).touch()
    return write_study(plant(Plan(seed=5, families=8)), out / "study")
