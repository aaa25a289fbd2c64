"""From what a team has to the first forecast in at most three commands: logs, an export of W&B, arrays."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc

LOGS = Path(__file__).resolve().parents[1] / "logs" / "fixtures" / "lm-eval-0.4.13"
FORECAST = re.compile(r"\b[01]\.\d{3}\b.*\b[01]\.\d{2,3}\b.*\b[01]\.\d{2,3}\b")  # a score and the ends of its interval


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty home and working directory."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    for variable in ("HOME", "XDG_CACHE_HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.delenv("BENCHCAST_DATA", raising=False)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def two_runs(folder: Path) -> None:
    """Logs of ten real models as checkpoints of two runs; the weaker a model, the earlier its checkpoint."""
    results = {path: json.loads(path.read_text(encoding="utf-8")) for path in LOGS.glob("*/results_*.json")}
    order = sorted(results, key=lambda path: results[path]["results"]["pond"]["acc,none"])
    for place, path in enumerate(order):
        run, step = ("warm-190M", "cold-1B")[place % 2], 20 * (place // 2 + 1)
        name = f"out/{run}/checkpoint-{step}"
        copy = Path(shutil.copytree(path.parent, folder / name.replace("/", "__")))
        document = results[path] | {"model_name": name}
        document["config"]["model_args"] = f"pretrained={name},dtype=float32"
        (copy / path.name).write_text(json.dumps(document), encoding="utf-8")


def test_logs_of_two_runs_with_checkpoints(cli, fresh):
    two_runs(fresh / "results")
    ran = cli("init", "study", "--from-lm-eval", "results", "--metric", "pond_write=exact_match,strict-match")
    assert ran.code == 0, ran.err
    assert "study: 10 models, 34 items (pond_sums, pond_frogs, pond_last)" in ran.out
    shown = ran.out[ran.out.index("found by the names") :]
    assert re.search(r"^warm +5 +1 .* 20 – 100 ", shown, re.M)
    assert re.search(r"^cold +5 +1 .* 20 – 100 ", shown, re.M)
    assert "next: benchcast compare study" in ran.out
    ran = cli("fit", "study", "--task", "pond")
    assert ran.code == 0, ran.err
    ran = cli("predict", "study", "--model", "cold-1B@100")
    assert ran.code == 0, ran.err
    assert "cold-1B@100" in ran.out
    assert re.search(r"pond\b.*" + FORECAST.pattern, ran.out), ran.out


def test_an_export_of_wandb_with_a_run_that_has_no_score_yet(cli, fresh):
    lines = ["Name,State,lr,batch_size,_step,eval/c4/loss,eval/code/loss,eval/arc_easy/loss,eval/arc_easy/acc"]
    for i in range(13):
        family, size = ("web", "code", "mix")[i % 3], 10 * 2 ** (i // 3)
        loss = 4.0 - 0.3 * (i // 3) - 0.05 * (i % 3)
        score = "" if i == 12 else f"{0.25 + 0.7 / (1 + np.exp(2 * (loss - 3.3))):.4f}"
        lines.append(f"{family}-{size}M,finished,1e-3,256,1000,{loss + 0.2:.4f},{loss - 1:.4f},{loss:.4f},{score}")
    (fresh / "wandb.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ran = cli("init", "study", "--table", "wandb.csv", "--losses", "eval/*loss*", "--scores", "eval/*/acc")
    assert ran.code == 0, ran.err
    assert "study: 13 models, 3 losses each (eval/c4/loss, eval/code/loss, eval/arc_easy/loss)" in ran.out
    assert "tasks: arc_easy (chance 0.25)" in ran.out
    assert "left out 3 columns (configuration: lr, batch_size; step: _step); choose with --losses" in ran.out
    ran = cli("fit", "study")
    assert ran.code == 0, ran.err
    ran = cli("predict", "study", "--model", "web-160M")
    assert ran.code == 0, ran.err
    assert re.search(r"arc_easy\b.*" + FORECAST.pattern, ran.out), ran.out


def test_arrays_in_a_notebook(fresh):
    rng = np.random.default_rng(0)
    strength = np.sort(rng.uniform(2.2, 4.0, 24))[::-1]
    losses = strength[:, None] + rng.normal(0, 0.05, (24, 30))
    accuracy = 0.25 + 0.7 / (1 + np.exp(3 * (strength - 3)))
    families = [f"run-{i % 4}" for i in range(24)]
    model = bc.Forecaster(chance=0.25).fit(losses[:22], accuracy[:22], families=families[:22])
    forecasts = model.predict(losses[22:])
    assert np.allclose(forecasts, accuracy[22:], atol=0.1)
    assert len(re.findall(r"0\.\d+", str(forecasts))) == 2


def test_no_start_needs_torch(cli, fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails, as where it is not installed
    monkeypatch.setitem(sys.modules, "transformers", None)
    ran = cli("init", "s", "--texts", "none.jsonl")
    assert "none.jsonl: no such file" in ran.err
    (fresh / "t.jsonl").write_text('{"text": "a b"}\n', encoding="utf-8")
    assert cli("init", "s", "--texts", "t.jsonl").code == 0
    ran = cli("collect", "s", "--model", "hf", "--model_args", "pretrained=x")
    assert "pip install torch --index-url https://download.pytorch.org/whl/cpu" in ran.err
    assert ran.err.count("\n") == 1
