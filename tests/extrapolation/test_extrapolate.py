"""Power laws of compute, how far they may be trusted, and forecasts of models that do not exist yet."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchcast.errors import NotEnoughDataError
from benchcast.forecasts.intervals import ScoreDistribution, locate, score_distribution
from benchcast.losses.dataset import LossView
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.power_law import _slopes, _terms, fit_power_law
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Task
from benchcast.scaling.extrapolate import extrapolate
from benchcast.scaling.family_law import (
    FORMS,
    Drift,
    HoldoutErrors,
    ScalePoints,
    distances,
    estimate_drift,
    extrapolate_task,
    fit_family,
    hide_largest,
    hide_latest,
    mixture_quantile,
)
from lab.reproduce.extrapolation import World, coverage_of, make_family, make_study
from synthetic import Plan, make_world, write_study

GRID = ScalePoints(*(x.ravel() for x in np.meshgrid([1e6, 4e6, 1.6e7, 6.4e7], [1e9, 3e9, 9e9, 2.7e10])), np.empty(0))
GRID = replace(GRID, flops=6 * GRID.params * GRID.tokens)
FAR = ScalePoints(np.array([5e8]), np.array([1e11]), np.array([3e20]))


def chinchilla(points, floor=1.5, size=0.34, data=0.28):
    return np.log(floor + 400 * points.params**-size + 60 * points.tokens**-data)


def a_fit(slope=-4.0, middle=2.2, error=0.02):
    law = SigmoidLaw(slope, -slope * middle, 0.25)
    out_of_fold = OutOfFoldErrors(np.full(6, error) * [1, -1, 1, -1, 1, -1], np.array(list("abcdef")), "synthetic")
    return TaskFit(
        task=Task("t", 0.25),
        method="salience",
        capability=WeightedLoss(views=(LossView.NATS,), weights=np.ones((1, 1), np.float32), unit=1.0),
        law=law,
        out_of_fold=out_of_fold,
        range=(1.0, 4.0),
    )


def test_a_known_law_is_found_far_outside_its_points():
    law = fit_power_law(GRID.inputs(FORMS[0]), chinchilla(GRID))
    assert law.log_loss(FAR.inputs(FORMS[0])) == pytest.approx(chinchilla(FAR), abs=0.05)
    assert law.exponents == pytest.approx([0.34, 0.28], abs=0.1)


def test_slopes_agree_with_differences():
    rng = np.random.default_rng(0)
    p, z = rng.normal(size=5), rng.normal(size=(7, 2))

    def value(q):
        return np.logaddexp.reduce(_terms(q, z), axis=0)

    numeric = np.stack([(value(p + d) - value(p - d)) / 2e-6 for d in 1e-6 * np.eye(5)], axis=1)
    assert _slopes(p, z) == pytest.approx(numeric, abs=1e-6)


@settings(max_examples=25)
@given(
    st.lists(st.floats(0.3, 3.0), min_size=16, max_size=16),
    st.floats(1e5, 1e12),
    st.floats(1.0, 1e4),
    st.floats(1.0, 1e4),
)
def test_more_compute_never_lowers_a_forecast(losses, params, more_params, more_tokens):
    """Whatever the losses are, noise or not."""
    law = fit_family(GRID, np.log(losses))
    two = ScalePoints(np.array([params, params * more_params]), np.array([1e9, 1e9 * more_tokens]), np.empty(2))
    two = replace(two, flops=6 * two.params * two.tokens)
    forecast = a_fit().law.accuracy(np.exp(law.log_loss(two)))
    assert forecast[1] >= forecast[0] - 1e-12


def test_the_interval_widens_with_distance_and_with_drift():
    law, none, some = fit_family(GRID, chinchilla(GRID)), Drift(0.0, 0.0, 5), Drift(0.1, 0.2, 5)
    close, far = ScalePoints(np.array([1e8]), np.array([3e10]), np.array([1.8e19])), FAR
    widths = [
        float((x.high - x.low)[0])
        for x in (extrapolate_task(a_fit(), law, d, target=p) for d in (none, some) for p in (close, far))
    ]
    assert widths[0] < widths[2] < widths[3]
    assert widths[0] < widths[1]


def scores_at(fit: TaskFit, capability: np.ndarray) -> ScoreDistribution:
    """The distribution of the score at each of several capabilities."""
    return score_distribution(fit, fit.law.accuracy(capability), locate(fit, capability))


def test_with_certain_capability_the_interval_is_the_forecasts_own():
    fit = a_fit()
    ends = [float(mixture_quantile(scores_at(fit, np.full((1, 50), 2.2)), p)[0]) for p in (0.05, 0.95)]
    own = score_distribution(fit, 0.625, locate(fit, 2.2)).interval(0.9)
    assert ends == pytest.approx([float(end) for end in own], abs=1e-9)


def test_both_steps_widen_the_interval():
    certain, doubtful = np.full((1, 201), 2.2), 2.2 * np.exp(0.2 * np.linspace(-2, 2, 201))[None]
    width = [
        mixture_quantile(scores_at(f, c), 0.95)[0] - mixture_quantile(scores_at(f, c), 0.05)[0]
        for f, c in ((a_fit(), certain), (a_fit(), doubtful), (a_fit(error=0.06), doubtful))
    ]
    assert width[0] < width[1] < width[2]


def test_what_is_hidden_is_the_largest_size_and_the_last_checkpoint_of_each():
    assert set(GRID.params[hide_largest(GRID)]) == {6.4e7}
    gap = replace(GRID, params=np.full(16, np.nan), flops=np.where(np.arange(16) == 0, np.nan, GRID.flops))
    assert hide_largest(gap).tolist() == (GRID.flops == GRID.flops.max()).tolist(), "by compute where that is known"
    assert set(GRID.tokens[hide_latest(GRID)]) == {2.7e10}
    assert hide_latest(GRID).sum() == 4
    single = GRID.take(GRID.tokens == 1e9)
    assert not hide_latest(single).any(), "one checkpoint a size: there is no latest to hide"


def test_distance_is_measured_from_the_longest_run_of_the_nearest_size():
    known = GRID.take((GRID.params < 1e7) | (GRID.tokens < 1e10))
    target = ScalePoints(np.array([6.4e7, 1e6, 2.56e8]), np.array([2.7e10, 2.7e10, 9e9]), np.ones(3))
    expected = [[0, np.log(3)], [0, 0], [np.log(4), 0]]
    assert distances(known, target, FORMS[0]) == pytest.approx(np.array(expected))


def test_the_form_follows_the_points():
    assert fit_family(GRID, chinchilla(GRID)).form == FORMS[0]
    tied = ScalePoints(
        np.array([1e6, 4e6, 1.6e7, 6.4e7, 2.56e8]), np.full(5, 1e9), 6e9 * np.array([1e6, 4e6, 1.6e7, 6.4e7, 2.56e8])
    )
    assert fit_family(tied, chinchilla(tied)).form == FORMS[1], "all were trained on the same tokens"
    assert fit_family(tied.take(np.arange(5) < 3), chinchilla(tied)[:3]) is None


def test_a_model_of_unknown_size_does_not_spoil_the_form_of_the_others():
    gap = replace(GRID, params=np.where(np.arange(len(GRID)) == 3, np.nan, GRID.params))
    law = fit_family(gap, chinchilla(GRID))
    assert (law.form, len(law.points)) == (FORMS[0], len(GRID) - 1)
    nothing = replace(GRID, params=np.zeros(len(GRID)))
    assert fit_family(nothing, chinchilla(GRID)).form == FORMS[1]


def test_a_law_that_misses_drifts_and_a_true_one_does_not():
    rng = np.random.default_rng(1)
    true = [fit_family(GRID, chinchilla(GRID, f) + 0.02 * rng.normal(size=len(GRID))) for f in (1.0, 1.5, 2.0)]
    bent = chinchilla(GRID) - 0.6 * (GRID.params > 3e7)
    assert estimate_drift(true).size < 0.03
    assert estimate_drift([fit_family(GRID, bent)] * 3).size > 0.2


def test_a_true_drift_is_seldom_estimated_as_zero_and_its_size_is_right():
    """Five families of four hidden models, most of them near: an error is the law's own plus drift times distance."""
    rng, law, found = np.random.default_rng(2), fit_family(GRID, chinchilla(GRID)), []
    for _ in range(300):
        laws = []
        for _ in range(5):
            far = np.exp(rng.uniform(np.log(0.06), np.log(1.4), 4))
            error = 0.02 * rng.normal(size=4) + 0.03 * far * rng.normal()
            distance = np.column_stack([far, np.zeros(4)])
            holdout = {"largest": HoldoutErrors(error=error, spread=np.full(4, 0.02), distance=distance)}
            laws.append(replace(law, holdout=holdout))
        found.append(estimate_drift(laws).size)
    assert np.mean(np.array(found) == 0) < 0.05
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(0.03, abs=0.01)


def test_intervals_hold_in_synthetic_studies():
    """Where the laws are true, 90% intervals of both steps hold about nine times in ten."""
    rows = [row for seed in range(10) for row in coverage_of(make_study(World(seed=seed)))]
    inside = np.mean([r["inside"] for r in rows])
    assert 0.8 <= inside <= 1.0
    assert np.mean([r["width"] for r in rows]) < 0.35, "wide enough to hold anything proves nothing"


def test_a_synthetic_family_follows_its_law():
    points, log_loss, truth = make_family(np.random.default_rng(0), World(noise=0.0))
    assert log_loss == pytest.approx(truth(points))


def test_the_command_forecasts_checks_itself_and_draws(study, cli, tmp_path):
    plot = tmp_path / "ahead.html"
    ran = cli("extrapolate", study.root, "--family", "family1", "--to", "params=200M,tokens=1T", "--plot", plot)
    assert (ran.code, ran.err) == (0, "")
    assert "check: the largest models hidden" in ran.out
    assert "check: the latest checkpoints hidden" in ran.out
    assert "vega" in plot.read_text(encoding="utf-8").lower()


def test_json_says_the_same_under_other_names(study, cli):
    options = ["--to", "params=200M,tokens=0.5T", "--method", "all-token", "--json"]
    first = json.loads(cli("extrapolate", study.root, "--family", "family1", *options).out)
    assert set(first["tasks"]) == {"task0", "task1"}
    assert first["target"]["params"] == 2e8
    study.add_models([replace(m, family=m.family.replace("family", "zoo-")) for m in study.models()])
    again = json.loads(cli("extrapolate", study.root, "--family", "zoo-1", *options).out)
    for task, said in first["tasks"].items():
        assert again["tasks"][task]["accuracy"] == pytest.approx(said["accuracy"], abs=1e-6)
        assert again["tasks"][task]["low"] == pytest.approx(said["low"], abs=1e-6)
    for h in first["hidden"]:
        assert 0 <= h["low"] <= h["forecast"] <= h["high"] <= 1


def test_a_target_beyond_all_numbers_is_refused(study, cli):
    ran = cli("extrapolate", study.root, "--family", "family0", "--to", "params=1e308,tokens=1e308")
    assert ran.code == 1
    assert "compute is not a finite number" in ran.err


def test_a_target_far_outside_is_called_so(study, cli):
    ran = cli(
        "extrapolate", study.root, "--family", "family1", "--to", "params=700B,tokens=20T", "--method", "all-token"
    )
    assert ran.code == 0
    assert "far outside" in ran.out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--family", "famly1", "--to", "params=1B,tokens=1T"], "unknown family 'famly1'; models.csv has family0"),
        (["--family", "famly1", "--to", "params=1B,tokens=1T"], "did you mean 'family1'?"),
        (
            ["--family", "family1", "--to", "params=1B"],
            "the target has no tokens; give both params and tokens, or flops",
        ),
        (["--family", "family1", "--to", "tokens=1B"], "the target has no params"),
        (["--family", "family1", "--to", "params=big,tokens=1B"], "params 'big' is not a number"),
        (["--family", "family1", "--to", "params=-1,tokens=1B"], "params is negative"),
        (["--family", "family1", "--to", "params=0,tokens=1B"], "must be positive"),
        (
            ["--family", "family1", "--to", "parms=1,tokens=1B"],
            "unknown quantity 'parms'; known: params, tokens, flops, as in params=7B,tokens=2T; did you mean 'params'?",
        ),
        (["--family", "family1", "--to", "params=1,params=2"], "params needs one value"),
        (["--family", "family1", "--to", "params=1B,tokens=1T", "--task", "tsk0"], "did you mean 'task0'?"),
        (["--family", "family1", "--to", "params=1B,tokens=1T", "--method", "compute"], "does not read losses"),
        (["--family", "family1", "--to", "params=1B,tokens=1T", "--method", "magic"], "unknown method 'magic'"),
    ],
)
def test_a_mistake_is_one_line(runs_folder, cli, options, line):
    ran = cli("extrapolate", runs_folder, *options)
    assert ran.code == 1
    assert line in ran.err
    assert ran.err.count("\n") == 1


def test_a_family_with_too_few_points_is_told_what_it_lacks(study, cli):
    lone = [m for m in study.models() if m.family == "family1"]
    study.add_models([replace(m, family="lone") for m in lone[:3]])
    ran = cli("extrapolate", study.root, "--family", "lone", "--to", "params=1B,tokens=1T")
    assert ran.code == 1
    assert "family 'lone' has too few points for a power law: 3 models with losses, 3 with known compute" in ran.err


def test_a_family_in_training_needs_losses_only(study, cli):
    """Its points come from losses; scores of other families say what they mean."""
    names = [m.model for m in study.models() if m.family == "family2"]
    path = study.root / "scores.csv"
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if line.split(",")[0] not in names]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    options = ["--to", "params=200M,tokens=0.5T", "--method", "all-token", "--json"]
    ran = cli("extrapolate", study.root, "--family", "family2", *options)
    printed = json.loads(ran.out)
    assert 0 < printed["tasks"]["task0"]["accuracy"] < 1
    assert "family2" not in {h["family"] for h in printed["hidden"]}


def test_one_task_where_better_models_score_lower_does_not_stop_the_others(tmp_path):
    world = make_world(Plan(seed=3, families=5, sizes=4, checkpoints=1, tasks=2, texts_per_source=8))
    turned = tuple(replace(s, accuracy=1 - s.accuracy) if s.task == "task1" else s for s in world.scores)
    study = write_study(replace(world, scores=turned), tmp_path / "study")
    result = extrapolate(study, "family0", "params=1B,tokens=100B")
    assert [task.task for task in result.tasks] == ["task0"]
    said = [line for line in result.remarks if line.startswith("left out: task1: ")]
    assert len(said) == 1
    assert "no positive capability" in said[0]
    assert "use --method salience" not in said[0], "the method in use is no remedy"
    with pytest.raises(NotEnoughDataError, match=r"task1: .*do better models score lower"):
        extrapolate(study, "family0", "params=1B,tokens=100B", tasks=["task1"])


def test_a_task_without_enough_scores_gets_a_line(tmp_path):
    world = make_world(Plan(seed=3, families=5, sizes=4, checkpoints=1, tasks=2, texts_per_source=8))
    few = {model.model for model in world.models[:2]}
    scores = tuple(s for s in world.scores if s.task == "task0" or s.model in few)
    study = write_study(replace(world, scores=scores), tmp_path / "study")
    result = extrapolate(study, "family0", "params=1B,tokens=100B")
    assert [task.task for task in result.tasks] == ["task0"]
    assert any(line.startswith("left out: task1: 2 training models have both") for line in result.remarks)
