"""A stored fit tells when the study has moved on; nothing else is called a change."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.forecasts.fit import fit_tasks, store_fits, stored_fits
from benchcast.forecasts.staleness import changed_inputs
from benchcast.forecasts.status import status
from benchcast.records import ModelInfo, Score
from benchcast.study.atomic import hashed
from benchcast.study.study import Study
from benchcast.study.tables import SCORE_COLUMNS, as_csv


@pytest.fixture(scope="module")
def fitted_folder(synthetic_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stale") / "study"
    shutil.copytree(synthetic_folder, folder)
    study = Study.open(folder)
    store_fits(study, fit_tasks(study, method="all-token"))
    return folder


@pytest.fixture
def study(fitted_folder: Path, tmp_path: Path) -> Study:
    shutil.copytree(fitted_folder, tmp_path / "study")
    return Study.open(tmp_path / "study")


def changes(study: Study) -> list[str]:
    return changed_inputs(Study.open(study.root), stored_fits(study)[0])


def add_scored(study: Study, world, name: str) -> None:
    study.add_losses([replace(world.losses[3], model=name)])
    study.add_scores([Score(name, "task0", 0.5), Score(name, "task1", 0.5)])


def test_an_untouched_study_has_no_stale_fit(study, cli, world):
    assert changes(study) == []
    ran = cli("predict", study.root, "--model", world.models[0].model)
    assert ran.err == ""
    assert status(study).problems == ()


def test_new_models_are_counted(study, cli, world):
    add_scored(study, world, "one more")
    add_scored(study, world, "another")
    said = "task0, task1: fitted on 20 of now 22 models"
    status = cli("status", study.root).out
    assert said in " ".join(status.split()), "lines wrap where the folder's name makes them long"
    assert f"next: benchcast fit {study.root}" in status
    ran = cli("predict", study.root, "--model", world.models[0].model, "--json")
    assert said in ran.err
    assert ran.err.startswith("warning: ")
    assert ran.err.count("\n") == 1
    assert "--refit" in ran.err
    assert len(json.loads(ran.out)) == 2


def test_a_model_without_a_score_makes_no_fit_stale(study, world):
    study.add_losses([replace(world.losses[0], model="new")])
    study.add_models([ModelInfo("new", family="other", params=1.0)])
    assert changes(study) == []


def test_choice_losses_make_fits_stale_that_read_them_and_no_others(synthetic_folder, tmp_path):
    shutil.copytree(synthetic_folder, tmp_path / "study")
    study = Study.open(tmp_path / "study")
    fits = [fit_tasks(study, ["task0"], method=method)[0] for method in ("all-token", "salience")]
    losses = study.losses(fits[0].task_fit.out_of_fold.models[0])
    study.add_losses([losses.with_choices({"choice": np.full(len(study.texts), 0.5)})])
    said = f"losses of {losses.model} changed"
    assert [changed_inputs(Study.open(study.root), fit) for fit in fits] == [[], [said]]
    study.add_losses([replace(losses, nats=losses.nats + 1)], force=True)
    assert [changed_inputs(Study.open(study.root), fit) for fit in fits] == [[said], [said]]


def test_an_emptied_split_column_lets_every_model_train(study, world):
    study.add_models([replace(m, split="test" if i % 5 == 0 else "train") for i, m in enumerate(world.models)])
    store_fits(study, fit_tasks(study, method="all-token"))
    assert changes(study) == []
    (study.root / "models.csv").unlink()
    study.add_models(world.models)
    assert changes(study)[0] == "fitted on 16 of now 20 models"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("scores", "scores of {} changed"),
        ("losses", "losses of {} changed"),
        ("family", "metadata of {} changed"),
        ("answers", "texts changed"),
        ("chance", "chance, sources or answers of the task changed"),
        ("gone", "fitted on 19 of now 19 models and 1 that is no longer there"),
    ],
)
def test_each_input_that_changes_is_named(study, world, what, said):
    name = world.models[2].model
    if what == "scores":
        study.add_scores([Score(name, "task0", 0.123)], force=True)
    elif what == "losses":
        study.add_losses([replace(world.losses[2], nats=world.losses[2].nats * 1.1)], force=True)
    elif what == "family":
        study.add_models([ModelInfo(name, family="moved")])
    elif what == "answers":
        path = study.root / "texts.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        path.write_text("".join(json.dumps({**r, "answer_start": 0}) + "\n" for r in rows), encoding="utf-8")
    elif what == "chance":
        path = study.root / "study.toml"
        path.write_text(path.read_text(encoding="utf-8").replace("chance = 0.25", "chance = 0.2"), encoding="utf-8")
    else:
        rows = [s for s in study.scores() if s.model != name]
        (study.root / "scores.csv").write_text(as_csv(SCORE_COLUMNS, rows), encoding="utf-8")
    assert changes(study) == [said.format(name)]


def test_what_a_fit_does_not_use_may_change(study, world):
    """Of the other task's scores, sizes and FLOPs a fit of losses on all models knows nothing."""
    name = world.models[2].model
    study.add_scores([Score(name, "task1", 0.123)], force=True)
    study.add_models([ModelInfo(name, params=5e9, flops=1e20)])
    assert changes(study) == []
    store_fits(study, [bc.fit(study, "task0", method="compute")])
    study.add_models([ModelInfo(name, flops=2e20)])
    assert changes(study) == [f"metadata of {name} changed"]


def test_refit_stores_fits_that_know_the_new_models(study, cli, world):
    add_scored(study, world, "one more")
    name = world.models[0].model
    before = json.loads(cli("predict", study.root, "--model", name, "--json").out)
    ran = cli("predict", study.root, "--model", name, "--refit", "--json")
    assert "warning" not in ran.err
    assert json.loads(ran.out) != before
    assert changes(study) == []
    assert "one more" in stored_fits(study)[0].about["train"]
    assert json.loads(cli("predict", study.root, "--model", name, "--json").out) == json.loads(ran.out)


def test_a_fit_of_an_older_version_is_not_called_stale(study, cli, world):
    for task in ("task0", "task1"):
        path = study.fit_folder(task) / "fit.json"
        stored = json.loads(path.read_text(encoding="utf-8"))
        del stored["about"]["inputs"], stored["about"]["annotated_texts"], stored["sha256"]
        path.write_text(json.dumps(stored), encoding="utf-8")
    assert changes(study) == []
    assert cli("predict", study.root, "--model", world.models[0].model).err == ""


@pytest.mark.parametrize("hashes", ["x", [], {}, {"task": 1, "features": "", "models": {"m": 3}}])
def test_hashes_that_are_not_ours_are_a_damaged_fit(study, cli, world, hashes):
    path = study.fit_folder("task0") / "fit.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["about"]["inputs"] = hashes
    path.write_text(json.dumps(hashed(stored)), encoding="utf-8")
    ran = cli("predict", study.root, "--model", world.models[0].model)
    assert ran.code == 1
    assert "damaged fit" in ran.err
    assert "damaged fit" in cli("status", study.root).out


def test_explain_and_report_tell_of_stale_fits_too(study, cli, world, tmp_path, monkeypatch):
    add_scored(study, world, "one more")
    ran = cli("explain", study.root, "--task", "task0")
    assert "warning: the study has changed" in ran.err
    assert ran.err.count("\n") == 1
    few = ("salience", "all-token")  # the others only take time
    monkeypatch.setattr("benchcast.evaluation.compare.MAIN_METHODS", few)
    ran = cli("report", study.root, "-o", tmp_path / "report.html", "--split", "size")
    assert ran.code == 0, ran.err
    assert "rbridge" not in (tmp_path / "report.html").read_text(encoding="utf-8"), "only what was compared"
    assert "warning: the study has changed" in ran.err


def test_models_without_a_score_that_is_read_are_no_training_models(study, world):
    gone = world.models[0].model
    rows = [s for s in study.scores() if (s.model, s.task) != (gone, "task1")]
    (study.root / "scores.csv").write_text(as_csv(SCORE_COLUMNS, rows), encoding="utf-8")
    fit = bc.fit(study, "task0", method="observational")
    assert fit.about["n_train"] == {"task0": 19}
    assert gone not in fit.about["train"]


def test_models_without_flops_are_no_training_models_of_compute(study, cli, world):
    rows = [replace(m, flops=float("nan"), tokens=float("nan")) for m in world.models[:5]]
    (study.root / "models.csv").unlink()
    study.add_models([*rows, *world.models[5:]])
    assert bc.fit(study, "task0", method="two-step").about["n_train"] == {"task0": 15}
    fit = bc.fit(study, "task0", method="compute")
    assert fit.about["n_train"] == {"task0": 15}
    assert not {m.model for m in rows} & set(fit.about["train"])
    assert "15 training models" in cli("fit", study.root, "--method", "compute").out
    known = study.losses(rows[0].model)
    assert fit.predict(known).remark == "no training FLOPs known"
    assert np.isfinite(fit.predict(study.losses(world.models[-1].model)).accuracy)


def test_compute_needs_four_models_with_flops(study, cli, world):
    rows = [replace(m, flops=float("nan"), tokens=float("nan")) for m in world.models[:17]]
    (study.root / "models.csv").unlink()
    study.add_models([*rows, *world.models[17:]])
    ran = cli("fit", study.root, "--method", "compute")
    assert ran.code == 1
    assert "3 training models have all that compute reads, a fit needs at least 4" in ran.err


def test_a_study_cut_down_by_select_starts_with_fresh_fits(study, cli, tmp_path):
    assert cli("select", study.root, "--budget", "6", "--no-check", "-o", tmp_path / "small").code == 0
    assert [changed_inputs(Study.open(tmp_path / "small"), f) for f in stored_fits(Study.open(tmp_path / "small"))] == [
        [],
        [],
    ]
