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
        "a forecasts best here: squared error 0.25 times that of b, geometric mean over 2 tasks; "
        "90% interval over families 0.25 – 0.25."
    )
    assert rank(compared).methods == ("a", "b", "c")


def test_the_one_with_least_error_on_most_tasks_is_not_called_best_where_its_mean_is_worse(measured):
    """Least on two of three tasks, and yet more error over all of them."""
    steady = [[0.020] * 6, [0.020] * 6, [0.020] * 6]
    fickle = [[0.019] * 6, [0.019] * 6, [0.080] * 6]
    said = headline(comparison(measured, {"fickle": fickle, "steady": steady}))
    assert said.startswith("steady forecasts best here: squared error 0.42 times that of fickle")


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
        value, low, high = map(float, re.findall(r"\d+\.\d\d", said))
        assert low <= value <= high
        assert value <= 1, "the first has the least error"
        assert said.startswith("No clear winner") == bool(ranked.rivals)
        assert ("forecasts best" in said) == all(r.high < 1 for r in ranked.ratios.values())


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


def test_families_of_many_models_are_drawn_whole_and_alike_for_all(measured):
    compared = comparison(measured, {"a": [[0.01, 0.02, 0.03, 0.04, 0.05]], "b": [[0.02, 0.04, 0.06, 0.08, 0.10]]})
    ratio = rank(compared).ratios["b"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.25, 0.25, 0.25)), "paired: the ratio is the same"
    assert rank(compared, seed=1).ratios["b"].low == pytest.approx(0.25)
