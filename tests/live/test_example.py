"""The example of docs/training.md, shortened: a real training run whose forecasts can be read in TensorBoard."""

from __future__ import annotations

import runpy
import sys
from functools import partial
from pathlib import Path

import pytest

from benchcast.forecasts import fit
from tools.site.pages import shape, steps

pytest.importorskip("tensorboard")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "training.md"


def test_two_lines_put_forecasts_into_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ROOT / "examples" / "train_with_forecast.py"
    code = [line for line in script.read_text(encoding="utf-8").splitlines() if "TransformersForecast" in line]
    assert len(code) == 2, "an import and an argument"
    arguments = ["--steps", "4", "--forecasts", "2", "--items", "10", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(fit, "fit_tasks", partial(fit.fit_tasks, method="label-token"))  # the quickest
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    ((_, *shown),) = [s for s in steps(PAGE.read_text(encoding="utf-8")) if "train_with_forecast" in s[0]]
    assert set(shape("\n".join(*shown))) - {"…"} <= set(shape(printed))
    assert [line.split()[0] for line in printed.splitlines() if "–" in line] == [
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
