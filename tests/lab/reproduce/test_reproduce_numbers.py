"""The numbers of tables and figures, against the study's own rows or computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from benchcast.dataset import Fold
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.evaluate import compare
from benchcast.folds import make_folds
from benchcast.law import SigmoidLaw
from benchcast.methods import BASELINES, METHODS
from benchcast.methods.paper import paper
from benchcast.reports.sections import held_out_errors, numbers_of_sources, restrict, source_errors, subsets
from lab.reproduce.context import StudyContext, pick_runs
from lab.reproduce.convergence import fig6
from lab.reproduce.decisions import by_compute, decide, find_pairs
from lab.reproduce.diversity import ALL_TASKS, fig8
from lab.reproduce.laws import fig4, fig7
from lab.reproduce.learning import family_folds, model_folds, point
from lab.reproduce.learning import means as learning_means
from lab.reproduce.outcome import geometric_mean, plain
from lab.reproduce.scaling import fig1, fig2
from lab.reproduce.series import early_checkpoints, fig5, series_folds
from lab.reproduce.table import errors_of, table1
from lab.reproduce.uncertainty import coverages, family_draws, gains
from lab.reproduce.weights import fig9, lay_out
from lab.synthetic import World


def test_gains_of_table_1_are_ratios_of_errors(context: StudyContext) -> None:
    outcome = table1(context)
    comparison = context.comparison()
    assert comparison.split == "size"
    by_size = outcome.numbers["splits"]["size"]
    tasks = comparison.tasks
    mse = {m: [comparison.measures(t, m)["mse"] for t in tasks] for m in comparison.methods}
    assert by_size["mse"] == {t: {m: mse[m][i] for m in comparison.methods} for i, t in enumerate(tasks)}
    ratio = [a / s for a, s in zip(mse["all-token"], mse["salience"], strict=True)]
    assert by_size["gain_over_all_token"]["salience"] == pytest.approx(np.prod(ratio) ** (1 / len(ratio)))
    baselines = ("label-token", "source-token", "all-token", "compute", "constant")
    best = [min(mse[m][i] for m in baselines) for i in range(len(tasks))]
    ratio = [b / s for b, s in zip(best, mse["salience"], strict=True)]
    assert by_size["gain_over_best_baseline"]["salience"] == pytest.approx(np.prod(ratio) ** (1 / len(ratio)))
    for t in tasks:
        gain = comparison.measures(t, "paper")["r2"] - comparison.measures(t, "all-token")["r2"]
        assert by_size["r2_gain_over_all_token"][t]["paper"] == pytest.approx(gain)


def test_table_1_has_families_never_seen_as_a_second_split(context: StudyContext) -> None:
    outcome = table1(context)
    assert list(outcome.numbers["splits"]) == ["size", "family"]
    assert outcome.numbers["splits"]["family"]["test_models"] == len(context.dataset.models)
    assert set(outcome.figures) == {"", "-family"}


def test_figure_1_shows_the_studys_own_rows(context: StudyContext, world: World) -> None:
    points = fig1(context).numbers["points"]
    info = {m.model: m for m in world.models}
    score = {(s.model, s.task): s.accuracy for s in world.scores}
    expected = {(m, t) for m, t in score if info[m].family in ("twin-a", "twin-b")}
    assert {(p["model"], p["task"]) for p in points} == expected
    for p in points:
        assert p["accuracy"] == pytest.approx(score[p["model"], p["task"]])
        assert p["flops"] == pytest.approx(6 * info[p["model"]].params * info[p["model"]].tokens)


def test_gaps_of_figure_1_are_between_models_of_equal_size_and_compute(context: StudyContext, world: World) -> None:
    gaps = fig1(context).numbers["gaps"]["task0"]
    score = {s.model: s.accuracy for s in world.scores if s.task == "task0"}
    by_hand = [score[m] - score[m.replace("twin-a", "twin-b")] for m in score if m.startswith("twin-a")]
    assert gaps["pairs"] == len(by_hand)
    assert gaps["signed"] == pytest.approx(np.mean(by_hand))
    assert gaps["largest"] == pytest.approx(np.abs(by_hand).max())


def test_losses_of_figure_2_are_per_character_of_the_tasks_texts(context: StudyContext, world: World) -> None:
    points = {p["model"]: p for p in fig2(context).numbers["points"] if p["task"] == "task1"}
    texts_of_task = [i for i, t in enumerate(world.texts) if t.source == "source1"]
    characters = sum(len(world.texts.texts[i].text) for i in texts_of_task)
    for losses in world.losses[::7]:
        start = np.cumsum(losses.counts) - losses.counts
        nats = sum(losses.nats[start[i] : start[i] + losses.counts[i]].sum() for i in texts_of_task)
        assert points[losses.model]["loss"] == pytest.approx(nats / characters, rel=1e-4)


def test_points_of_figure_4_lie_as_far_from_the_law_as_the_comparison_says(context: StudyContext) -> None:
    outcome = fig4(context, "label-token")
    for task in ("task0", "task1"):
        assert outcome.numbers["mse"][task]["test"] == pytest.approx(
            context.comparison().measures(task, "label-token")["mse"]
        )
    roles = {p["model"]: p["role"] for p in outcome.numbers["points"]}
    assert set(roles.values()) == {"train", "validation", "test"}


def test_figure_5_trains_on_no_later_checkpoint_of_either_run(context: StudyContext) -> None:
    outcome = fig5(context)
    tokens = {m.model: m.tokens for m in context.infos}
    last = {}
    for m in context.infos:
        last[m.family, m.params] = max(last.get((m.family, m.params), 0), m.tokens)
    info = {m.model: m for m in context.infos}
    for tested, other in (("twin-b", "twin-a"), ("twin-a", "twin-b")):
        parts = outcome.numbers["models"][tested]
        assert parts["test"]
        assert all(m.startswith(tested) for m in parts["test"])
        assert all(m.startswith(other) for m in parts["validation"])
        for m in parts["train"]:
            i = info[m]
            assert i.family not in ("twin-a", "twin-b") or tokens[m] <= last[i.family, i.params] / 3
        everyone = [*parts["train"], *parts["validation"], *parts["test"]]
        assert len(everyone) == len(set(everyone)) == len(context.dataset.models)


def test_a_run_is_one_family_at_one_size(context: StudyContext) -> None:
    early = early_checkpoints(context.infos)
    assert early.sum() == len(context.infos) * 2 / 3  # a run has 1, 3 and 9 units of tokens: two lie in its first third
    folds = series_folds(context.dataset.families, context.infos, ("twin-a", "twin-b"))
    assert not (folds[0].test & folds[0].seen).any()


def test_errors_of_figure_6_are_those_of_algorithm_2_at_its_first_and_last_step(context: StudyContext) -> None:
    outcome = fig6(context, "task1")
    assert outcome.numbers["shown_task"] == "task1"
    errors = {(r["task"], r["role"], r["step"]): r["mse"] for r in outcome.numbers["errors"]}
    assert {("task0", "train", 0), ("task0", "validation", 300), ("task0", "test", 300)} <= set(errors)
    fits = paper(context.dataset, [context.fold])[0]
    fit = fits[1]
    observed, test = context.dataset.accuracy[1], context.fold.test
    for i, step in ((0, 0), (-1, 300)):
        law = SigmoidLaw(fit.history["slope"][i], fit.history["offset"][i], fit.task.chance)
        by_hand = np.mean((law.accuracy(fit.history["capability"][i])[test] - observed[test]) ** 2)
        assert errors["task1", "test", step] == pytest.approx(by_hand)
        for role, rows in (("train", context.fold.train), ("validation", context.fold.validation)):
            by_hand = np.mean((law.accuracy(fit.history["capability"][i])[rows] - observed[rows]) ** 2)
            assert errors["task1", role, step] == pytest.approx(by_hand, rel=1e-3)
    assert outcome.numbers["tasks"]["task1"]["first"] == errors["task1", "test", 0]
    assert outcome.numbers["tasks"]["task1"]["chosen"] == held_out_errors(context.dataset, context.fold, fits)[1]


def test_figure_7_has_every_forecast_of_the_comparison(context: StudyContext) -> None:
    outcome = fig7(context)
    held = context.comparison().held_out["task0", "salience"]
    shown = [p for p in outcome.numbers["points"] if (p["task"], p["method"]) == ("task0", "salience")]
    assert [p["forecast"] for p in shown] == held.forecast.tolist()


def test_figure_8_with_all_sources_is_the_plain_fit(context: StudyContext) -> None:
    plain_errors = held_out_errors(context.dataset, context.fold, METHODS["paper"](context.dataset, [context.fold])[0])
    sources = context.dataset.reference_tokens.sources
    errors = source_errors(context.dataset, context.fold, context.study.texts, "paper", sources)
    assert errors == pytest.approx(plain_errors, rel=1e-6)
    rows = [r for r in fig8(context, ("paper",)).numbers["fits"] if r["sources"] == len(sources)]
    assert [r["mse"] for r in rows[:-1]] == pytest.approx(plain_errors.tolist(), rel=1e-6)
    assert rows[-1]["task"] == ALL_TASKS
    assert rows[-1]["mse"] == pytest.approx(geometric_mean(plain_errors.tolist()))


def test_figure_8_passes_over_a_source_that_some_model_lacks(context: StudyContext) -> None:
    tokens = context.dataset.reference_tokens
    lacking = replace(tokens, supported=tokens.supported & ~tokens.of_sources(["source1"]))
    dataset = replace(context.dataset, reference_tokens=lacking)
    assert source_errors(dataset, context.fold, context.study.texts, "all-token", ["source1"]) is None
    assert source_errors(dataset, context.fold, context.study.texts, "all-token", ["source0", "source1"]) is not None


def test_figure_8_reads_no_token_of_other_sources(context: StudyContext) -> None:
    kept = restrict(context.dataset, context.dataset.reference_tokens.of_sources(["source1"]), context.study.texts)
    others = ~context.dataset.reference_tokens.of_sources(["source1"])
    assert not kept.nats[:, others].any()
    assert kept.characters == sum(len(t.text) for t in context.study.texts if t.source == "source1")


def test_subsets_are_distinct_and_of_the_wanted_size() -> None:
    drawn = subsets("abcdef", 3, 7, seed=0)
    assert len(set(drawn)) == 7
    assert all(len(set(s)) == 3 for s in drawn)
    assert subsets("abc", 3, 7, seed=0) == [("a", "b", "c")]


def test_many_sources_are_sampled_not_listed() -> None:
    """57 subjects have more sets than could ever be listed."""
    subjects = [f"subject{i:02}" for i in range(57)]
    assert numbers_of_sources(57) == [1, 9, 17, 25, 33, 41, 49, 57]
    assert numbers_of_sources(3) == [1, 2, 3]
    drawn = subsets(subjects, 28, 4, seed=0)
    assert len(drawn) == len(set(drawn)) == 4
    assert all(len(set(one)) == 28 for one in drawn)
    assert drawn == subsets(subjects, 28, 4, seed=0)
    assert subsets(subjects, 57, 4, seed=0) == [tuple(subjects)]


def test_mean_of_figure_8_is_over_its_subsets(context: StudyContext) -> None:
    outcome = fig8(context, ("label-token",), draws=2)
    one = [r["mse"] for r in outcome.numbers["fits"] if r["sources"] == 3 and r["task"] == "task0"]
    mean = [m for m in outcome.numbers["mean"] if m["sources"] == 3 and m["task"] == "task0"]
    assert mean[0]["subsets"] == len(one) == 1
    assert mean[0]["mse"] == one[0]


def test_figure_9_shows_the_whole_text_and_its_largest_weight_is_one(context: StudyContext) -> None:
    outcome = fig9(context, "task0", "source0-3", "label-token")
    tokens = outcome.numbers["tokens"]
    text = context.study.texts.texts[context.study.texts.index["source0-3"]].text
    assert "".join(t["token"] for t in tokens) == text
    assert [t["weight"] for t in tokens] == [float(t["answer"]) for t in tokens]


def test_tokens_of_figure_9_do_not_overlap() -> None:
    from lab.reproduce.weights import Weighed

    boxes = lay_out([Weighed(w, 0.5, False) for w in ("中文", " and", " words", "\n", "more")], width=10)
    assert [(b["x"], b["x2"], b["y"]) for b in boxes] == [(0, 4, 0), (4, 8, 0), (0, 6, 1), (6, 7, 1), (0, 4, 2)]


@pytest.mark.parametrize("folds", [model_folds, family_folds])
def test_learning_curves_never_train_on_the_tested_family_and_grow(folds: Any, context: StudyContext) -> None:
    families = context.dataset.families
    drawn_folds = folds(context.dataset, "twin-b", np.random.default_rng(0))
    before = np.zeros(len(families), bool)
    for of, count, fold in drawn_folds:
        trained = families[fold.train]
        assert count == (len(trained) if of == "training models" else len(set(trained)))
        assert set(families[fold.test]) == {"twin-b"}
        assert "twin-b" not in trained
        assert (fold.train >= before).all(), "a larger set holds the smaller one"
        before = fold.train
    assert (families[~before] == "twin-b").all(), "the last set is everything else"


def test_a_point_of_a_learning_curve_is_what_compare_measures(context: StudyContext) -> None:
    comparison = compare(context.study, split="family", methods=["label-token"])
    families = context.dataset.families
    fold = Fold(families != "twin-a", np.zeros(len(families), bool), families == "twin-a")
    row = next(r for r in point(context.dataset, fold) if r["method"] == "label-token")
    held = [comparison.held_out[t, "label-token"] for t in comparison.tasks]
    in_family = [h.families == "twin-a" for h in held]
    errors = [float(np.mean((h.forecast[o] - h.observed[o]) ** 2)) for h, o in zip(held, in_family, strict=True)]
    assert row["mse"] == pytest.approx(geometric_mean(errors), rel=1e-3)
    inside = [
        np.mean((h.low[o] <= h.observed[o]) & (h.observed[o] <= h.high[o]))
        for h, o in zip(held, in_family, strict=True)
    ]
    assert row["coverage"] == pytest.approx(np.mean(inside), abs=0.03)


def test_means_of_draws_leave_out_what_could_not_be_fitted() -> None:
    row = {"of": "x", "count": 2, "method": "m", "coverage": 0.8, "width": 0.2}
    (mean,) = learning_means([{**row, "mse": 1.0}, {**row, "mse": 4.0}, {**row, "mse": math.nan, "width": math.nan}])
    assert (mean["draws"], mean["mse"], mean["coverage"], mean["width"]) == (
        3,
        pytest.approx(2.0),
        pytest.approx(0.8),
        pytest.approx(0.2),
    )


def test_two_mixtures_are_compared_at_like_size_and_compute_only(context: StudyContext) -> None:
    dataset = context.dataset
    pairs = find_pairs(dataset)
    assert len(pairs) == 6, "every two of four families"
    for pair in pairs:
        assert len(pair.small) == 8, "all but the largest of nine checkpoints"
        for i, j in (*pair.small, pair.largest):
            assert {str(dataset.families[i]), str(dataset.families[j])} == set(pair.families)
            assert dataset.metadata.params[i] == dataset.metadata.params[j]
            assert dataset.metadata.flops[i] == dataset.metadata.flops[j]
        assert not set(pair.largest) & {m for both in pair.small for m in both}


def test_decisions_agree_with_a_count_by_hand(context: StudyContext) -> None:
    rows = decide(context.dataset, find_pairs(context.dataset)[:1], context)
    pair = find_pairs(context.dataset)[0]
    accuracy, n = context.dataset.accuracy, context.dataset.n_items
    expected = 0.0
    count = 0
    for t in range(2):
        a, b = accuracy[t][list(pair.largest)]
        if abs(a - b) <= 2 * math.sqrt(a * (1 - a) / n[t][pair.largest[0]] + b * (1 - b) / n[t][pair.largest[1]]):
            continue
        for i, j in pair.small:
            gap = accuracy[t][i] - accuracy[t][j]
            expected += 0.5 if gap == 0 else float((gap > 0) == (a > b))
            count += 1
    right = [r["right"] for r in rows if r["signal"] == "its own score"]
    assert (len(right), sum(right)) == (count, expected)
    assert {r["signal"] for r in rows} == {"its own score", "salience", "label-token", "all-token"}


def test_decision_accuracy_has_an_interval_over_families() -> None:
    rows = [
        {"task": "t", "families": (a, b), "flops": 1e15, "signal": "s", "right": float(a == "w" or b == "w")}
        for a, b in combinations("uvwx", 2)
    ]
    (bin_of_compute,) = by_compute(rows, 0)
    assert (bin_of_compute["decisions"], bin_of_compute["right"]) == (6, 0.5)
    assert bin_of_compute["low"] < 0.5 < bin_of_compute["high"]
    assert 10**15 <= bin_of_compute["flops"] <= 10**15.5


def test_leaving_models_out_keeps_rows_together(context: StudyContext) -> None:
    keep = context.dataset.families != "twin-a"
    small = context.dataset.of_models(keep)
    i = small.models.index("twin-b-1M@2B")
    j = context.dataset.models.index("twin-b-1M@2B")
    assert np.array_equal(small.nats[i], context.dataset.nats[j])
    assert np.array_equal(small.accuracy[:, i], context.dataset.accuracy[:, j])


def test_paired_families_are_recognised_by_name_and_others_must_be_named() -> None:
    assert pick_runs(["ash", "oak-b", "oak-a"], None) == ("oak-a", "oak-b")
    assert pick_runs(["ash", "elm"], "elm, ash") == ("elm", "ash")
    with pytest.raises(NotEnoughDataError, match="--runs ash,elm"):
        pick_runs(["ash", "elm"], None)
    with pytest.raises(InputError, match="unknown family 'ahs'; known: ash, elm"):
        pick_runs(["ash", "elm"], "ahs,elm")
    with pytest.raises(InputError, match="two different families"):
        pick_runs(["ash", "elm"], "ash")


def test_what_cannot_be_said_is_null() -> None:
    assert plain({"a": float("nan"), "b": np.float64("inf"), "c": [np.int64(2), np.array([1.5, np.nan])]}) == {
        "a": None,
        "b": None,
        "c": [2, [1.5, None]],
    }


def test_best_baseline_is_never_a_learned_method(context: StudyContext) -> None:
    errors = errors_of(context.comparison())
    assert all(errors.best(t, BASELINES) in BASELINES for t in errors.tasks)
    assert make_folds(context.infos, "auto")[0] == errors.split


def test_bootstrap_draws_whole_families() -> None:
    families = np.array(["a", "b", "a", "c", "c"])
    draws = family_draws(families, seed=0)
    assert (draws[:, 0] == draws[:, 2]).all()
    assert (draws[:, 3] == draws[:, 4]).all()
    assert (draws[:, [0, 1, 3]].sum(axis=1) == 3).all()


def test_gains_and_coverage_lie_in_their_bootstrap_intervals_and_agree_with_compare(context: StudyContext) -> None:
    comparison = context.comparison("family")
    by_method = gains(comparison, seed=0)
    assert by_method["all-token"] == [1.0, 1.0, 1.0]
    for method, (value, low, high) in by_method.items():
        logs = [
            np.log(comparison.measures(t, "all-token")["mse"] / comparison.measures(t, method)["mse"])
            for t in comparison.tasks
        ]
        assert value == pytest.approx(np.exp(np.mean(logs)), nan_ok=True)
        assert not low > value
        assert not high < value
    for task, row in coverages(comparison, seed=0).items():
        for method, (share, low, high, width) in row.items():
            measured = comparison.measures(task, method)
            assert low <= share <= high
            assert (share, width) == pytest.approx((measured["coverage"], measured["width"]), nan_ok=True)
