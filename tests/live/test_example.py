"""The example of docs/training.md, shortened: a real training run whose forecasts can be read in TensorBoard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROOT = Path(__file__).parents[2]


def test_two_lines_put_forecasts_into_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ROOT / "examples" / "train_with_forecast.py"
    code = [line for line in script.read_text(encoding="utf-8").splitlines() if "TransformersForecast" in line]
    assert len(code) == 2, "an import and an argument"
    ran = subprocess.run(
        [sys.executable, str(script), "--steps", "4", "--forecasts", "2", "--items", "10", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "2 forecasts in" in ran.stdout
    assert [line.split()[0] for line in ran.stdout.splitlines() if "–" in line] == [
        "events",
        "facts",
        "code",
        "chinese",
    ]
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from plot_events import main, read

    main(tmp_path, tmp_path / "forecasts.png")
    assert (tmp_path / "forecasts.png").stat().st_size > 1000
    rows = read(tmp_path)
    assert {r["step"] for r in rows} == {2, 4}
    assert {r["task"] for r in rows} == {"arithmetic", "tracking", "facts", "events", "chinese", "code"}
    assert all(r["low"] <= r["forecast"] <= r["high"] for r in rows)
