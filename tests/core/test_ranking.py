"""Which method is called best, on comparisons whose errors are given."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from benchcast.evaluation.compare import compare
from benchcast.evaluation.comparison import Comparison, HeldOutForecasts
from benchcast.evaluation.ranking import FEWEST_FAMILIES, headline, rank
from benchcast.study.study import Study


@pytest.fixture(scope="module")
def measured(synthetic_folder) -> Comparison:
    return compare(Study.open(synthetic_folder), methods=("constant",))


def comparison(measured: Comparison, errors: dict[str, list[list[float]]]) -> Comparison:
    """A comparison whose methods miss by these errors: by task, then by family; every family has two models."""
    held = {}
    for method, tasks in errors.items():
        for t, by_family in enumerate(tasks):
            off = np.repeat(by_family, 2) * np.tile([1, -1], len(by_family))
            families = np.repeat([f"family{i}" for i in range(len(by_family))], 2)
            observed = np.full(len(off), 0.5)
            models = tuple(f"m{i}" for i in range(len(off)))
            held[f"task{t}", method] = HeldOutForecasts(
                models, families, observed, observed + off, off * 0, off * 0 + 1, off
            )
    names = tuple(f"task{t}" for t in range(len(next(iter(errors.values())))))
    return replace(measured, methods=tuple(errors), tasks=names, held_out=held)


def test_a_method_that_is_better_in_every_family_is_named_with_its_lead(measured):
    compared = comparison(measured, {"b": [[0.02] * 6] * 2, "a": [[0.01] * 6] * 2, "c": [[0.08] * 6] * 2})
    assert headline(compared) == (
        "a forecasts best here: squared error 0.25 times that of b by the geometric mean over 2 tasks, "
        "0.25 by the median, 0.25 by the sum; 90% interval over families 0.25 – 0.25."
    )
    assert rank(compared).methods == ("a", "b", "c")


def test_no_method_is_named_where_mean_median_and_sum_over_the_tasks_disagree(measured):
    """Least on two of three tasks, and yet more error over all of them."""
    steady = [[0.020] * 6, [0.020] * 6, [0.020] * 6]
    fickle = [[0.019] * 6, [0.019] * 6, [0.080] * 6]
    compared = comparison(measured, {"fickle": fickle, "steady": steady})
    ratio = rank(compared).ratios["fickle"]
    assert rank(compared).methods[0] == "steady"
    assert ratio.high < 1 < ratio.median
    assert not ratio.clear
    assert headline(compared).startswith(
        "No clear winner between steady and fickle: mean, median and sum over the tasks disagree (squared error 0.42"
    )


def test_the_sum_of_errors_can_veto_a_winner(measured):
    """One task is measured in points, two in tenths of a point; the small ones alone do not make a winner."""
    a = [[0.10] * 6, [0.002] * 6, [0.002] * 6]
    b = [[0.08] * 6, [0.004] * 6, [0.004] * 6]
    said = headline(comparison(measured, {"a": a, "b": b}))
    assert "No clear winner between a and b: mean, median and sum" in said
    assert "0.25 by the median, 1.56 by the sum" in said


def test_families_weigh_equally_however_many_models_they_have(measured):
    compared = comparison(measured, {"a": [[0.01] * 5 + [0.05]], "b": [[0.02] * 5 + [0.04]]})
    often = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, *[10, 11] * 20])
    crowded = {
        k: HeldOutForecasts(
            tuple(f"m{i}" for i in range(len(often))),
            **{n: getattr(h, n)[often] for n in ("families", "observed", "forecast", "low", "high", "capability")},
        )
        for k, h in compared.held_out.items()
    }
    before, after = (rank(c).ratios["b"] for c in (compared, replace(compared, held_out=crowded)))
    assert (after.value, after.low, after.high) == pytest.approx((before.value, before.low, before.high))


def test_a_lead_that_rests_on_one_family_is_no_clear_win(measured):
    a = [[0.02, 0.02, 0.02, 0.02, 0.02, 0.02]]
    b = [[0.019, 0.019, 0.019, 0.019, 0.019, 0.08]]
    said = headline(comparison(measured, {"a": a, "b": b}))
    assert said.startswith("No clear winner between a and b (squared error 0.")
    value, low, high = map(float, re.findall(r"\d\.\d\d", said))
    assert low < value < 1 < high


def test_the_numbers_of_the_sentence_belong_together(measured):
    rng = np.random.default_rng(5)
    for _ in range(20):
        errors = {m: (0.02 * rng.lognormal(s, 0.5, size=(2, 7))).tolist() for m, s in (("a", 0), ("b", 0.3), ("c", 1))}
        compared = comparison(measured, errors)
        ranked, said = rank(compared), headline(compared)
        value, *_, low, high = map(float, re.findall(r"\d+\.\d\d", said))
        assert low <= value <= high
        assert value <= 1, "the first has the least error"
        assert said.startswith("No clear winner") == bool(ranked.rivals)
        named = all(r.high < 1 and r.median < 1 and r.summed < 1 for r in ranked.ratios.values())
        assert ("forecasts best" in said) == named


def test_a_winner_must_beat_every_other_method_not_only_the_runner_up(measured):
    a, b = [[0.02] * 6], [[0.0205] * 6]
    c = [[0.01, 0.01, 0.01, 0.01, 0.01, 0.06]]
    ranked = rank(comparison(measured, {"a": a, "b": b, "c": c}))
    assert ranked.methods == ("a", "b", "c")
    assert ranked.ratios["b"].high < 1
    assert ranked.rivals == ("c",)
    said = headline(comparison(measured, {"a": a, "b": b, "c": c}))
    assert said.startswith("No clear winner between a and c (squared error")
    assert "times that of c" in said


def test_few_families_carry_no_claim(measured):
    few = FEWEST_FAMILIES - 1
    compared = comparison(measured, {"a": [[0.01] * few], "b": [[0.03] * few]})
    assert headline(compared) == (
        "No clear winner between a and b: 4 held-out families are too few to tell (squared error 0.11 times that of b)."
    )
    assert "1 held-out family is too few" in headline(comparison(measured, {"a": [[0.01]], "b": [[0.03]]}))


def test_equal_methods_are_listed_and_many_are_counted(measured):
    compared = comparison(measured, {m: [[0.02] * 6] for m in "abcdef"})
    assert headline(compared).startswith(
        "No clear winner between a, b, c and 3 others (squared error 1.00 times that of b"
    )


def test_a_method_that_lacks_a_task_is_not_ranked(measured):
    gone = [[np.nan] * 6, [0.001] * 6]
    compared = comparison(measured, {"a": gone, "b": [[0.02] * 6] * 2})
    assert headline(compared) == "b is the only method that forecasts every task here."
    assert headline(comparison(measured, {"a": gone})) == "No method forecasts every task here."


def test_two_equally_good_methods_are_told_apart_in_a_tenth_of_cases(measured):
    """Methods whose errors come from one distribution, with families that lean and differ in how hard they are."""
    rng = np.random.default_rng(11)
    for families, tasks in ((5, 1), (5, 4), (9, 4)):
        told = 0
        for _ in range(300):
            hard = rng.lognormal(0, 0.5, size=(tasks, families))
            shared = rng.normal(size=(tasks, families))
            errors = {m: 0.02 * hard * (0.8 * rng.normal(size=(tasks, families)) + 0.6 * shared) for m in "ab"}
            ratio = next(iter(rank(comparison(measured, {m: e.tolist() for m, e in errors.items()})).ratios.values()))
            told += ratio.clear
        assert told / 300 <= 0.12, f"{families} families, {tasks} tasks"


def test_a_method_with_a_quarter_of_the_error_is_mostly_named(measured):
    rng = np.random.default_rng(12)
    named = 0
    for _ in range(100):
        errors = {m: 0.02 * s * rng.normal(size=(4, 9)) for m, s in (("a", 0.5), ("b", 1))}
        named += headline(comparison(measured, {m: e.tolist() for m, e in errors.items()})).startswith("a forecasts")
    assert named >= 85


def test_errors_that_are_proportional_in_every_family_are_clear(measured):
    compared = comparison(measured, {"a": [[0.01, 0.02, 0.03, 0.04, 0.05]], "b": [[0.02, 0.04, 0.06, 0.08, 0.10]]})
    ratio = rank(compared).ratios["b"]
    assert ratio.value == pytest.approx(0.25)
    assert ratio.clear


def test_the_sentence_is_about_the_method_that_fit_uses(measured):
    compared = comparison(measured, {"pls": [[0.02] * 6], "stack": [[0.01] * 6], "constant": [[0.08] * 6]})
    assert headline(compared).startswith(
        "stack, which `benchcast fit` uses, forecasts best here: squared error 0.25 times that of pls"
    )


def test_a_method_that_is_clearly_better_is_named_with_how_to_take_it(measured):
    compared = comparison(measured, {"stack": [[0.02] * 6], "pls": [[0.01] * 6], "constant": [[0.08] * 6]})
    said = headline(compared)
    assert said.startswith(
        "pls is clearly better here than stack, which `benchcast fit` uses: squared error 0.25 times that of stack"
    )
    assert said.endswith("; take it with `benchcast fit STUDY --method pls`.")


@pytest.mark.parametrize("stack", [0.0199, 0.0201])
def test_without_a_clear_difference_the_method_of_fit_stays(measured, stack):
    even = np.array([1, 1.3, 0.7, 1.2, 0.8, 1.0])
    compared = comparison(measured, {"stack": [(stack * even).tolist()], "pls": [(0.02 * even[::-1]).tolist()]})
    said = headline(compared)
    assert said.startswith("`benchcast fit` uses stack, and no other method is clearly better here (")
    assert ("(pls: squared error" in said) == (stack > 0.02)


def test_few_families_are_too_few_to_leave_the_method_of_fit(measured):
    compared = comparison(measured, {"stack": [[0.03] * 4], "pls": [[0.01] * 4]})
    assert headline(compared) == (
        "`benchcast fit` uses stack, and no other method is clearly better here: 4 held-out families are too few to "
        "tell (pls: squared error 0.11 times that of stack)."
    )
