"""`collect` names checkpoints by run and step, as logs do, and finds losses under the names of earlier versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import benchcast as bc
from benchcast.study.model_names import name_of

CHECKPOINT = Path(__file__).resolve().parents[1] / "zoo" / "shipped" / "ash-0.5M"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three checkpoints below the current directory, which is the returned folder."""
    for name in ("run-a/checkpoint-60", "run-b/checkpoint-60", "old/run-b/checkpoint-60"):
        shutil.copytree(CHECKPOINT, tmp_path / "runs" / name)
    texts = "".join(json.dumps({"id": f"t{i}", "text": "a b c"}) + "\n" for i in range(2))
    (tmp_path / "runs" / "texts.jsonl").write_text(texts, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def collect(cli, *arguments):
    return cli("collect", "study", "--model", "hf", "--device", "cpu", "--model_args", *arguments)


@pytest.fixture
def study(cli, runs: Path) -> Path:
    assert cli("init", runs / "study", "--texts", runs / "texts.jsonl").code == 0
    return runs / "study"


def test_checkpoints_of_two_runs_are_two_models_named_as_in_logs(cli, study):
    for name in ("run-a/checkpoint-60", "run-b/checkpoint-60"):
        assert collect(cli, f"pretrained={name}").out.startswith(f"{name_of(name)}: 2 texts")
    assert bc.Study.open(study).models_with_losses() == ["run-a@60", "run-b@60"]


def test_a_path_from_inside_the_run_gives_the_same_name(cli, study, monkeypatch):
    monkeypatch.chdir("run-a")
    for name in ("checkpoint-60", "./checkpoint-60"):
        assert bc.open_backend("hf", f"pretrained={name}").model == "run-a@60"
    monkeypatch.chdir("checkpoint-60")
    assert bc.open_backend("hf", "pretrained=.").model == "run-a@60"


def test_equal_names_of_a_list_get_another_folder(cli, study, runs):
    lines = [f'[[models]]\nmodel = "hf"\nmodel_args = "pretrained={runs}/{n}"\n' for n in ("run-b", "old/run-b")]
    (runs / "models.toml").write_text("".join(lines).replace("run-b", "run-b/checkpoint-60"), encoding="utf-8")
    ran = cli("collect", study, "--models", runs / "models.toml", "--device", "cpu", "--rename", "never=used")
    assert ran.code == 0, ran.err
    assert bc.Study.open(study).models_with_losses() == ["old/run-b@60", "runs/run-b@60"]


def test_losses_under_the_name_of_an_earlier_version_are_not_scored_again(cli, study):
    assert collect(cli, "pretrained=run-a/checkpoint-60").code == 0
    bc.rename_model(study, "run-a@60", "checkpoint-60")
    ran = collect(cli, "pretrained=run-a/checkpoint-60")
    assert ran.out == "checkpoint-60: losses are stored already (--force scores it again)\n"
    assert collect(cli, "pretrained=run-b/checkpoint-60").out.startswith("run-b@60: 2 texts"), "another run is not it"


def test_a_pair_renames_what_is_collected(cli, study):
    ran = collect(cli, "pretrained=run-a/checkpoint-60", "--rename", "run-a@*=warm@*")
    assert ran.out.startswith("warm@60: 2 texts")
