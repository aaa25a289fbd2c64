"""`predict`, `report`, `watch` and `explain` use the same fit for a model without a score."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchcast.collection.backends.base import ModelSettings
from benchcast.evaluation.compare import compare
from benchcast.records import ModelInfo, Score, TokenLosses
from benchcast.reports.heat import STEPS
from benchcast.reports.report import report_data
from benchcast.study.study import Study
from benchcast.training.watch import Watch, WatchedRun

METHOD = "stack"


def write_jsonl(path: Path, losses: TokenLosses, study: Study) -> None:
    path.parent.mkdir()
    ends = np.cumsum(losses.counts)
    parts = zip(losses.text_bounds(study.texts.starts), ends - losses.counts, ends, study.texts, strict=True)
    rows = [{"text_id": t.id, "bounds": b.tolist(), "nats": losses.nats[i:j].tolist()} for b, i, j, t in parts]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


@pytest.fixture
def with_new(study, world) -> Study:
    """The synthetic study and a model of a family of its own that has no score."""
    study.add_losses([replace(world.losses[7], model="new", nats=world.losses[7].nats * 0.97)])
    study.add_models([ModelInfo("new", family="unheard of", params=8e6, tokens=1e9)])
    return study


@pytest.mark.parametrize(("fitted_by", "compared_by"), [(None, "family"), (None, "size"), ("size", "family")])
def test_a_new_model_gets_one_forecast_everywhere(with_new, world, cli, tmp_path, fitted_by, compared_by):
    study = with_new
    assert cli("fit", study.root, *(["--split", fitted_by] if fitted_by else [])).code == 0
    page = report_data(study, compare(study, split=compared_by, methods=(METHOD, "all-token", "compute")))
    said = json.loads(cli("predict", study.root, "--model", "new", "--json").out)
    write_jsonl(tmp_path / "run" / "new.jsonl", study.losses("new"), study)
    (seen,) = Watch(study, WatchedRun(None, tmp_path / "run", "run", "unheard of", ModelSettings({}))).look()
    i = page["models"]["model"].index("new")
    for t, (predicted, watched) in enumerate(zip(said, seen.forecasts, strict=True)):
        shown = page["tasks"][t]["forecasts"][METHOD]
        assert page["tasks"][t]["laws"][METHOD]["points"][i] is None, "the first fold's fit forecasts no new model"
        for key, name in (("accuracy", "forecast"), ("low", "low"), ("high", "high")):
            assert shown[name][i] == pytest.approx(predicted[key], rel=1e-4)
            assert getattr(watched, key) == pytest.approx(predicted[key], rel=1e-6)
    explained = json.loads(cli("explain", study.root, "--task", "task0", "--text", "source0-0", "--json").out)
    heat = page["heat"]
    packed = np.frombuffer(base64.b64decode(heat["salience"][0]), "<i2") / STEPS * np.log1p(heat["reach"][0])
    saliences = [token["salience"] for token in explained["text"]["tokens"]]
    assert (np.sign(packed) * np.expm1(np.abs(packed)))[: len(saliences)] == pytest.approx(
        saliences, rel=1e-3, abs=1e-3
    )


def test_the_page_says_of_a_new_model_what_predict_says(with_new, world, cli):
    """The page knew of capabilities beyond the range only, and said that every interval came from left-out families."""
    study = with_new
    strong = replace(world.losses[7], model="strong", nats=world.losses[7].nats * 0.3)
    odd = world.losses[7].nats * np.repeat(np.arange(len(study.texts)) % 2 + 0.5, world.losses[7].counts)
    study.add_losses([strong, replace(world.losses[7], model="odd", nats=odd)])
    assert cli("fit", study.root, "--method", "all-token").code == 0
    page = report_data(study, compare(study, split="family", methods=("all-token",)))
    said = {m: json.loads(cli("predict", study.root, "--model", m, "--json").out)[0] for m in ("strong", "odd")}
    shown = page["tasks"][0]["forecasts"]["all-token"]
    for model, predicted in said.items():
        i = page["models"]["model"].index(model)
        assert shown["cautions"][i] == predicted["remark"]
        assert (i in shown["stronger"]) == (predicted["question"] == "stronger model")
    assert said["strong"]["question"] == "stronger model"
    assert said["odd"]["remark"].startswith("unlike any training model")


@pytest.mark.parametrize("by_members", [False, True])
def test_a_new_model_gets_one_forecast_of_an_aggregate_everywhere(with_new, cli, tmp_path, by_members):
    toml = with_new.root / "study.toml"
    lines = '[tasks.both]\nmembers = ["task0", "task1"]\n'
    toml.write_text(f"{toml.read_text(encoding='utf-8')}\n{lines}", encoding="utf-8")
    study = Study.open(with_new.root)
    if by_members:  # scores of the aggregate itself that are off make its own fit the worse way
        derived = [s for s in study.scores() if s.task == "both"]
        study.add_scores([replace(s, accuracy=0.2 + 0.6 * (i % 2)) for i, s in enumerate(derived)])
    assert cli("fit", study.root, "--method", METHOD).code == 0
    page = report_data(study, compare(study, split="family", methods=(METHOD,)))
    said = json.loads(cli("predict", study.root, "--model", "new", "--task", "both", "--json").out)[0]
    write_jsonl(tmp_path / "run" / "new.jsonl", study.losses("new"), study)
    (seen,) = Watch(study, WatchedRun(None, tmp_path / "run", "run", "unheard of", ModelSettings({}))).look()
    shown = {name: page["tasks"][2]["forecasts"][METHOD][name][-1] for name in ("forecast", "low", "high")}
    watched = {f.task: f for f in seen.forecasts}["both"]
    assert (said["capability"] is None) == by_members
    assert [*shown.values()] == pytest.approx([said["accuracy"], said["low"], said["high"]], rel=1e-4)
    assert [watched.accuracy, watched.low, watched.high] == pytest.approx([*shown.values()], rel=1e-4)


def test_methods_that_are_not_stored_forecast_a_new_model_from_the_same_models(with_new, cli):
    assert cli("fit", with_new.root).code == 0
    page = report_data(with_new, compare(with_new, split="family", methods=(METHOD, "all-token")))
    assert cli("fit", with_new.root, "--method", "all-token").code == 0
    said = json.loads(cli("predict", with_new.root, "--model", "new", "--json").out)
    i = page["models"]["model"].index("new")
    shown = [task["forecasts"]["all-token"]["forecast"][i] for task in page["tasks"]]
    assert shown == pytest.approx([f["accuracy"] for f in said], rel=1e-4)


def test_a_model_with_a_score_on_one_task_is_new_for_the_other(with_new, cli):
    with_new.add_scores([Score("new", "task0", 0.5)])
    assert cli("fit", with_new.root, "--method", "all-token").code == 0
    page = report_data(with_new, compare(with_new, split="family", methods=("all-token",)))
    said = json.loads(cli("predict", with_new.root, "--model", "new", "--json").out)
    i = page["models"]["model"].index("new")
    held_out, new = (task["forecasts"]["all-token"]["forecast"][i] for task in page["tasks"])
    assert new == pytest.approx(said[1]["accuracy"], rel=1e-4)
    assert held_out != pytest.approx(said[0]["accuracy"], rel=1e-4), "its own score was not learned from"


def test_flops_that_the_study_knows_reach_predict_and_watch(with_new, cli, tmp_path):
    assert cli("fit", with_new.root, "--method", "compute").code == 0
    write_jsonl(tmp_path / "run" / "new.jsonl", with_new.losses("new"), with_new)
    (seen,) = Watch(with_new, WatchedRun(None, tmp_path / "run", "run", "unheard of", ModelSettings({}))).look()
    said = json.loads(cli("predict", with_new.root, "--model", "new", "--json").out)
    assert [f["accuracy"] for f in said] == [pytest.approx(f.accuracy) for f in seen.forecasts]
    assert np.log10(6 * 8e6 * 1e9) == pytest.approx(said[0]["capability"])


def test_watch_tells_at_its_start_of_fits_that_are_stale(with_new, cli, tmp_path):
    assert cli("fit", with_new.root, "--method", "all-token").code == 0
    with_new.add_scores([Score("new", "task1", 0.5)])
    (tmp_path / "run").mkdir()
    ran = cli("watch", with_new.root, "--losses", tmp_path / "run", "--once")
    assert ran.code == 0
    assert "warning: the study has changed since these fits were made: task1: fitted on 20 of now 21 models" in ran.err
