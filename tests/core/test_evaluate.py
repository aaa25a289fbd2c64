"""Measures against hand-computed numbers, and what `compare` pools and prints."""

from __future__ import annotations

import json
import os
import shutil
import signal

import numpy as np
import pytest

from benchcast.errors import BenchcastError, InputError, NotEnoughDataError
from benchcast.evaluation.compare import Execution, compare, noise_floor
from benchcast.evaluation.comparison import MEASURES, measure
from benchcast.executors.local import Job, Local, Processes
from benchcast.methods import METHODS
from benchcast.records import Score
from benchcast.splits import Fold
from benchcast.study.study import Study
from benchcast.study.tables import SCORE_COLUMNS, as_csv

CHEAP = ("all-token", "constant", "compute")


def of(observed, forecast, half=0.1):
    o, f = np.array(observed, float), np.array(forecast, float)
    return measure(o, f, low=f - half, high=f + half)


def test_measures_of_four_models_are_those_worked_out_by_hand():
    measures = of([0.2, 0.4, 0.6, 0.8], [0.3, 0.35, 0.75, 0.7])
    assert measures["mse"] == pytest.approx((0.01 + 0.0025 + 0.0225 + 0.01) / 4)
    assert measures["mae"] == pytest.approx(0.1)
    assert measures["r2"] == pytest.approx(1 - 0.045 / 0.2)
    assert measures["spearman"] == pytest.approx(0.8)  # one swap: 1 − 6·2 / (4·15)
    assert measures["pairs"] == pytest.approx(5 / 6)
    assert measures["width"] == pytest.approx(0.2)
    assert measures["n_test"] == 4


def test_coverage_is_the_share_inside_the_interval():
    assert of([0.2, 0.4, 0.6, 0.8], [0.25, 0.35, 0.75, 0.75])["coverage"] == 0.75
    assert of([0.2, 0.4], [0.2, 0.4])["coverage"] == 1.0


def test_a_tie_in_the_forecast_is_half_right_and_a_tie_in_scores_does_not_count():
    assert of([0.1, 0.2, 0.3], [0.5, 0.5, 0.5])["pairs"] == 0.5
    assert of([0.2, 0.2, 0.3], [0.1, 0.9, 0.95])["pairs"] == 1.0


def test_spearman_uses_mean_ranks_for_ties():
    observed, forecast = [1, 2, 2, 3], [1, 3, 2, 4]
    ranks = np.corrcoef([1, 2.5, 2.5, 4], [1, 3, 2, 4])[0, 1]
    assert of(observed, forecast)["spearman"] == pytest.approx(ranks)


@pytest.mark.parametrize(
    ("observed", "forecast", "undefined"),
    [
        ([0.5], [0.4], {"r2", "spearman", "pairs"}),
        ([0.5, 0.5], [0.4, 0.6], {"r2", "spearman", "pairs"}),
        ([0.4, 0.6], [0.5, 0.5], {"spearman"}),
        ([0.4, 0.6], [0.5, np.nan], set(MEASURES) - {"n_test"}),
        ([], [], set(MEASURES) - {"n_test"}),
    ],
)
def test_what_is_undefined_is_nan_and_the_rest_is_said(observed, forecast, undefined):
    measures = of(observed, forecast)
    assert {k for k, v in measures.items() if v != v} == undefined
    assert measures["n_test"] == len(observed)


def test_without_an_interval_coverage_and_width_are_undefined():
    nothing = np.full(2, np.nan)
    measures = measure(np.array([0.4, 0.6]), np.array([0.4, 0.7]), low=nothing, high=nothing)
    assert np.isnan([measures["coverage"], measures["width"]]).all()
    assert measures["mse"] == pytest.approx(0.005)


def strict(text: str):
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_compare_json_keeps_its_contract(study, cli):
    ran = cli("compare", study.root, "--json", "--split", "size", "--method", "all-token", "--method", "constant")
    assert ran.code == 0
    printed = strict(ran.out)
    assert printed["split"] == "size"
    assert printed["methods"] == ["all-token", "constant"]
    assert list(printed["tasks"]) == ["task0", "task1"]
    for task in printed["tasks"].values():
        assert list(task) == ["all-token", "constant"]
        assert all(tuple(cell) == (*MEASURES, "remark") for cell in task.values())
        assert task["constant"]["spearman"] is None, "a constant puts nothing in order"
        assert task["all-token"]["n_test"] == 5


MAIN = ["stack", "salience", "pls", "logistic-4", "label-token", "all-token", "constant"]


def test_compare_tries_the_main_methods_by_default(study, cli):
    printed = cli("compare", study.root, "--task", "task0").out
    assert strict(cli("compare", study.root, "--json", "--task", "task0").out)["methods"] == MAIN
    assert [line.split()[0] for line in printed.splitlines()[2:9]] == MAIN
    assert "not compared" not in printed
    assert compare(study, ["task0"], split="size", methods=()).methods == tuple(MAIN)


def test_all_methods_are_compared_on_demand_and_one_line_says_what_lacks_features(study, cli):
    everything = strict(cli("compare", study.root, "--json", "--task", "task0", "--all-methods").out)
    assert everything["methods"] == list(METHODS)
    assert everything["left_out"] == {}
    shutil.rmtree(study.root / "features")
    ran = cli("compare", study.root, "--task", "task0", "--all-methods")
    said = [line for line in ran.out.splitlines() if "needs features" in line]
    assert said == ["not compared: paper, ridge: needs features of a scorer"]
    rows = [line.split()[0] for line in ran.out.splitlines() if line]
    assert "paper" not in rows
    bare = compare(study, ["task0"], methods="all")
    assert bare.methods == tuple(m for m in METHODS if m not in ("paper", "ridge"))
    assert set(bare.left_out) == {"paper", "ridge"}


def test_all_methods_and_a_method_do_not_go_together(study, cli):
    ran = cli("compare", study.root, "--all-methods", "--method", "pls")
    assert (ran.code, ran.err.splitlines()[0][:61]) == (
        1,
        "error: --all-methods does not go with --method or --runs; see",
    )


def test_too_few_models_to_hold_any_out_say_that_fit_needs_none_held_out(study, cli):
    families = sorted({m.family for m in study.models()})[:2]
    kept = [name for family in families for name in [m.model for m in study.models() if m.family == family][:3]]
    rows = [s for s in study.scores() if s.model in kept]
    (study.root / "scores.csv").write_text(as_csv(SCORE_COLUMNS, rows), encoding="utf-8")
    for command in ("compare", "report"):
        ran = cli(command, study.root)
        assert ran.code == 1
        assert ran.err == (
            "error: task0: 3 training models have both losses and accuracy, a fit needs at least 4 (others are held "
            "out by family; `benchcast fit` and `predict` hold out none)\n"
        )
    assert cli("fit", study.root).code == 0


def test_measures_of_fewer_than_five_held_out_models_are_not_printed(study, world, cli):
    """Of two models R² was −154; their forecasts are printed instead."""
    largest = sorted(m.model for m in world.models if m.params == 64e6)
    kept = [s for s in study.scores() if s.task != "task0" or s.model not in largest[2:]]
    (study.root / "scores.csv").unlink()
    study.add_scores(kept)
    ran = cli("compare", study.root, "--split", "size")
    table, rest = ran.out.split("task0: 2 held-out models, too few to measure methods; forecasts by stack")
    assert "task0" not in table
    assert "task1" in table
    assert [line.split()[0] for line in rest.splitlines()[2:4]] == largest[:2]
    cells = strict(cli("compare", study.root, "--split", "size", "--json").out)["tasks"]["task0"]
    for cell in cells.values():
        assert {k: v for k, v in cell.items() if v is not None} == {
            "n_test": 2,
            "remark": "no measures: 2 held-out models, 5 are needed",
        }


def test_a_method_that_was_asked_for_and_lacks_features_is_one_clear_line(study, cli):
    shutil.rmtree(study.root / "features")
    for json_flag in ([], ["--json"]):
        ran = cli("compare", study.root, "--method", "paper", *json_flag)
        assert ran.code == 1
        assert ran.err.splitlines() == [ran.err.strip()]
        assert "needs features" in ran.err


def test_errors_of_all_folds_are_pooled(study, world):
    comparison = compare(study, ["task0"], split="family", methods=CHEAP)
    held = comparison.held_out["task0", "all-token"]
    assert sorted(held.models) == sorted(m.model for m in world.models)
    assert len(comparison.fits["task0", "all-token"]) == 5
    accuracy = {s.model: s.accuracy for s in world.scores if s.task == "task0"}
    assert held.observed.tolist() == [accuracy[m] for m in held.models]
    mse = np.mean((held.forecast - held.observed) ** 2)
    assert comparison.measures("task0", "all-token")["mse"] == pytest.approx(mse)


def test_a_forecast_in_compare_is_that_of_the_fit_without_the_test_models(study):
    from benchcast import fit

    held = compare(study, ["task1"], split="size", methods=("all-token",)).held_out["task1", "all-token"]
    new_fit = fit(study, "task1", method="all-token", split="size")
    again = [new_fit.predict(study.losses(m)) for m in held.models]
    np.testing.assert_allclose([f.accuracy for f in again], held.forecast, atol=1e-5)
    np.testing.assert_allclose([f.low for f in again], held.low, atol=1e-5)


def test_an_unknown_method_is_refused_with_a_near_one(study):
    with pytest.raises(InputError, match="did you mean 'salience'"):
        compare(study, methods=("salient",))


def test_a_split_that_tests_nobody_is_refused(study):
    path = study.root / "models.csv"
    rows = path.read_text().splitlines()
    path.write_text("\n".join([rows[0], *(r + "train" for r in rows[1:])]) + "\n")
    with pytest.raises(NotEnoughDataError, match=r"no test models; mark some in models\.csv"):
        compare(study, split="column")


# ---- the noise floor


def floor_of(dataset, scores: list[Score]) -> float:
    everybody = np.ones(len(dataset.models), bool)
    return noise_floor(dataset, scores, [Fold(~everybody, ~everybody, everybody)])["task0"]


def test_the_noise_floor_is_the_binomial_variance(dataset):
    a, b = dataset.models[:2]
    scores = [Score(a, "task0", 0.5, 100), Score(b, "task0", 0.9, 50), Score(b, "task1", 0.5, 2)]
    assert floor_of(dataset, scores) == pytest.approx((0.25 / 100 + 0.09 / 50) / 2)


def test_split_halves_give_the_noise_floor_where_they_were_counted(dataset):
    # 5 items, 3 right; of the 3 even-numbered ones 2, of the 2 odd ones 1
    score = Score(dataset.models[0], "task0", 0.6, 5, right_even=2)
    assert floor_of(dataset, [score]) == pytest.approx((2 / 3 - 1 / 2) ** 2 * 3 * 2 / 25)


def test_split_halves_are_right_on_average(dataset):
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(4000):
        right = rng.random(41) < 0.7
        scores.append(Score(dataset.models[0], "task0", right.mean(), 41, right_even=float(right[::2].sum())))
    assert floor_of(dataset, scores) == pytest.approx(0.7 * 0.3 / 41, rel=0.06)


def test_without_the_number_of_items_there_is_no_noise_floor(dataset):
    assert np.isnan(floor_of(dataset, [Score(dataset.models[0], "task0", 0.5)]))


def test_tasks_that_no_test_model_was_scored_on_are_null_not_zero(study):
    from benchcast.splits import make_folds

    test = make_folds(study.models(), "size")[1][0].test
    tested = {m.model for m, on in zip(study.models(), test, strict=True) if on}
    kept = [s for s in study.scores() if not (s.task == "task0" and s.model in tested)]
    (study.root / "scores.csv").unlink()
    study.add_scores(kept)
    rows = compare(study, split="size", methods=CHEAP).as_json()
    cell = rows["tasks"]["task0"]["all-token"]
    assert cell == {**dict.fromkeys(MEASURES), "n_test": 0, "remark": "no held-out model has a score"}
    assert rows["noise_floor"]["task0"] is None
    assert rows["tasks"]["task1"]["all-token"]["mse"] > 0


def test_a_comparison_keeps_the_models_that_each_method_was_tried_on(study, world):
    comparison = compare(study, split="size", methods=CHEAP)
    largest = {m.model for m in world.models if m.params == 64e6}
    assert set(comparison.held_out["task0", "constant"].models) == largest


def test_folds_fitted_one_by_one_give_what_all_of_them_together_give(small_folder):
    """What lets a cluster share the folds of a comparison."""
    study = Study.open(small_folder)
    methods_done: list[str] = []
    together = compare(study, split="family")
    apart = compare(study, split="family", device=Execution(executor=Local(), on_method=methods_done.append))
    assert apart.as_json() == together.as_json()
    assert sorted(methods_done) == sorted(together.methods)


def test_processes_give_what_this_process_gives(small_folder):
    study, methods = Study.open(small_folder), ("stack", "ridge", "label-token", "constant")
    here, apart = (
        compare(study, split="family", methods=methods, device=Execution(executor=executor))
        for executor in (Local(), Processes(2))
    )
    assert apart.as_json() == here.as_json()
    assert apart.methods == here.methods == methods


def test_without_its_fits_a_comparison_has_the_same_numbers(small_folder):
    study, methods = Study.open(small_folder), ("stack", "label-token", "compute")
    kept, without = (
        compare(study, split="family", methods=methods, device=Execution(executor=Processes(2), keep_fits=keep))
        for keep in (True, False)
    )
    assert without.as_json() == kept.as_json()
    assert not any(without.fits.values())
    assert all(len(fits) == len(kept.folds) for fits in kept.fits.values())


def test_a_process_that_is_killed_is_one_clear_line():
    with pytest.raises(BenchcastError, match="use --jobs 1"):
        list(Processes(2).run(end_process, [Job("a", 0), Job("b", 1)]))


def end_process(shared: object, arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_in_a_process_is_raised_here():
    with pytest.raises(ZeroDivisionError):
        list(Processes(2).run(divide, [Job("a", 0), Job("b", 1)]))


def divide(shared: object, arguments: int) -> float:
    return 1 / arguments


def test_without_jobs_no_process_is_started():
    assert list(Processes(2).run(divide, [])) == []


def test_compare_takes_the_number_of_processes(small_folder, cli):
    asked = ("compare", small_folder, "--split", "family", "--method", "all-token", "--json")
    assert cli(*asked, "--jobs", "2").out == cli(*asked, "--jobs", "1").out
    assert cli(*asked, "--jobs", "0").code == 1
