"""Studies that nothing can be learned from: they are refused or the forecast says so."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import benchcast as bc
from benchcast.errors import NotEnoughDataError
from benchcast.forecasts.intervals import distance, locate, score_distribution
from benchcast.records import ModelInfo, Score, Task
from benchcast.study.study import Study
from benchcast.study.tables import SCORE_COLUMNS, as_csv


@pytest.fixture
def all_equal(study, world) -> Study:
    """Every model has the same losses."""
    same = [replace(world.losses[0], model=x.model) for x in world.losses]
    study.add_losses(same, force=True)
    return study


@pytest.mark.parametrize("method", ["all-token", "label-token", "salience", "ridge"])
def test_equal_losses_are_refused_or_give_a_constant(all_equal, world, method):
    """A model that is 1% better was forecast 1.000, without a remark."""
    try:
        fit = bc.fit(all_equal, "task0", method=method)
    except NotEnoughDataError as error:
        assert "all training models have the same losses" in str(error)  # noqa: PT017
        return
    better = fit.predict(replace(world.losses[0], model="better", nats=world.losses[0].nats * 0.99))
    scores = [s.accuracy for s in all_equal.scores() if s.task == "task0"]
    assert "no law" in better.remark or min(scores) <= better.accuracy <= max(scores)


def test_equal_losses_make_fit_fail_with_one_line(all_equal, cli):
    ran = cli("fit", all_equal.root)
    assert ran.code == 1
    assert "all training models have the same losses for stack; there is nothing to learn from" in ran.err
    assert "no law (all capabilities are equal)" in cli("fit", all_equal.root, "--method", "all-token").out


@pytest.mark.parametrize("loss", [1.0, 2.7])
@pytest.mark.parametrize("method", ["stack", "salience", "pls"])
def test_equal_losses_of_a_table_are_refused_whatever_they_are(tmp_path, method, loss):
    """Losses of 1 left all weights 0, and gave a constant whose interval was the same for a model of half the loss."""
    rows = "".join(f"m{i},{loss},{loss}\n" for i in range(12))
    (tmp_path / "losses.csv").write_text(f"model,a,b\n{rows}")
    study = bc.datasets.create_table_study(tmp_path / "study", tmp_path / "losses.csv").add_tasks([Task("task", 0.0)])
    study.add_scores([Score(f"m{i}", "task", 0.3 + 0.04 * i) for i in range(12)])
    with pytest.raises(NotEnoughDataError, match=f"task: all training models have the same losses for {method};"):
        bc.fit(study, "task", method=method)


def test_a_comparison_on_equal_losses_has_no_forecasts_and_says_why(all_equal, cli):
    """Forecasts were the same for all models, 0 or 1 or in between, and had measured errors."""
    comparison = bc.compare(all_equal, methods=["stack", "salience", "all-token", "pls", "constant"], split="size")
    for task in comparison.tasks:
        for method in ("stack", "salience", "all-token", "pls"):
            held = comparison.held_out[task, method]
            assert np.isnan([held.forecast, held.low, held.high]).all()
            why = f"all training models have the same losses for {method}; there is nothing to learn from"
            assert comparison.remark(task, method) == f"no forecast of 5 of 5 held-out models: {why}"
            cell = comparison.as_json()["tasks"][task][method]
            assert (cell["mse"], cell["remark"]) == (None, comparison.remark(task, method))
        assert np.ptp(comparison.held_out[task, "constant"].forecast) == 0
    ran = cli("compare", all_equal.root, "--method", "stack", "--method", "constant", "--split", "size")
    assert ran.code == 0
    line = "not compared: stack: no forecast of 5 of 5 held-out models: all training models have the same losses"
    assert line in " ".join(ran.out.split())
    assert "constant on" not in ran.out


def test_the_report_of_equal_losses_shows_what_is_left(all_equal, cli, tmp_path):
    assert cli("report", all_equal.root, "-o", tmp_path / "report.html").code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1), parse_constant=pytest.fail)
    assert data["methods"][:2] == ["stack", "salience"]


def test_a_capability_outside_a_range_of_one_point_is_an_extrapolation(study, world):
    fit = bc.fit(study, "task0", method="all-token")
    at = fit.predict(world.losses[0]).capability
    point = replace(fit, task_fit=replace(fit.task_fit, range=(at, at)), about={**fit.about, "train": []})
    assert distance(point.task_fit, [at, at * 0.99]).tolist() == [0.0, np.inf]
    assert [
        float(x[0])
        for x in score_distribution(point.task_fit, [0.9], locate(point.task_fit, [at * 0.99])).interval(0.9)
    ] == [0.0, 1.0]
    other = point.predict(replace(world.losses[0], nats=world.losses[0].nats * 0.99))
    assert other.remark.startswith("extrapolation: all training models have the same capability")
    assert (other.low, other.high) == (0.0, 1.0)
    assert "extrapolation" not in point.predict(world.losses[0]).remark


def test_a_task_whose_score_falls_is_explained_without_nan(study, cli):
    rows = [Score(s.model, s.task, 1 - s.accuracy, s.n_items) for s in study.scores()]
    (study.root / "scores.csv").write_text(as_csv(SCORE_COLUMNS, rows), encoding="utf-8")
    signed = cli("explain", study.root, "--task", "task1")
    assert (signed.code, "nan" in signed.out.lower()) == (0, False)
    assert cli("fit", study.root, "--task", "task1", "--method", "salience").code == 0
    ran = cli("explain", study.root, "--task", "task1")
    assert ran.code == 0
    assert "nan" not in ran.out.lower()
    assert "no token has any weight: the score does not rise as losses fall" in ran.out


def test_a_fit_without_any_weight_says_that_it_is_a_constant(study, world):
    fit = bc.fit(study, "task0", method="all-token")
    loss = fit.task_fit.capability
    nothing = replace(loss, weights=np.zeros_like(loss.weights))
    empty = replace(fit, task_fit=replace(fit.task_fit, capability=nothing), about={**fit.about, "train": []})
    assert empty.predict(world.losses[0]).remark.startswith("constant: ")


def test_a_model_just_outside_the_range_is_not_said_to_be_outside_by_nothing(study, world):
    fit = bc.fit(study, "task0", method="all-token")
    at = fit.predict(world.losses[0]).capability
    just = replace(fit, task_fit=replace(fit.task_fit, range=(at * 1.0001, at * 2)), about={**fit.about, "train": []})
    assert "by less than 1% of their range" in just.predict(world.losses[0]).remark


def test_scores_at_chance_are_not_taken_for_equal_losses(table_of_chance, cli):
    """An average of level laws had weights of 1e-19, and `compare` said that all models had the same losses."""
    comparison = bc.compare(table_of_chance, methods=["stack", "compute", "constant"], split="family")
    assert not comparison.remark("guessed", "stack").startswith("no forecast")
    assert comparison.measures("guessed", "stack")["mse"] < 1e-3
    absent = "no forecast of 18 of 18 held-out models: no training model has its FLOPs in models.csv"
    assert comparison.remark("guessed", "compute") == absent  # it said that all training models had the same inputs


def test_a_model_of_low_loss_that_is_called_weaker_is_said_to_have_a_low_loss(table_of_chance):
    """Scores rise with the loss: the interval was for a stronger model, and the remark called the model weaker."""
    rising = [replace(s, accuracy=0.8 - 0.03 * i) for i, s in enumerate(table_of_chance.scores())]
    table_of_chance.add_scores(rising, force=True)
    fit, losses = bc.fit(table_of_chance, "guessed", method="all-token"), table_of_chance.losses("m17")
    found = fit.predict(replace(losses, model="new", nats=losses.nats * 0.8))
    assert found.question == "stronger model"
    assert re.fullmatch(r"extrapolation: weaker than .* of their range, although its mean loss is lower", found.remark)


def test_weights_of_rounding_error_give_a_constant_that_says_so(table_of_chance):
    """The weights were 1e-14, and a model was said to be stronger than all others by 49% of their range."""
    rising = [replace(s, accuracy=0.4 - 0.001 * i) for i, s in enumerate(table_of_chance.scores())]
    table_of_chance.add_scores(rising, force=True)  # with the loss, which no weight above zero can express
    fit, losses = bc.fit(table_of_chance, "guessed", method="salience"), table_of_chance.losses("m17")
    found = fit.predict(replace(losses, model="new", nats=losses.nats * 0.8))
    assert found.remark == "constant: the training losses say nothing about this task, so no token has weight"
    assert found.low < found.accuracy < found.high


@pytest.fixture
def table_of_chance(tmp_path) -> Study:
    """Losses differ, scores are noise around chance."""
    rng, skill = np.random.default_rng(0), np.linspace(0, 1, 18)
    names, families = [f"m{i}" for i in range(18)], [f"f{i % 6}" for i in range(18)]
    shift = rng.normal(0, 0.05, (6, 6))
    rows = [3 - 1.5 * s * np.linspace(0.6, 1.2, 6) + shift[i % 6] + rng.normal(0, 0.02, 6) for i, s in enumerate(skill)]
    guesses = 0.25 + np.random.default_rng(3).normal(0, 0.005, 18)
    lines = [f"{name},{','.join(f'{x:.5f}' for x in row)}" for name, row in zip(names, rows, strict=True)]
    (tmp_path / "losses.csv").write_text("\n".join(["model,a,b,c,d,e,f", *lines]))
    study = bc.datasets.create_table_study(tmp_path / "study", tmp_path / "losses.csv")
    study = study.add_tasks([Task("guessed", 0.25)])
    study.add_models([ModelInfo(*pair) for pair in zip(names, families, strict=True)])
    study.add_scores([Score(name, "guessed", float(x)) for name, x in zip(names, guesses, strict=True)])
    return study
