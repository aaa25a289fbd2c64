"""Forecasts of many models as tables, the level of their intervals, and nulls with reasons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

import benchcast as bc
from benchcast import records
from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.errors import InputError, MissingExtraError
from benchcast.forecasts.fit import fit_tasks, store_fits
from benchcast.forecasts.intervals import Position, score_distribution
from benchcast.forecasts.predict import predict
from benchcast.methods.interval_width import angle
from benchcast.methods.task_fit import OutOfFoldErrors

COLUMNS = [
    "model",
    "task",
    "accuracy",
    "low",
    "high",
    "level",
    "observed",
    "capability",
    "question",
    "relation",
    "remark",
]


@pytest.fixture(scope="module")
def fit(synthetic_folder: Path) -> bc.Fit:
    return bc.fit(synthetic_folder, "task0", method="all-token", split="size")


@pytest.fixture
def with_holes(study, world):
    """The synthetic study with one more model, which lacks losses on five tokens."""
    holes = world.losses[0].nats.copy()
    holes[:5] = np.nan
    study.add_losses([replace(world.losses[0], model="holes", nats=holes)])
    return study


def test_many_models_are_forecast_as_each_of_them_is(fit, synthetic_folder):
    study = bc.Study.open(synthetic_folder)
    names = study.models_with_losses()
    assert list(fit.predict(synthetic_folder)) == [fit.predict(study.losses(name)) for name in names]
    assert [row.model for row in fit.predict(study, models=["family1-*"])] == [
        name for name in names if name.startswith("family1-")
    ]
    with pytest.raises(InputError, match="no losses of model 'nobody'"):
        fit.predict(study, models=["nobody"])


def test_tables_hold_the_forecasts(fit, synthetic_folder):
    forecasts = fit.predict(synthetic_folder)
    frame = forecasts.to_pandas()
    assert list(frame.columns) == forecasts.to_arrow().column_names == COLUMNS
    assert frame["accuracy"].tolist() == [row.accuracy for row in forecasts]
    assert frame["remark"].tolist() == forecasts.to_arrow()["remark"].to_pylist()
    assert repr(forecasts) == "<Forecasts of 20 models on task0>"
    assert (len(forecasts), forecasts[0].task) == (20, "task0")


def test_a_model_that_cannot_be_forecast_is_null_with_the_reason(fit, with_holes):
    row = fit.predict(with_holes, models=["holes"]).to_arrow().to_pylist()[0]
    assert [row[k] for k in ("accuracy", "low", "high")] == [None, None, None]
    assert "has no loss on" in row["remark"]


def test_stored_fits_forecast_all_models_in_order(with_holes):
    store_fits(with_holes, fit_tasks(with_holes, method="all-token"))
    forecasts = predict(with_holes, ["family1-*", "holes", "family0-*"])
    assert [row.model for row in forecasts][7:11] == [forecasts[7].model, "holes", "holes", forecasts[10].model]
    assert list(forecasts.failed) == ["holes"]
    assert all(row.remark for row in forecasts if np.isnan(row.accuracy))


def test_no_interval_has_a_reason(fit, synthetic_folder, world):
    errors = fit.task_fit.out_of_fold
    few = OutOfFoldErrors(errors.errors[:1], errors.families[:1], errors.kind)
    lonely = replace(fit, task_fit=replace(fit.task_fit, out_of_fold=few))
    forecast = lonely.predict(world.losses[-1])
    assert np.isnan(forecast.low)
    assert "no interval: " in forecast.remark


def test_a_lower_level_gives_narrower_intervals_by_students_t(fit, world):
    groups = len(np.unique(fit.task_fit.out_of_fold.families))
    accuracy = np.array([0.5])
    position = Position(accuracy, accuracy > 1, accuracy > 1)
    distribution = score_distribution(fit.task_fit, accuracy, position)
    wide, narrow = (angle(distribution.interval(level)[1]) - angle(accuracy) for level in (0.9, 0.5))
    assert narrow / wide == pytest.approx(student.ppf(0.75, groups - 1) / student.ppf(0.95, groups - 1))
    default, lower = fit.predict(world.losses[2]), fit.predict(world.losses[2], level=0.5)
    assert default.low < lower.low < lower.accuracy < lower.high < default.high
    assert (default.level, lower.level) == (DEFAULT_LEVEL, 0.5)
    assert default.accuracy == lower.accuracy


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, float("nan")])
def test_a_level_is_a_share(fit, world, level):
    with pytest.raises(InputError, match="a share between 0 and 1 is needed"):
        fit.predict(world.losses[0], level=level)


def test_the_command_line_takes_the_level_and_shows_it(study, cli, tmp_path, world):
    store_fits(study, fit_tasks(study, ["task0"], method="all-token"))
    name = world.models[2].model
    ran = cli("predict", study.root, "--model", name, "--level", "0.8", "--register", tmp_path / "said.json")
    assert "80% interval" in ran.out
    assert json.loads((tmp_path / "said.json").read_text(encoding="utf-8"))["level"] == 0.8
    row = json.loads(cli("predict", study.root, "--model", name, "--level", "0.8", "--json").out)[0]
    assert row == {
        **row,
        "level": 0.8,
        "low": bc.load(study.fit_folder("task0")).predict(study.losses(name), level=0.8).low,
    }
    assert "80% interval" in cli("verify", tmp_path / "said.json", "--scores", study.root).out
    assert cli("predict", study.root, "--model", name, "--level", "1").code == 1


def test_the_level_is_written_once():
    root = Path(bc.__file__).parent
    pages = [p for p in root.rglob("*") if p.suffix in (".py", ".js", ".html") and p.name != "choices.py"]
    assert [p.name for p in pages if level_text() in p.read_text(encoding="utf-8")] == []


def test_pandas_is_asked_for_by_name_where_it_is_missing(fit, synthetic_folder, monkeypatch):
    monkeypatch.setattr(records, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        fit.predict(synthetic_folder).to_pandas()
