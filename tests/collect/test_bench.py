"""The bench of collect runs where only torch, transformers and numpy are, as on a machine with a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]


def bench(*options: str) -> str:
    command = [sys.executable, ROOT / "tests" / "collect" / "gpu_machine.py", ROOT / "bench" / "collect.py", *options]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.slow
def test_it_runs_without_other_packages_and_compares_options_with_separate_scoring() -> None:
    out = bench("--tiny", "--rounds", "1")
    apart = [float(x) for x in re.findall(r"float32 .*prompt shared \(([0-9.e+-]+) nats at most", out)]
    assert len(apart) == 2
    assert max(apart) <= 1e-4
    assert out.count("texts alone | ") == out.count("each by itself | ") == 4


@pytest.mark.slow
def test_the_work_of_the_host_is_measured_without_other_packages() -> None:
    assert "| batches, checks, rows of texts |" in bench("--host", "--rounds", "1")


def test_other_packages_cannot_be_imported_there(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import numpy, pyarrow")
    command = [sys.executable, ROOT / "tests" / "collect" / "gpu_machine.py", tmp_path / "script.py"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "ModuleNotFoundError: No module named 'pyarrow'" in ran.stderr
