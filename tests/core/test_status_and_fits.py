"""What a study says of itself, what a fit says of its forecasts, and that reading changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.evaluation.compare import compare
from benchcast.forecasts.status import status
from benchcast.records import ModelInfo, Score, Task, Text, TextSet, TokenLosses
from benchcast.study.study import Study
from benchcast.study.tables import SCORE_COLUMNS, as_csv
from synthetic import Plan, make_world


def test_status_names_models_that_lack_scores_or_losses(study, world):
    study.add_losses([replace(world.losses[0], model="unscored")])
    study.add_scores([Score("unread", "task0", 0.5)])
    problems = status(Study.open(study.root)).problems
    assert any("losses but no scores: unscored" in p for p in problems)
    assert any("scores but no losses: unread" in p for p in problems)


def test_status_names_tasks_without_texts_of_their_own(study):
    with (study.root / "study.toml").open("a") as settings:
        settings.write('\n[tasks.other]\nsources = ["elsewhere"]\n')
    problems = status(Study.open(study.root)).problems
    assert any("task other: no texts of source elsewhere" in p for p in problems)


def test_status_says_when_families_or_sizes_are_missing(study):
    (study.root / "models.csv").unlink()
    problems = status(Study.open(study.root)).problems
    assert any("no model has a family" in p for p in problems)
    assert any("no split column; a split by size needs a family of three sizes" in p for p in problems)


@pytest.mark.parametrize(
    ("families", "why"), [(True, "arc: 3 training models"), (False, "split 'size': no test models")]
)
def test_status_does_not_suggest_a_comparison_that_cannot_run(tmp_path, cli, families, why):
    """Five models can be fitted; without one of three families three are left, and one family cannot be held out."""
    models = ("oak-1B", "oak-7B", "ash-1B", "ash-7B", "elm-2B")
    rows = [f"{m},{1.3 - 0.1 * i}" for i, m in enumerate(models)]
    (tmp_path / "losses.csv").write_text("\n".join(["model,answers", *rows]))
    cli("init", tmp_path / "study", "--table", tmp_path / "losses.csv")
    study = Study.open(tmp_path / "study").add_tasks([Task("arc", 0.25, answers=("answers",))])
    study.add_scores([Score(m, "arc", 0.5 + 0.05 * i) for i, m in enumerate(models)])
    study.add_models([ModelInfo(m, m.partition("-")[0] if families else "oak") for m in models])
    state = status(study.root)
    assert [p for p in state.problems if p.startswith(f"`compare` and `report` hold out models and cannot run: {why}")]
    assert state.next_step == f"benchcast fit {study.root}"
    assert cli("compare", study.root).code == 1
    assert cli("fit", study.root).code == 0
    assert status(study.root).next_step == f"benchcast predict {study.root} --model NAME"


def test_a_sound_study_has_no_problems(study):
    assert status(study).problems == ()


def test_commands_that_only_read_change_no_file(study, cli, tree):
    cli("fit", study.root, "--method", "all-token")
    before = tree(study.root)
    name = study.models_with_losses()[0]
    for command in (
        ["status", study.root],
        ["compare", study.root, "--method", "all-token"],
        ["predict", study.root, "--model", name],
        ["predict", study.root, "--model", name, "--restrict"],
    ):
        assert cli(*command).code == 0
    assert tree(study.root) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_study_that_may_not_be_written_can_be_read(study, cli):
    commands = (["status", study.root], ["compare", study.root, "--method", "all-token", "--json"])
    before = [cli(*command) for command in commands]
    for path in [*study.root.rglob("*"), study.root]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert [cli(*command) for command in commands] == before
        assert {ran.code for ran in before} == {0}
    finally:
        for path in [study.root, *study.root.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_what_a_row_leaves_out_stays_and_what_it_says_replaces(study, world):
    name = world.models[0].model
    study.add_models([ModelInfo(name, split="test")])
    (now,) = study.infos([name])
    assert repr(now) == repr(replace(world.models[0], split="test"))
    study.add_models([ModelInfo(name, family="new", params=5.0)])
    (now,) = study.infos([name])
    assert (now.family, now.params, now.split) == ("new", 5.0, "test")


def test_compute_is_flops_or_six_times_params_times_tokens():
    assert ModelInfo("m", params=2.0, tokens=3.0).compute == 36.0
    assert ModelInfo("m", params=2.0, tokens=3.0, flops=7.0).compute == 7.0
    assert np.isnan(ModelInfo("m", params=2.0).compute)


# ---- forecasts


def scaled(losses: TokenLosses, factor: float) -> TokenLosses:
    return TokenLosses("new", losses.counts, losses.edges, losses.nats * factor)


def test_a_forecast_outside_the_training_models_says_so_and_widens(study, world):
    fit = bc.fit(study, "task0", method="all-token")
    order = np.argsort([x.nats.sum() for x in world.losses])
    strongest, weakest, middle = (world.losses[i] for i in (order[0], order[-1], order[10]))
    inside = fit.predict(scaled(middle, 1.0))
    stronger, weaker = fit.predict(scaled(strongest, 0.5)), fit.predict(scaled(weakest, 1.5))
    assert inside.remark == ""
    assert stronger.remark.startswith("extrapolation: stronger than every training model, by")
    assert weaker.remark.startswith("extrapolation: weaker than every training model, by")
    assert stronger.accuracy > inside.accuracy > weaker.accuracy
    assert weaker.high - weaker.low > 0


def test_a_forecast_of_a_model_that_was_learned_from_says_so(study, world, cli):
    study.add_scores([Score(world.models[0].model, "task0", 0.5)], force=True)
    tests = [m.model for m in world.models if m.params == 64e6]
    assert cli("fit", study.root, "--method", "all-token", "--split", "size").code == 0
    said = {
        m: [f["remark"] for f in json.loads(cli("predict", study.root, "--model", m, "--json").out)]
        for m in (world.models[0].model, tests[0])
    }
    assert all("seen: the fit was trained on this model's score" in r for r in said[world.models[0].model])
    assert not any("seen" in r for r in said[tests[0]])


def test_a_model_without_a_score_of_the_task_was_not_learned_from(study, world):
    name = world.models[0].model
    rows = [s for s in study.scores() if (s.model, s.task) != (name, "task0")]
    (study.root / "scores.csv").write_text(as_csv(SCORE_COLUMNS, rows), encoding="utf-8")
    one, other = bc.fit(study, "task0", method="all-token"), bc.fit(study, "task1", method="all-token")
    assert "seen" not in one.predict(world.losses[0]).remark
    assert "seen" in other.predict(world.losses[0]).remark


def test_a_model_without_flops_has_no_compute_forecast(study, world):
    fit = bc.fit(study, "task0", method="compute")
    forecast = fit.predict(world.losses[0])
    assert np.isnan(forecast.accuracy)
    assert forecast.remark == "no training FLOPs known"


def test_predict_gives_null_where_nothing_can_be_said(study, cli, world):
    study.add_losses([replace(world.losses[0], model="unknown size")])
    assert cli("fit", study.root, "--method", "compute").code == 0
    ran = cli("predict", study.root, "--model", "unknown size", "--json")
    (first, _) = json.loads(ran.out)
    assert (first["accuracy"], first["low"], first["high"]) == (None, None, None)
    assert "–" in cli("predict", study.root, "--model", "unknown size").out


def test_a_fit_says_where_it_comes_from(study, world):
    fit = bc.fit(study, "task1", method="all-token", split="size")
    assert fit.about["texts"] == study.texts.digest
    assert fit.about["benchcast"] == bc.__version__
    assert fit.about["split"] == "size"
    assert fit.about["scorer"] == "synthetic"
    assert set(fit.about["train"]) < {m.model for m in world.models}


def test_the_salience_of_a_fit_is_one_weight_a_reference_token(study, tmp_path):
    fit = bc.fit(study, "task0", method="salience")
    assert fit.salience.shape == (len(fit.edges) - 1,)
    assert (fit.salience >= 0).all()
    assert (bc.load(fit.save(tmp_path / "fit")).salience == fit.salience).all()


def test_restrict_keeps_the_test_models_of_a_stored_fit_unseen(study, cli, world):
    """A model that has all losses must be forecast the same with --restrict as without."""
    assert cli("fit", study.root, "--method", "all-token", "--split", "size").code == 0
    name = next(m.model for m in world.models if m.params == 64e6)
    plain = json.loads(cli("predict", study.root, "--model", name, "--json").out)
    restricted = json.loads(cli("predict", study.root, "--model", name, "--restrict", "--json").out)
    assert [f["accuracy"] for f in restricted] == pytest.approx([f["accuracy"] for f in plain], abs=1e-6)


# ---- the synthetic world


def test_the_same_plan_plants_the_same_world():
    plan = Plan(seed=7, families=2, sizes=2, checkpoints=1, tasks=1, texts_per_source=3)
    one, two, other = make_world(plan), make_world(plan), make_world(replace(plan, seed=8))
    assert one.texts == two.texts
    assert one.scores == two.scores
    assert all((a.nats == b.nats).all() for a, b in zip(one.losses, two.losses, strict=True))
    assert one.texts != other.texts


def test_synthetic_families_have_tokenizers_of_their_own_and_share_one_inside(world):
    by_family: dict[str, set[bytes]] = {}
    for info, losses in zip(world.models, world.losses, strict=True):
        by_family.setdefault(info.family, set()).add(losses.edges.tobytes())
    assert all(len(edges) == 1 for edges in by_family.values())
    assert len(set.union(*by_family.values())) == 5


# ---- the embedded study of real models


@pytest.fixture(scope="module")
def embedded() -> Study:
    return Study.open(Path(str(files("benchcast.datasets") / "zoo")))


def test_the_embedded_study_is_sound(embedded, tree):
    before = len(tree(embedded.root))
    report = status(embedded)
    assert report.models_with_losses >= 200
    assert {t.usable for t in report.tasks} == {report.models_with_losses}
    losses = embedded.losses(embedded.models_with_losses()[0])
    assert losses.edges[-1] == embedded.texts.starts[-1]
    assert len(tree(embedded.root)) == before


def test_real_models_of_unseen_families_are_forecast_better_than_by_their_mean(embedded):
    comparison = compare(embedded, ["facts", "arithmetic"], split="family", methods=("label-token", "constant"))
    for task in comparison.tasks:
        label, mean = (comparison.measures(task, m)["mse"] for m in ("label-token", "constant"))
        assert label < mean


def test_a_copy_of_a_study_is_that_study(study, tmp_path):
    """A study is a plain folder: no path inside it is absolute."""
    bc.fit(study, "task0", method="all-token").save(study.fit_folder("task0"))
    shutil.copytree(study.root, tmp_path / "elsewhere" / "copy")
    copy = Study.open(tmp_path / "elsewhere" / "copy")
    name = copy.models_with_losses()[0]
    there = bc.load(copy.fit_folder("task0")).predict(copy.losses(name))
    assert there == bc.load(study.fit_folder("task0")).predict(study.losses(name))
    for file in copy.root.rglob("*.json"):
        assert str(study.root) not in file.read_text()


# ---- what `status` prints


def test_status_fits_80_columns_and_keeps_commands_whole(tmp_path, cli):
    from rich.cells import cell_len

    long = "a-very-long-name-of-a-source-that-somebody-chose"
    bodies = ["word " * 60, "问：小华比小玲大，小东比小玲小，小美比小东小，谁最小？答：小美" * 4]
    texts = TextSet.of(Text(f"t{i}", s, b) for i, (s, b) in enumerate(zip((long, "zh"), bodies, strict=True)))
    study = Study.create(tmp_path / "s", texts, tasks=[Task(long, 1 / 3, (long, "absent")), Task("zh", 0.25, ("zh",))])
    for i in range(9):
        study.add_scores([Score(f"model-number-{i}-with-a-long-name", long, 0.1)])
    lines = cli("status", study.root).out.splitlines()
    assert all(cell_len(line) <= 80 for line in lines if "benchcast " not in line and str(tmp_path) not in line)
    assert f"next: benchcast collect {study.root} --model hf --model_args pretrained=…" in lines
    assert f"or: benchcast import losses {study.root} FILE…" in lines


def test_status_of_the_embedded_study_fits_80_columns(cli):
    from rich.cells import cell_len

    ran = cli("status", files("benchcast.datasets") / "zoo")
    assert [line for line in ran.out.splitlines() if cell_len(line) > 80 and "benchcast " not in line] == []
    assert "225 models with losses" in " ".join(ran.out.split())
    assert "look wrong" not in ran.out
