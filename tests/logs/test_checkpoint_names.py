"""Checkpoints of two runs are told apart wherever the logs are read, and are renamed by pairs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from log_files import METRIC, NEW

import benchcast as bc

STEPS = {"reed-a": "run-a/checkpoint-60", "reed-b": "run-a/checkpoint-120", "rush-a": "run-b/checkpoint-60"}
NAMES = ["run-a@120", "run-a@60", "run-b@60"]


def as_model(results: Path, name: str) -> None:
    """Let a results file be of another model."""
    document = json.loads(results.read_text(encoding="utf-8"))
    document["model_name"] = name
    document["config"]["model_args"] = f"pretrained={name},dtype=float32"
    results.write_text(json.dumps(document), encoding="utf-8")


def relabelled(folder: Path, names: dict[str, str]) -> Path:
    """Logs of real models under other names."""
    for model, name in names.items():
        copy = Path(shutil.copytree(NEW / f"models__{model}", folder / f"models__{model}"))
        as_model(next(copy.glob("results_*.json")), name)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return relabelled(tmp_path / "logs", STEPS)


def test_two_runs_stay_two_where_their_folders_exist_and_elsewhere(cli, runs, tmp_path, monkeypatch):
    assert cli("init", tmp_path / "elsewhere", "--from-lm-eval", runs, *METRIC).code == 0
    for name in STEPS.values():
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert cli("init", tmp_path / "beside", "--from-lm-eval", runs, *METRIC).code == 0
    for study in ("elsewhere", "beside"):
        opened = bc.Study.open(tmp_path / study)
        assert opened.models_with_losses() == NAMES
        assert sorted({s.model for s in opened.scores()}) == NAMES


def test_one_run_alone_keeps_its_name(cli, tmp_path):
    logs = relabelled(tmp_path / "logs", {"reed-a": "/data/run-a/checkpoint-60"})
    assert cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC).code == 0
    assert bc.Study.open(tmp_path / "s").models_with_losses() == ["run-a@60"]


def test_checkpoints_of_one_path_but_for_an_outer_folder_keep_that_folder(cli, tmp_path):
    names = {"reed-a": "warm/run/checkpoint-60", "reed-b": "cold/run/checkpoint-60"}
    logs = relabelled(tmp_path / "logs", names)
    assert cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC).code == 0
    study = bc.Study.open(tmp_path / "s")
    assert study.models_with_losses() == ["cold/run@60", "warm/run@60"]
    assert cli("import", "losses", tmp_path / "s", logs / "models__reed-a").out.endswith("1 were there already\n")
    assert cli("import", "scores", tmp_path / "s", logs, *METRIC).code == 0
    assert len(bc.Study.open(tmp_path / "s").scores()) == 6


def test_init_and_import_losses_rename_losses_and_scores(cli, runs, tmp_path):
    rename = ("--rename", "run-a@*=warm@*", "--rename", "run-b/checkpoint-60=cold")
    ran = cli("init", tmp_path / "s", "--from-lm-eval", runs, *METRIC, *rename)
    assert ran.code == 0, ran.err
    study = bc.Study.open(tmp_path / "s")
    assert study.models_with_losses() == ["cold", "warm@120", "warm@60"]
    assert sorted({s.model for s in study.scores()}) == ["cold", "warm@120", "warm@60"]
    bc.remove_models(study, ["cold"])
    ran = cli("import", "losses", tmp_path / "s", runs / "models__rush-a", "--rename", "run-b@60=colder")
    assert ran.code == 0, ran.err
    assert "colder" in bc.Study.open(tmp_path / "s").models_with_losses()


def test_renames_reach_losses_and_scores_in_python(runs, tmp_path):
    options = bc.ImportOptions({"pond_write": "exact_match,strict-match"}, renames={"run-*@60": "early-*"})
    created = bc.create_from_logs(tmp_path / "s", runs, options=options)
    assert created.study.models_with_losses() == ["early-a", "early-b", "run-a@120"]
    assert {s.model for s in created.scores.scores} == {"early-a", "early-b", "run-a@120"}


def test_two_models_under_one_new_name_are_refused(cli, runs, tmp_path):
    ran = cli(
        "init", tmp_path / "s", "--from-lm-eval", runs, *METRIC, "--rename", "run-a@60=x", "--rename", "run-b@60=x"
    )
    assert ran.code == 1
    assert "are both model 'x'; give them different names with --rename" in ran.err


def test_names_of_an_older_version_still_match_its_losses(cli, runs, tmp_path):
    assert cli("init", tmp_path / "s", "--from-lm-eval", runs / "models__reed-a", *METRIC).code == 0
    bc.rename_model(tmp_path / "s", "run-a@60", "checkpoint-60")
    ran = cli("import", "losses", tmp_path / "s", runs / "models__reed-a")
    assert ran.out.endswith("0 models added, 1 were there already\n")


def test_other_imports_rename_too(cli, runs, tmp_path):
    assert cli("init", tmp_path / "s", "--from-lm-eval", runs, *METRIC).code == 0
    (tmp_path / "models.csv").write_text("model,family\nx-60,a\nx-120,a\n", encoding="utf-8")
    assert cli("import", "models", tmp_path / "s", tmp_path / "models.csv", "--rename", "x-*=run-a@*").code == 0
    families = {m.model: m.family for m in bc.Study.open(tmp_path / "s").models()}
    assert (families["run-a@60"], families["run-a@120"]) == ("a", "a")
    ran = cli("import", "models", tmp_path / "s", tmp_path / "models.csv", "--rename", "x-60=y", "--rename", "x-120=y")
    assert "'y' is the name of two models" in ran.err


def test_renames_that_match_nothing_are_named_in_one_line(cli, runs, tmp_path):
    study, rename = tmp_path / "s", ("--rename", "run-a@*=warm@*", "--rename", "run-x@*=cold@*")
    said = "warning: --rename matches no name in the files: 'run-x@*'; they have run-"
    (tmp_path / "models.csv").write_text("model,family\nrun-a@60,a\n", encoding="utf-8")
    for command in (
        ("init", study, "--from-lm-eval", runs, *METRIC),
        ("import", "losses", study, runs),
        ("import", "scores", study, runs, *METRIC),
        ("import", "models", study, tmp_path / "models.csv"),
    ):
        ran = cli(*command, *rename)
        assert ran.code == 0, ran.err
        assert (ran.err.count("--rename"), ran.err.count(said)) == (1, 1), ran.err
    ran = cli("import", "scores", study, runs, *METRIC, *rename[:2], "--rename", "pond_last=pond_last")
    assert (ran.code, ran.err) == (0, "")  # a task is a name, too


def test_a_rename_of_a_table_that_matches_nothing_is_named(cli, tmp_path):
    (tmp_path / "first.csv").write_text("model,a,b\nm1,1.2,1.3\nm2,1.1,1.5\n", encoding="utf-8")
    (tmp_path / "more.csv").write_text("model,a,b\nm3,1.2,1.3\n", encoding="utf-8")
    rename = ("--rename", "m1=x", "--rename", "m3=y")
    ran = cli("init", tmp_path / "s", "--table", tmp_path / "first.csv", "--unit", "nats", *rename)
    assert "--rename matches no name in the files: 'm3'; they have m1, m2\n" in ran.out
    ran = cli("import", "losses", tmp_path / "s", tmp_path / "more.csv", *rename)
    assert "warning: --rename matches no name in the files: 'm1'; they have m3\n" in ran.err
    assert bc.Study.open(tmp_path / "s").models_with_losses() == ["m2", "x", "y"]


def test_adapters_of_one_base_model_are_models_of_their_own(cli, runs, tmp_path):
    for path in runs.glob("*/results_*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        adapter = document["model_name"]
        document["model_name"] = "org/base"
        document["config"]["model_args"] = f"pretrained=org/base,peft={adapter}"
        path.write_text(json.dumps(document), encoding="utf-8")
    assert cli("init", tmp_path / "s", "--from-lm-eval", runs, *METRIC).code == 0
    assert bc.Study.open(tmp_path / "s").models_with_losses() == NAMES
