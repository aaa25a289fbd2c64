"""Forecasts from score tables alone, and the plan that reproduces Table 1."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchcast.cli import cli
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.records import ModelInfo, Score, Task, Text, TextSet
from benchcast.storage.tables import read_models, read_scores
from benchcast.store import Study
from benchmark_files import REAL
from lab.commands import lab
from lab.paper.models import paper_models, paper_scores, paper_tasks
from lab.paper.observational import baselines, observational
from lab.paper.plan import estimate, gpus_for, write_plan
from lab.paper.tables import TABLE_1


def mses(split: str = "auto") -> dict[tuple[str, str], float]:
    _, rows = baselines(paper_models(), paper_scores(), paper_tasks(), split=split)
    return {(r.task, r.method): r.measures["mse"] for r in rows}


def test_observational_recovers_a_synthetic_sigmoid_of_two_components() -> None:
    rng = np.random.default_rng(0)
    skill = rng.normal(size=(2, 60))
    others = 0.5 + 0.1 * rng.normal(size=(5, 2)) @ skill
    true_accuracy = 0.25 + 0.75 / (1 + np.exp(-(0.3 + 1.2 * skill[0] - 0.8 * skill[1])))
    accuracy = np.vstack([true_accuracy, others])
    seen = np.arange(60) < 40
    forecasts = observational(accuracy, 0, 0.25, seen, components=2)
    assert forecasts == pytest.approx(true_accuracy, abs=1e-6)
    shuffled = observational(accuracy[[0, 3, 1, 5, 2, 4]], 0, 0.25, seen, components=2)
    assert shuffled == pytest.approx(forecasts, abs=1e-6)
    one = observational(accuracy, 0, 0.25, seen, components=1)
    assert np.mean((one - true_accuracy) ** 2) > 1e-4


def test_a_model_without_the_other_scores_gets_no_forecast_and_too_few_models_are_refused() -> None:
    accuracy = np.random.default_rng(1).uniform(0.3, 0.8, (4, 12))
    accuracy[2, 3] = np.nan
    forecasts = observational(accuracy, 0, 0.25, np.ones(12, bool))
    assert np.flatnonzero(np.isnan(forecasts)).tolist() == [3]
    with pytest.raises(NotEnoughDataError, match="3 models have all scores, 3 components need 5"):
        observational(accuracy, 0, 0.25, np.arange(12) < 4)


def test_held_out_scores_do_not_reach_their_own_forecast() -> None:
    accuracy = np.random.default_rng(2).uniform(0.3, 0.8, (4, 20))
    seen = np.arange(20) < 15
    before = observational(accuracy, 0, 0.0, seen)
    accuracy[0, ~seen] = 0.99
    assert np.array_equal(before, observational(accuracy, 0, 0.0, seen))


def test_the_papers_all_token_loss_is_no_better_than_the_mean_of_the_models_seen() -> None:
    errors = mses()
    for task in ("mmlu", "bbh", "gsm8k", "ceval", "cmmlu"):
        assert TABLE_1[task].all_token == pytest.approx(errors[task, "constant"], rel=0.1)
    assert 10 * TABLE_1["hellaswag"].all_token == pytest.approx(errors["hellaswag", "constant"], rel=0.25)


def test_observational_beats_the_constant_on_every_task_and_split() -> None:
    for split in ("column", "size", "family"):
        errors = mses(split)
        assert all(errors[t.name, "observational"] < errors[t.name, "constant"] for t in paper_tasks())


def test_one_capability_asked_twice_is_told_apart() -> None:
    errors = mses()
    assert errors["cmmlu", "observational"] < 1e-3 < errors["cmmlu", "observational, without its twin"]
    assert ("mmlu", "observational, without its twin") not in errors


def test_tables_to_study_and_back_give_the_same_baselines(tmp_path: Path) -> None:
    texts = TextSet.of([Text("a", "mmlu", "one")])
    study = Study.create(tmp_path / "s", texts, tasks=paper_tasks())
    study.add_models(paper_models())
    study.add_scores(paper_scores())
    _, rows = baselines(study.models(), study.scores(), study.tasks)
    assert {(r.task, r.method): r.measures["mse"] for r in rows} == mses()
    result = CliRunner().invoke(lab, ["baselines", str(tmp_path / "s"), "--json"])
    again = json.loads(result.output)
    assert again["split"] == "column"
    assert again["tasks"]["mmlu"]["observational"]["mse"] == pytest.approx(mses()["mmlu", "observational"])


def test_the_command_prints_the_paper_beside_the_baselines() -> None:
    result = CliRunner().invoke(lab, ["baselines"])
    assert result.exit_code == 0
    line = next(x for x in result.output.splitlines() if x.startswith("mmlu"))
    assert line.split()[1:5] == ["1.45e-03", "2.40e-02", "3.31e-02", "2.43e-02"]
    assert "paper: CSV" not in CliRunner().invoke(lab, ["baselines", "--split", "family"]).output


def test_a_single_task_has_only_the_constant() -> None:
    models = [ModelInfo(f"m{i}", f"f{i % 3}") for i in range(9)]
    scores = [Score(m.model, "t", 0.1 * i) for i, m in enumerate(models)]
    _, rows = baselines(models, scores, [Task("t")], split="family")
    assert [r.method for r in rows] == ["constant"]
    assert math.isfinite(rows[0].measures["mse"])


def test_a_plan_without_files_starts_from_the_tables(tmp_path: Path) -> None:
    write_plan(tmp_path / "p", None, seed=4)
    text = (tmp_path / "p" / "commands.sh").read_text(encoding="utf-8")
    lines = text.splitlines()
    collects = [x for x in lines if x.startswith("benchcast collect")]
    assert len(collects) == 59
    assert "bbh-cot=50 --data" in text
    after = lines[lines.index(collects[-1]) :]
    assert any(x.startswith('benchcast features study --scorer "${WEIGHTS}internlm/internlm2_5-1_8b"') for x in after)
    assert "fit study --method paper --split column" in text
    assert "compare study --split column" in text
    assert [m.model for m in read_models(tmp_path / "p" / "models.csv")] == [m.model for m in paper_models()]
    assert len(read_scores(tmp_path / "p" / "scores.csv", paper_tasks())) == 354
    assert subprocess.run(["sh", "-n", str(tmp_path / "p" / "commands.sh")], check=False).returncode == 0
    with pytest.raises(InputError, match="not empty"):
        write_plan(tmp_path / "p", None)


@pytest.mark.parametrize(
    ("backend", "said"),
    [("vlm", "did you mean 'vllm'?"), ("nonsense", "with vllm, lmdeploy, hf"), ("sglang", "itself")],
)
def test_a_plan_for_a_backend_that_loads_no_models_is_refused(tmp_path: Path, backend: str, said: str) -> None:
    with pytest.raises(InputError, match="unknown backend") as refused:
        write_plan(tmp_path / "p", None, backend=backend)
    assert said in str(refused.value)
    assert not (tmp_path / "p").exists()


def test_large_models_are_spread_over_gpus_where_the_backend_can(tmp_path: Path) -> None:
    scripts = {}
    for backend in ("vllm", "hf"):
        write_plan(tmp_path / backend, None, backend=backend)
        scripts[backend] = (tmp_path / backend / "commands.sh").read_text(encoding="utf-8")
    assert scripts["vllm"].count("tensor_parallel_size=4") == sum(m.params > 64e9 for m in paper_models())
    assert "tensor_parallel_size" not in scripts["hf"]
    assert "hf loads a model onto one GPU: 14 of 59 need more" in scripts["hf"]


def test_the_commands_of_a_plan_exist(tmp_path: Path) -> None:
    write_plan(tmp_path / "p", None)
    text = (tmp_path / "p" / "commands.sh").read_text(encoding="utf-8")
    for line in (x.split() for x in text.splitlines() if x.startswith("benchcast")):
        name = line[1]
        command = cli.commands[name]
        while hasattr(command, "commands"):
            name = line[line.index(name) + 1]
            command = command.commands[name]
        known = {o for p in command.params for o in p.opts}
        assert {w for w in line if w.startswith("--")} <= known, line


@pytest.mark.skipif(not REAL.is_dir(), reason="the benchmarks are not beside the repository")
def test_a_plan_with_files_makes_the_study(tmp_path: Path) -> None:
    result = CliRunner().invoke(lab, ["plan", str(tmp_path / "p"), "--data", str(REAL)])
    assert result.exit_code == 0, result.output
    study = Study.open(tmp_path / "p" / "study")
    assert len(study.texts) == 550
    assert len(study.scores()) == 354
    assert {m.model: m.split for m in study.models()} == {m.model: m.split for m in paper_models()}
    assert "GPU hours" in result.output
    assert "benchcast init" not in (tmp_path / "p" / "commands.sh").read_text(encoding="utf-8")


def test_the_estimate_grows_with_texts_and_models() -> None:
    models = paper_models()
    few, many = estimate(models, 1e5), estimate(models, 1e9)
    assert few.gpu_hours < many.gpu_hours
    assert few.weights_bytes == pytest.approx(2.34e12, rel=0.01)
    assert few.largest_bytes == pytest.approx(145e9, rel=0.01)
    assert gpus_for(ModelInfo("x", params=7e9)) == 1
    assert gpus_for(ModelInfo("x", params=34e9)) == 2
    assert gpus_for(ModelInfo("x", params=72e9)) == 4
