"""`benchcast gate`: the probability that a model reaches a score, as a verdict and an exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest

import benchcast as bc
from benchcast.errors import InputError
from benchcast.forecasts.needs import parse_needs
from benchcast.study.study import Study

MODEL = "family1-4M@4B"


@pytest.fixture(scope="module")
def fitted(runs_folder, tmp_path_factory):
    import shutil

    study = Study.open(shutil.copytree(runs_folder, tmp_path_factory.mktemp("gate") / "study"))
    bc.fit_tasks(study, method="salience", store=True)
    return study


@pytest.fixture(scope="module")
def model(fitted):
    return next(m for m in fitted.models_with_losses() if m.startswith("family1"))


def score_with(fitted, model, probability):
    """A score that the model's forecast of task0 reaches with about this probability."""
    forecast = bc.predict(fitted, [model], tasks=["task0"])[0]
    grid = np.linspace(0.001, 0.999, 999)
    return float(grid[np.argmin([abs(forecast.probability_above(x) - probability) for x in grid])])


@pytest.mark.parametrize(
    ("probability", "code", "verdict"), [(0.99, 0, "reached"), (0.01, 3, "missed"), (0.5, 4, "open")]
)
def test_the_exit_code_is_the_verdict(cli, fitted, model, probability, code, verdict):
    need = score_with(fitted, model, probability)
    ran = cli("gate", fitted.root, "--model", model, "--need", f"task0={need}")
    assert ran.code == code, ran.err
    assert ran.out.splitlines()[0] == f"{model}: {verdict}"
    document = json.loads(cli("gate", fitted.root, "--model", model, "--need", f"task0={need}", "--json").out)
    assert document["verdict"] == verdict


def test_one_missed_need_decides_and_one_open_need_leaves_it_open(cli, fitted, model):
    sure, missed, unsure = (score_with(fitted, model, p) for p in (0.99, 0.01, 0.5))
    both = cli("gate", fitted.root, "--model", model, "--need", f"task0={sure}", "--need", "task1=0.999999")
    assert both.code in (3, 4)
    found = bc.gate(fitted, model, {"task0": sure, "task1": 0.0001})
    assert (found.verdict, [need.task for need in found.needs]) == ("reached", ["task0", "task1"])
    assert bc.gate(fitted, model, {"task0": missed, "task1": 0.0001}).verdict == "missed"
    assert bc.gate(fitted, model, {"task0": unsure, "task1": 0.0001}).verdict == "open"


def test_the_probability_is_that_of_the_forecast_with_the_interval(fitted, model):
    forecast = bc.predict(fitted, [model], tasks=["task0"])[0]
    for end, probability in ((forecast.low, 0.95), (forecast.high, 0.05)):
        if 0.01 < end < 0.99:
            found = bc.gate(fitted, model, {"task0": end}).needs[0]
            assert found.probability == pytest.approx(probability, abs=0.01)
            assert (found.forecast, found.low, found.high) == (forecast.accuracy, forecast.low, forecast.high)


def test_a_surer_gate_is_open_longer(fitted, model):
    need = score_with(fitted, model, 0.93)
    assert bc.gate(fitted, model, {"task0": need}, sure=0.9).verdict == "reached"
    assert bc.gate(fitted, model, {"task0": need}, sure=0.99).verdict == "open"


def test_an_observed_score_is_shown_and_not_used(fitted, model, tmp_path):
    import shutil

    study = Study.open(shutil.copytree(fitted.root, tmp_path / "s"))
    before = bc.gate(study, model, {"task0": 0.5}).needs[0]
    known = next(s for s in study.scores() if (s.model, s.task) == (model, "task0"))
    assert before.observed == known.accuracy
    from dataclasses import replace

    study.add_scores([replace(known, accuracy=0.987)], force=True)
    after = bc.gate(study, model, {"task0": 0.5}).needs[0]
    assert (after.observed, after.probability) == (0.987, before.probability)


def test_at_a_compute_its_run_is_extrapolated(cli, fitted, model):
    flops = max(m.compute for m in fitted.models() if m.model.partition("@")[0] == model.partition("@")[0])
    now = bc.gate(fitted, model, {"task0": 0.5}).needs[0]
    later = [bc.gate(fitted, model, {"task0": 0.5}, at=k * flops).needs[0] for k in (2, 20)]
    assert now.forecast - 0.05 < later[0].forecast <= later[1].forecast + 1e-9
    assert all(0 <= need.low <= need.forecast <= need.high <= 1 for need in later)
    ran = cli("gate", fitted.root, "--model", model, "--need", "task0=0.5", "--at", f"{2 * flops:g}")
    assert ran.code in (0, 3, 4)
    assert "at 2 times the compute of the run's last checkpoint" in " ".join(ran.out.split())
    ran = cli("gate", fitted.root, "--model", model, "--need", "task0=0.5", "--at", "1")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "has already" in ran.err


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (("task0=62",), "62% is 0.62"),
        (("task0=0",), "no score above 0"),
        (("task0",), "a task and a score"),
        (("tsk0=0.5",), "did you mean 'task0'"),
        (("task0=0.5", "task0=0.6"), "task0 is given twice"),
    ],
)
def test_mistakes_are_one_line_and_exit_1(cli, fitted, model, needs, said):
    ran = cli("gate", fitted.root, "--model", model, *(x for need in needs for x in ("--need", need)))
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert said in ran.err


def test_an_unknown_model_and_a_study_without_fits_exit_1(cli, fitted, study):
    assert cli("gate", fitted.root, "--model", "nobody", "--need", "task0=0.5").code == 1
    ran = cli("gate", study.root, "--model", MODEL, "--need", "task0=0.5")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert cli("gate", fitted.root, "--model", "x").code == 1


def test_a_task_may_have_an_equals_sign():
    assert parse_needs(["gsm8k=5=0.3"]) == {"gsm8k=5": 0.3}


def test_a_need_of_a_running_training_is_refused_before_it_starts(fitted):
    from benchcast.training.watch import WatchedRun, watch

    with pytest.raises(InputError, match="need of 'mmlu'"):
        watch(fitted, WatchedRun(losses=fitted.root, needs={"mmlu": 0.5}), once=True)
