"""Training runs in the order of their forecasts at equal compute."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from benchcast.decisions.compare_runs import (
    DifferenceUncertainty,
    TrainingRun,
    _variance,
    at_compute,
    comparison_points,
    errors_by_model,
    find_run,
    leverage,
    likely_order,
    probability_above,
)
from benchcast.scaling.extrapolate import read_study_models
from benchcast.scaling.family_law import ScalePoints
from lab.reproduce.order import pair_rows

FORECASTS = arrays.arrays(np.float64, (2, 3), elements=st.floats(0, 1))
VARIANCES = arrays.arrays(np.float64, (2, 3), elements=st.floats(1e-6, 0.1))
FREEDOM = st.integers(1, 12)


@given(FORECASTS, VARIANCES, FREEDOM)
def test_a_above_b_and_b_above_a_add_up_to_one(forecast, variance, freedom):
    p = probability_above(forecast, variance, freedom)
    assert p + p.swapaxes(1, 2) == pytest.approx(np.ones_like(p))
    ahead = forecast[:, :, None] > forecast[:, None, :]
    assert (p[ahead] >= 0.5).all()


@given(FORECASTS, VARIANCES, FREEDOM, st.permutations(range(3)))
def test_the_order_of_runs_changes_nothing(forecast, variance, freedom, shuffled):
    p = probability_above(forecast, variance, freedom)
    q = probability_above(forecast[:, shuffled], variance[:, shuffled], freedom)
    assert q == pytest.approx(p[:, shuffled][:, :, shuffled])
    if len(set(forecast[0])) == 3:
        again = likely_order(forecast[0][shuffled], variance[0][shuffled], freedom)
        assert again == likely_order(forecast[0], variance[0], freedom)


def test_a_whole_order_is_less_likely_than_each_pair_and_near_certain_when_far_apart():
    three, uncertainty = np.array([0.6, 0.5, 0.4]), np.full(3, 0.05**2 / 2)
    pairs = probability_above(three[None], uncertainty[None], 7)[0]
    assert 1 / 6 < likely_order(three, uncertainty, 7) < min(pairs[0, 1], pairs[1, 2])
    assert likely_order(np.array([0.9, 0.5, 0.1]), np.full(3, 1e-4), 7) > 0.99
    assert likely_order(np.full(3, 0.5), uncertainty, 7) == pytest.approx(1 / 6, abs=0.01)
    assert np.isnan(likely_order(three, np.full(3, np.nan), 7))


def test_a_larger_variance_brings_the_probability_of_an_order_nearer_to_one_half():
    said = [likely_order(np.array([0.6, 0.5]), np.full(2, s**2 / 2), 7) for s in (0.01, 0.1, 1.0)]
    assert said[0] > said[1] > said[2] > 0.5


def test_the_variance_is_least_where_scores_hardly_move():
    levers = leverage(np.array([[0.25, 0.625, 0.999]]), np.array([0.25]))[0]
    assert levers == pytest.approx([0, 1, 0], abs=0.01)
    variance = DifferenceUncertainty(np.array([1e-4]), np.array([1e-2]), 8).of_runs(levers[None])[0]
    assert variance[0] < variance[2] < variance[1]


def test_a_known_variance_is_found():
    rng = np.random.default_rng(0)
    levers = rng.uniform(0, 1, 4000)
    squares = (1e-4 + 1e-2 * levers) * rng.normal(size=4000) ** 2
    assert _variance(squares, levers, np.ones(4000)) == pytest.approx([1e-4, 1e-2], abs=8e-4)
    assert (_variance(squares[::-1], levers, np.ones(4000)) >= 0).all()


@pytest.mark.parametrize(("more", "shrink"), [({}, True), ({"learns_weights": False}, False)])
def test_differences_of_two_forecasts_have_the_stated_distribution(more, shrink):
    """Families err independently; with weights that are learned, the final fit errs less than those of the estimate."""
    rng, inside = np.random.default_rng(8), []
    for families in (4, 6):
        for _ in range(4000):
            errors = rng.normal(size=families)
            pairs = np.array([a - b for a, b in combinations(errors, 2)])
            base = np.array([np.mean(pairs**2)])
            uncertainty = DifferenceUncertainty(base=base, rise=np.zeros(1), families=families, **more)
            variance = uncertainty.of_runs(np.zeros((1, 2)))
            runs = rng.normal(size=(1, 2)) * np.sqrt(1 - 1 / families if shrink else 1)
            inside.append(0.05 <= probability_above(runs, variance, uncertainty.freedom)[0, 0, 1] <= 0.95)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.012)


def test_runs_meet_at_the_most_compute_that_all_have_reached():
    params = np.array([1e6, 1e6, 1.2e6, 1.2e6, 1e7, 1e7, 1e9])
    flops = np.array([1.0, 8.0, 2.0, 4.0, 20.0, 50.0, 30.0])
    points = ScalePoints(params, np.full(7, np.nan), flops)
    points_found = comparison_points(
        points, [TrainingRun("a", np.array([0, 1, 4, 5])), TrainingRun("b", np.array([2, 3, 6]))]
    )
    assert len(points_found) == 1, "1e7 and 1e9 are not alike"
    assert points_found[0].flops == 4.0
    assert at_compute(points, np.arange(7.0), points_found[0].rows[0], flops=4.0) == pytest.approx(2 / 3), (
        "in log compute"
    )
    alone = comparison_points(points, [TrainingRun("a", np.array([4, 5])), TrainingRun("b", np.array([6]))])
    assert [m.flops for m in alone] == [30.0], "single models meet whatever their sizes"
    assert comparison_points(points, [TrainingRun("a", np.array([0])), TrainingRun("b", np.array([3]))]) == [], (
        "they never had the same compute"
    )


def test_a_checkpoint_of_unknown_size_does_not_keep_the_others_from_meeting():
    points = ScalePoints(np.array([1e6, np.nan, 1e6, 1e7]), np.full(4, np.nan), np.array([2.0, 3.0, 2.0, 9.0]))
    points_found = comparison_points(points, [TrainingRun("a", np.array([0, 1])), TrainingRun("b", np.array([2, 3]))])
    assert [(m.params, m.flops) for m in points_found] == [(pytest.approx(1e6), 2.0)]
    assert comparison_points(points, [TrainingRun("a", np.array([1])), TrainingRun("b", np.array([2, 3]))]) == [], (
        "no size is known to be alike"
    )


def test_a_run_is_a_family_or_a_model_without_its_tokens(world):
    models = [m.model for m in world.models]
    families = np.array([m.family for m in world.models])
    assert len(find_run("family1", models, families).rows) == 16
    assert [models[i] for i in find_run("family1-4M", models, families).rows] == [
        "family1-4M@4B",
        "family1-4M@12B",
        "family1-4M@36B",
        "family1-4M@108B",
    ]


def test_out_of_fold_errors_belong_to_their_models(study):
    known = read_study_models(study, method="all-token")
    everyone = np.ones(len(known.models), bool)
    fits = known.fits(everyone)
    errors = errors_by_model(known, fits)
    in_family = known.families == "family2"
    without = known.fits(~in_family)
    expected = (
        without[0].forecast(known.nats[in_family], known.metadata.take(in_family))
        - known.dataset.accuracy[0][in_family]
    )
    assert errors[0][in_family] == pytest.approx(expected, abs=1e-6)


def test_the_command_orders_runs_without_their_scores(study, cli):
    ran = cli("compare", study.root, "--runs", "family0,family1,family2")
    assert (ran.code, ran.err) == (0, "")
    assert "at every size that they share" in ran.out
    first = json.loads(cli("compare", study.root, "--runs", "family0,family1", "--json").out)
    scores = study.scores()
    forged = [replace(s, accuracy=1 - s.accuracy) if s.model.startswith(("family0", "family1")) else s for s in scores]
    study.add_scores([replace(s, right_even=float("nan")) for s in forged], force=True)
    second = json.loads(cli("compare", study.root, "--runs", "family0,family1", "--json").out)
    for a, b in zip(first["sizes"], second["sizes"], strict=True):
        for task in a["tasks"]:
            assert a["tasks"][task]["forecast"] == b["tasks"][task]["forecast"]
            assert a["tasks"][task]["likely"] == b["tasks"][task]["likely"]
    above = first["sizes"][0]["tasks"]["task0"]["above"]
    assert above["family0"]["family1"] + above["family1"]["family0"] == pytest.approx(1)


def test_the_command_says_whether_scores_agree_and_settle_the_order(study, cli):
    printed = cli("compare", study.root, "--runs", "family0,family1").out
    result = json.loads(cli("compare", study.root, "--runs", "family0,family1", "--json").out)
    forecasts, scores = printed.split("\nscores of ")
    lasts = {line.partition("  ")[0]: line for line in reversed(forecasts.splitlines())}
    for task, said in result["sizes"][0]["tasks"].items():
        observed = said["observed"]
        agrees = sorted(observed, key=observed.get, reverse=True) == said["order"]
        assert lasts[task].split()[-1] == ("agrees" if agrees else "disagrees")
    settled = [d["settled"] for d in result["scores"]["differences"]]
    assert any(settled)
    assert scores.count("already settled") == sum(settled)


def test_other_names_change_nothing(study, cli):
    before = json.loads(cli("compare", study.root, "--runs", "family0,family1", "--json").out)
    study.add_models([replace(m, family=m.family.replace("family", "run-")) for m in study.models()])
    after = json.loads(cli("compare", study.root, "--runs", "run-0,run-1", "--json").out)
    for a, b in zip(before["sizes"], after["sizes"], strict=True):
        for task, said in a["tasks"].items():
            assert b["tasks"][task]["likely"] == pytest.approx(said["likely"], abs=1e-9)
            assert [name.replace("run-", "family") for name in b["tasks"][task]["order"]] == said["order"]


def test_single_models_are_runs_too(study, cli):
    comparison = json.loads(cli("compare", study.root, "--runs", "family0-16M,family1-64M", "--json").out)
    (met,) = comparison["sizes"]
    assert comparison["runs"] == ["family0-16M", "family1-64M"]
    assert met["params"] == pytest.approx((16e6 * 64e6) ** 0.5)
    assert met["flops"] == pytest.approx(6 * 16e6 * 216e9), "where the first of them ends"
    last = {s.task: s.accuracy for s in study.scores() if s.model == "family0-16M@216B"}
    for task, accuracy in last.items():
        said = met["tasks"][task]
        assert said["observed"]["family0-16M"] == pytest.approx(accuracy)
        assert said["order"] == sorted(said["forecast"], key=said["forecast"].get, reverse=True)
        first, second = said["order"]
        assert said["likely"] == said["above"][first][second] >= 0.5


@pytest.mark.parametrize(
    ("runs", "line"),
    [
        ("family0", "two or more different runs are needed"),
        ("family0,family0", "two or more different runs are needed"),
        (
            "family0,famly1",
            "unknown run 'famly1'; families are family0, family1, family2, family3; did you mean 'family1'?",
        ),
        ("family0,family0-4M", "one of them is part of another"),
        ("family0-1M,family1-64M", "they share no compute"),
    ],
)
def test_a_mistake_is_one_line(runs_folder, cli, runs, line):
    ran = cli("compare", runs_folder, "--runs", runs)
    assert ran.code == 1
    assert line in ran.err
    assert ran.err.count("\n") == 1


def test_runs_and_splits_do_not_go_together(runs_folder, cli):
    ran = cli("compare", runs_folder, "--runs", "family0,family1", "--split", "size")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: --runs goes with one --method at most, no --split and no --executor ray")


@pytest.mark.parametrize("more", [("--runs", "family0,family1"), ("--device", "cpu"), ("--executor", "ray")])
def test_jobs_are_refused_where_they_have_no_effect(runs_folder, cli, more):
    ran = cli("compare", runs_folder, "--jobs", "2", *more)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: --jobs does not go with --runs, --device or --executor ray")


def test_runs_need_one_weighted_loss(runs_folder, cli):
    ran = cli("compare", runs_folder, "--runs", "family0,family1", "--method", "stack")
    assert (ran.code, ran.out) == (1, "")
    assert "method 'stack' averages several weighted losses, a power law needs one" in ran.err


def test_what_was_said_is_held_against_scores(study):
    from benchcast.decisions.compare_runs import compare_runs

    comparison = compare_runs(study, ["family0", "family1"], method="all-token")
    rows = pair_rows(comparison)
    assert {r["task"] for r in rows} == {"task0", "task1", "mean of tasks"}
    said = {(r["params"], r["task"]): (r["said"], r["right"]) for r in rows}
    for ranking in comparison.rankings:
        for t, task in enumerate(comparison.tasks):
            first, second = (ranking.observed[t][i] for i in np.argsort(-ranking.forecast[t]))
            assert said[ranking.params, task] == (ranking.likely[t], 1.0 if first > second else 0.0)
            assert 0.5 <= ranking.likely[t] <= 1


def test_scores_are_compared_where_forecasts_cannot_be_made(runs_folder, cli):
    ran = cli("compare", runs_folder, "--runs", "family0,family1,family2,family3")
    assert ran.code == 0
    assert "no forecasts: without these runs fewer than 4 models with scores are left" in ran.err
    assert "second higher" in " ".join(ran.out.split())
