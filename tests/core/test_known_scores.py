"""Known scores on other benchmarks correct a forecast where errors go together, and only there."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import benchcast as bc
from benchcast.forecasts.forecast import Forecast
from benchcast.forecasts.known_scores import FEWEST_FAMILIES, LOSSES_ALONE, ScoreCorrection, correct
from benchcast.losses.dataset import LossView
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.interval_width import angle, from_angle
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Score, Task

TASKS = ("arc", "piqa", "sciq")


def fits_with(errors: np.ndarray, families: list[str]) -> list[TaskFit]:
    """Fits whose out-of-fold errors, accuracy minus forecast as angles, are the columns of `errors`."""
    observed = np.full(len(errors), 0.5)
    models = tuple(f"m{i}" for i in range(len(errors)))
    out = []
    for t, name in enumerate(TASKS):
        wrong = from_angle(angle(observed) - errors[:, t]) - observed
        held_out = OutOfFoldErrors(wrong, np.array(families), "left out", models, observed=observed)
        out.append(
            TaskFit(
                task=Task(name, 0.0, ()),
                method="stack",
                capability=WeightedLoss(views=(LossView.NATS,), weights=np.ones((1, 4), np.float32), unit=1.0),
                law=SigmoidLaw(-1.0, 0.0, 0.0),
                out_of_fold=held_out,
                range=(0.0, 1.0),
            )
        )
    return out


def shared_errors(families: int, *, common: float = 0.9, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Errors of four models of each family; `common` is the share of variance that the first two tasks share."""
    rng = np.random.default_rng(seed)
    joint, separate = rng.normal(size=(families * 4, 1)), rng.normal(size=(families * 4, 3))
    mixed = np.sqrt(common) * joint + np.sqrt(1 - common) * separate
    return 0.1 * np.column_stack([mixed[:, :2], separate[:, 2]]), [f"f{i // 4}" for i in range(families * 4)]


def of_one(accuracy: float = 0.5) -> list[Forecast]:
    return [Forecast(task, "new", accuracy, accuracy - 0.2, accuracy + 0.2, 1.0) for task in TASKS]


def test_a_score_above_its_forecast_raises_the_forecast_of_a_related_task_and_narrows_its_interval():
    correction = ScoreCorrection.of(fits_with(*shared_errors(12)))
    arc, piqa, sciq = correct(correction, of_one(), np.array([0.65, np.nan, np.nan]))
    assert 0.6 < piqa.accuracy < 0.65
    assert piqa.high - piqa.low < 0.3
    assert piqa.remark == "from losses and scores on arc"
    assert arc.accuracy == 0.5
    assert arc.remark == f"{LOSSES_ALONE}no score of this model on another task is known"
    assert sciq.accuracy == 0.5
    assert sciq.remark == f"{LOSSES_ALONE}no sure gain from scores on other tasks on left-out families"


def test_the_expected_error_is_the_conditional_mean_of_a_normal_distribution():
    covariance, others = np.array([[0.04, 0.03], [0.03, 0.09]]), ~np.eye(2, dtype=bool)
    correction = ScoreCorrection(TASKS[:2], covariance, np.array([0.5, 0.5]), np.zeros(2), others, 12)
    shift, factor = correction.expected(1, np.array([0.2, np.nan]))
    assert shift == pytest.approx(0.2 * 0.015 / 0.04)
    assert factor == pytest.approx(np.sqrt(1 - 0.015**2 / 0.04 / 0.09))


def test_a_score_that_cannot_be_true_widens_the_intervals_it_moves_and_is_named():
    """A failed evaluation moved all forecasts, and narrowed their intervals, without a remark."""
    correction = ScoreCorrection.of(fits_with(*shared_errors(12)))
    usual, wrong = (correct(correction, of_one(), np.array([a, np.nan, np.nan]))[1] for a in (0.6, 0.001))
    above_usual, above_wrong = (angle(f.high) - angle(f.accuracy) for f in (usual, wrong))
    assert above_wrong > 1.5 * above_usual
    assert wrong.remark == (
        "from losses and scores on arc; these scores are far from their forecasts, most of all on arc, "
        "so the interval is wider"
    )
    assert usual.remark == "from losses and scores on arc"


def test_errors_of_the_usual_size_do_not_widen_an_interval():
    errors, families = shared_errors(40)
    correction = ScoreCorrection.of(fits_with(errors, families))
    widths = [correction.widening(0, row / 0.1) for row in errors]
    assert np.mean(widths) < 1.05
    assert max(widths) < 1.5


def test_a_tasks_own_score_is_not_used():
    correction = ScoreCorrection.of(fits_with(*shared_errors(12)))
    without, with_own = (
        correct(correction, of_one(), np.array([0.65, score, np.nan]))[1].accuracy for score in (np.nan, 0.9)
    )
    assert without == with_own


def test_the_score_of_a_mean_is_not_used_for_its_members():
    fits = fits_with(*shared_errors(12))
    fits[0] = replace(fits[0], task=replace(fits[0].task, members=("piqa",)))
    correction = ScoreCorrection.of(fits)
    moved = correct(correction, of_one(), np.array([0.65, np.nan, np.nan]))[1]
    assert moved.accuracy == 0.5
    assert "arc" not in moved.remark
    assert correction.usable[0, 1], "a mean may read its members"


@pytest.mark.parametrize("families", [2, FEWEST_FAMILIES - 1])
def test_few_families_cannot_say_which_errors_go_together(families):
    correction = ScoreCorrection.of(fits_with(*shared_errors(families)))
    assert (correction.shrinkage == 1).all()


def test_errors_that_do_not_go_together_are_rarely_taken_to_do_so():
    corrected = [ScoreCorrection.of(fits_with(*shared_errors(10, common=0.0, seed=s))).shrinkage < 1 for s in range(20)]
    assert np.mean(corrected) < 0.1


def test_correction_halves_the_error_of_new_models_where_two_tasks_share_nine_tenths():
    correction = ScoreCorrection.of(fits_with(*shared_errors(12)))
    fresh, _ = shared_errors(50, seed=1)
    left = [row[1] - correction.expected(1, np.where(np.arange(3) == 1, np.nan, row))[0] for row in fresh]
    assert np.std(left) < 0.6 * np.std(fresh[:, 1])


def test_fits_without_names_of_models_are_not_corrected():
    nameless = [replace(f, out_of_fold=replace(f.out_of_fold, models=())) for f in fits_with(*shared_errors(12))]
    assert (ScoreCorrection.of(nameless).shrinkage == 1).all()


def test_predict_use_scores_says_what_it_used(study, cli):
    bc.fit_tasks(study, method="all-token", store=True)
    ran = cli("predict", study.root, "--model", study.models_with_losses()[0], "--use-scores")
    assert ran.code == 0
    assert "from losses" in ran.out


def test_refit_with_scores_fits_only_the_given_task_again(study, cli, tree, world):
    assert cli("fit", study.root, "--method", "all-token").code == 0
    study.add_losses([replace(world.losses[3], model="new")])
    study.add_scores([Score("new", "task0", 0.5), Score("new", "task1", 0.5)])
    before = tree(study.root / "fits")
    ran = cli("predict", study.root, "--model", "new", "--use-scores", "--refit", "--task", "task0", "--json")
    assert ran.code == 0
    after = tree(study.root / "fits")
    assert {path.split("/")[0] for path in after if after[path] != before[path]} == {"task0"}
    assert "task1: fitted on 20 of now 21 models" in ran.err, "its fit is used and outdated"
    assert "task0: fitted" not in ran.err
    assert [row["task"] for row in json.loads(ran.out)] == ["task0"]


def test_use_scores_needs_a_study_and_is_not_registered(study, cli, tmp_path):
    bc.fit_tasks(study, method="all-token", store=True)
    model = study.models_with_losses()[0]
    ran = cli("predict", "--fit", study.root / "fits/task0", "--losses", tmp_path / "x.jsonl", "--use-scores")
    assert ran.code == 1
    assert "--use-scores" in ran.err
    ran = cli("predict", study.root, "--model", model, "--use-scores", "--register", tmp_path / "r.json")
    assert ran.code == 1
    assert not (tmp_path / "r.json").exists()
