"""Forecasts that are put down before the score is known."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from benchcast.forecasts.registration import losses_digest, read
from benchcast.study.atomic import content_digest as digest

MODEL = "family1-64M@432B"


@pytest.fixture(scope="session")
def fitted(runs_folder, tmp_path_factory, cli):
    """A study whose fits have not seen the largest models."""
    import shutil

    root = tmp_path_factory.mktemp("fitted") / "study"
    shutil.copytree(runs_folder, root)
    assert cli("fit", root, "--method", "all-token", "--split", "size").code == 0
    return root


@pytest.fixture
def registered(fitted, tmp_path, cli) -> Path:
    path = tmp_path / "forecast.json"
    assert cli("predict", fitted, "--model", MODEL, "--register", path).code == 0
    return path


def test_a_registered_forecast_is_the_forecast(fitted, registered, cli):
    registration = read(registered)
    said = json.loads(cli("predict", fitted, "--model", MODEL, "--json").out)
    assert [row["accuracy"] for row in registration["forecasts"]] == [row["accuracy"] for row in said]
    assert registration["model"] == MODEL
    written = datetime.fromisoformat(registration["registered"])
    assert abs((datetime.now(UTC) - written).total_seconds()) < 600


def test_what_it_rests_on_is_hashed(fitted, registered, world):
    from benchcast.forecasts.stored_fit import load

    registration = read(registered)
    losses = next(x for x in world.losses if x.model == MODEL)
    stored = replace(losses, nats=losses.nats.astype(np.float32).astype(np.float64))
    assert registration["losses_sha256"] == losses_digest(stored)
    assert registration["forecasts"][0]["fit_sha256"] == load(fitted / "fits" / "task0").digest
    changed = replace(stored, nats=stored.nats + np.eye(1, len(stored.nats))[0] * 1e-6)
    assert losses_digest(changed) != registration["losses_sha256"]


def test_the_hash_changes_with_any_value_and_not_with_white_space(registered, tmp_path):
    registration = json.loads(registered.read_text(encoding="utf-8"))
    assert digest(registration) == registration["sha256"]
    for key in set(registration) - {"sha256"}:
        assert digest({**registration, key: "other"}) != registration["sha256"], key
        assert digest({k: v for k, v in registration.items() if k != key}) != registration["sha256"], key
    dense = tmp_path / "dense.json"
    dense.write_text(json.dumps(dict(reversed(registration.items()))), encoding="utf-8")
    assert read(dense)["sha256"] == registration["sha256"]


def test_every_changed_digit_is_noticed(registered, fitted, cli):
    text = registered.read_text(encoding="utf-8")
    places = [i for i, c in enumerate(text) if c.isdigit()]
    for i in places[:: len(places) // 25]:
        changed = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        if json.loads(changed) == json.loads(text):  # a last digit beyond the precision of the number
            continue
        registered.write_text(changed, encoding="utf-8")
        ran = cli("verify", registered, "--scores", fitted)
        assert ran.code == 1, text[i - 20 : i + 5]
        assert ran.err.startswith(f"error: {registered}: ")
        assert ran.err.count("\n") == 1


def test_it_never_overwrites(fitted, registered, cli):
    before = registered.read_bytes()
    ran = cli("predict", fitted, "--model", MODEL, "--register", registered)
    assert ran.code == 1
    assert "never overwritten" in ran.err
    assert registered.read_bytes() == before
    assert [p.name for p in registered.parent.iterdir() if p.suffix == ".tmp"] == []


def test_verify_scores_it_by_study_and_by_file(fitted, registered, world, cli, tmp_path):
    by_study = json.loads(cli("verify", registered, "--scores", fitted, "--json").out)
    wide = tmp_path / "scores.csv"
    scores = {s.task: s.accuracy for s in world.scores if s.model == MODEL}
    wide.write_text(f"model,{','.join(scores)}\n{MODEL},{','.join(map(str, scores.values()))}\n", encoding="utf-8")
    by_file = json.loads(cli("verify", registered, "--scores", wide, "--unit", "fraction", "--json").out)
    assert by_file["forecasts"] == by_study["forecasts"]
    for row in by_study["forecasts"]:
        assert row["observed"] == pytest.approx(scores[row["task"]])
        assert row["inside"] == (row["low"] <= row["observed"] <= row["high"])
        assert row["error"] == pytest.approx(row["forecast"] - row["observed"])
    assert by_study["coverage"] == np.mean([r["inside"] for r in by_study["forecasts"]])
    assert by_study["mean_abs_error"] < by_study["mean_abs_error_of_constant"]
    shown = cli("verify", registered, "--scores", fitted).out
    assert f"unaltered: sha256 {by_study['sha256']}" in shown


def test_a_task_without_a_score_waits(fitted, registered, cli, tmp_path):
    some = tmp_path / "scores.csv"
    some.write_text(f"model,task,accuracy\n{MODEL},task1,0.5\n", encoding="utf-8")
    assert json.loads(cli("verify", registered, "--scores", some, "--json").out)["waiting"] == ["task0"]
    assert "no score yet: task0" in cli("verify", registered, "--scores", some).out


def test_a_forecast_from_a_fit_alone_is_registered_too(fitted, world, cli, tmp_path):
    from benchcast.study.study import Study

    losses = Study.open(fitted).losses_path(MODEL)
    path = tmp_path / "one.json"
    ran = cli("predict", "--fit", fitted / "fits" / "task1", "--losses", losses, "--register", path)
    assert ran.code == 0
    assert f"sha256 {read(path)['sha256']}" in ran.out
    checked = json.loads(cli("verify", path, "--scores", fitted, "--json").out)
    assert [row["task"] for row in checked["forecasts"]] == ["task1"]
    assert checked["sha256"] == read(path)["sha256"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "not a registered forecast (not JSON"),
        ("[1]", "not a registered forecast (`benchcast predict"),
        ('{"kind": "benchcast forecast"}', "not a registered forecast"),
        ('{"kind": "benchcast forecast", "sha256": "0"}', "altered since it was registered"),
        ('{"kind": "benchcast forecast", "sha256": "0", "level": NaN}', "not a registered forecast"),
        ('{"kind": "benchcast forecast", "sha256": "0", "model": "\\ud800"}', "not a registered forecast"),
    ],
)
def test_nonsense_is_refused_in_one_line(fitted, cli, tmp_path, content, line):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    ran = cli("verify", path, "--scores", fitted)
    assert ran.code == 1
    assert line in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"format": "1"}, "of format '1'"),
        ({"format": None}, "of format None"),
        ({"forecasts": []}, "a registered forecast are missing"),
        ({"forecasts": [{"task": "task0"}]}, "a registered forecast are missing"),
        ({"model": None}, "a registered forecast are missing"),
    ],
)
def test_a_right_hash_over_nonsense_is_refused_in_one_line(fitted, registered, cli, change, line):
    registration = {**json.loads(registered.read_text(encoding="utf-8")), **change}
    registered.write_text(json.dumps({**registration, "sha256": digest(registration)}), encoding="utf-8")
    ran = cli("verify", registered, "--scores", fitted)
    assert ran.code == 1
    assert line in ran.err
    assert ran.err.count("\n") == 1


def test_renames_of_a_study_are_refused(fitted, registered, cli):
    ran = cli("verify", registered, "--scores", fitted, "--rename", f"family1-64M@432C={MODEL}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "--rename goes with score files; `benchcast rename` changes the name of a model of a study" in ran.err


def test_scores_of_other_models_only(registered, cli, tmp_path):
    other = tmp_path / "scores.csv"
    other.write_text("model,task,accuracy\nfamily1-64M@432C,task1,0.5\n", encoding="utf-8")
    ran = cli("verify", registered, "--scores", other)
    assert ran.code == 1
    assert f"no score of {MODEL!r} on task0, task1 yet; there are scores of family1-64M@432C" in ran.err
    ran = cli("verify", registered, "--scores", other, "--rename", f"family1-64M@*={MODEL.partition('@')[0]}@*")
    assert ran.code == 1, "of another checkpoint"
    ran = cli("verify", registered, "--scores", other, "--rename", f"family1-64M@432C={MODEL}")
    assert ran.code == 0, ran.err
    assert "task1" in ran.out
    for forecast, scores, missing in (
        (registered, tmp_path / "none.csv", "none.csv"),
        (tmp_path / "none.json", other, "none.json"),
    ):
        ran = cli("verify", forecast, "--scores", scores)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert missing in ran.err
