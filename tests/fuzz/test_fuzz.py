"""A few mutations of every file and a few kills; `make fuzz` runs many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz

ROOT = Path(__file__).parents[2]


def test_every_spoiled_file_gives_the_right_result_or_one_line():
    counts = list(fuzz.mutate(120, seed=0))
    assert len(counts) > 20
    assert [(m.name, m.failures, m.different) for m in counts if m.failures or m.different] == []


@pytest.mark.slow
def test_killed_commands_lose_nothing_and_are_finished_by_running_them_again():
    command = [sys.executable, "tests/fuzz/fuzz.py", "--count", "0", "--kills", "5", "--seed", "0"]
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, "'kills': 5" in ran.stdout) == (0, True), ran.stdout + ran.stderr
