"""Whether the difference between two runs is real: noise of items, checkpoints and seeds, and what would settle it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import benchcast as bc
from benchcast import datasets
from benchcast.decisions.compare_scores import (
    SURE,
    checkpoint_variance,
    difference,
    probability_above,
    scored_models,
    seed_variance,
)
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.records import ModelInfo, Score, Task, Text, TextSet
from benchcast.study.study import Study
from lab.run_calibration import brier, calibration_table, lines, rerun_calibration

CHECKPOINT, SEED, ITEMS = 0.01, 0.02, 1000


def noisy_runs(rng, *, seeds=3, checkpoints=12, recipes=6, noise=(CHECKPOINT, SEED)):
    """Runs with known noise: recipes that improve with compute, each with several seeds and many checkpoints."""
    models, scores = [], []
    for r in range(recipes):
        quality = 0.1 * rng.normal()
        for s in range(seeds):
            luck = noise[1] * rng.normal()
            for c in range(checkpoints):
                tokens = 1e9 * (10 + c)
                name = f"r{r}-s{s}@{c}"
                models.append(ModelInfo(name, f"r{r}", 1e8, tokens, seed=str(s)))
                value = 0.4 + quality + 0.1 * math.log10(10 + c) + luck + noise[0] * rng.normal()
                scores.append(Score(name, "task", value, n_items=ITEMS))
    return models, scores


@pytest.fixture(scope="module")
def noisy():
    return scored_models(*noisy_runs(np.random.default_rng(0), recipes=40), ["task"])


@pytest.fixture
def small(tmp_path):
    """A study of two runs with two seeds each; losses are not needed."""
    models, scores = noisy_runs(np.random.default_rng(1), seeds=2, recipes=2)
    study = Study.create(tmp_path / "s", TextSet.of([Text("a", "x", "one")]), tasks=[Task("task", 0.25)])
    study.add_models(models)
    study.add_scores(scores)
    return study


def test_known_noise_of_checkpoints_and_seeds_is_found(noisy):
    checkpoints = checkpoint_variance(noisy, np.arange(len(noisy.models)))
    assert np.sqrt(checkpoints.value) == pytest.approx([CHECKPOINT] * 2, rel=0.1)
    seeds = seed_variance(noisy, np.ones(len(noisy.models), bool), checkpoints)
    assert np.sqrt(seeds.value) == pytest.approx([SEED] * 2, rel=0.15)
    assert seeds.freedom == 80


def test_curves_alone_are_no_noise_and_distant_checkpoints_no_neighbours():
    known = scored_models(*noisy_runs(np.random.default_rng(0), noise=(0.0, 0.0)), ["task"])
    everyone = np.arange(len(known.models))
    assert (checkpoint_variance(known, everyone).value < 1e-7).all()
    far = [ModelInfo(f"a@{i}", "a", 1e8, 1e9 * 3**i) for i in range(9)]
    scores = [Score(m.model, "task", 0.5) for m in far]
    assert np.isnan(checkpoint_variance(scored_models(far, scores, ["task"]), np.arange(9)).value).all()


def test_noise_of_items_is_binomial_or_as_reported():
    models = [ModelInfo(name) for name in "abcd"]
    scores = [
        Score("a", "task", 0.5, n_items=100),
        Score("b", "task", 0.5, n_items=100, stderr=0.02),
        Score("c", "task", 1.0, n_items=8),
        Score("d", "task", 0.5),
    ]
    variances = scored_models(models, scores, ["task"]).item_variance[0]
    assert variances[:3] == pytest.approx([0.0025, 0.0004, 0.9 * 0.1 / 8])
    assert np.isnan(variances[3])


def test_a_mean_of_tasks_has_less_noise_of_items():
    scores = [Score("a", t, 0.5, n_items=100) for t in ("x", "y")]
    known = scored_models([ModelInfo("a")], scores, ["x", "y"])
    assert known.tasks == ("x", "y", "mean of tasks")
    assert known.item_variance[:, 0] == pytest.approx([0.0025, 0.0025, 0.00125])


def test_what_is_needed_settles_the_difference(noisy):
    everyone = np.ones(len(noisy.models), bool)
    checkpoints = checkpoint_variance(noisy, np.arange(len(noisy.models)))
    seeds = seed_variance(noisy, everyone, checkpoints)
    index = {m.model: i for i, m in enumerate(noisy.models)}
    pairs = [[("a", np.array([index["r0-s0@11"]])), ("b", np.array([index[f"r{r}-s0@11"]]))] for r in range(1, 12)]
    differences = [difference(noisy, 0, pair, checkpoints=checkpoints, seeds=seeds) for pair in pairs]
    assert any(d.settled for d in differences)
    assert any(not d.settled for d in differences)
    for d in differences:
        gap = d.second_score - d.first_score
        freedom = {"items": math.inf, "checkpoints": checkpoints.freedom, "seeds": seeds.freedom}
        variances = {"items": d.items**2, "checkpoints": d.checkpoints**2, "seeds": d.seeds**2}
        assert (d.seeds_needed == 1) == d.settled
        if math.isfinite(d.seeds_needed):
            fewer = {k: v if k == "items" else v / d.seeds_needed for k, v in variances.items()}
            assert probability_above(abs(gap), fewer, freedom) > SURE - 0.002
        if math.isfinite(d.items_needed) and not d.settled:
            fewer = variances | {"items": variances["items"] * ITEMS / d.items_needed}
            assert probability_above(abs(gap), fewer, freedom) > SURE - 0.002


def test_swapping_the_runs_swaps_the_probability(small):
    one, two = (bc.compare_scores(small, names).differences[0] for names in (["r0", "r1"], ["r1", "r0"]))
    assert one.higher == pytest.approx(1 - two.higher)
    assert one.again == pytest.approx(1 - two.again)
    assert (one.items, one.checkpoints, one.seeds) == (two.items, two.checkpoints, two.seeds)


def test_seeds_of_a_run_are_averaged_and_shrink_its_noise(small):
    families = bc.compare_scores(small, ["r0", "r1"])
    assert families.models == {"r0": ("r0-s0@11", "r0-s1@11"), "r1": ("r1-s0@11", "r1-s1@11")}
    singles = bc.compare_scores(small, ["r0-s0", "r1-s0"])
    assert singles.models == {"r0-s0": ("r0-s0@11",), "r1-s0": ("r1-s0@11",)}
    both, single = families.differences[0], singles.differences[0]
    assert both.seeds == pytest.approx(single.seeds / math.sqrt(2))
    assert both.first_score != single.first_score


def test_stated_probabilities_come_true_in_synthetic_runs():
    """Recipes of different quality: as many orders as stated are found again in new runs."""
    rng = np.random.default_rng(5)
    stated, right = [], []
    for _ in range(60):
        models, scores = noisy_runs(rng, seeds=2, recipes=5)
        known = scored_models(models, scores, ["task"])
        hidden = np.array([m.family in ("r0", "r1") and m.seed == "1" for m in known.models])
        checkpoints = checkpoint_variance(known, np.flatnonzero(~hidden))
        seeds = seed_variance(known, ~hidden, checkpoints)
        index = {m.model: i for i, m in enumerate(known.models)}
        for c in range(0, 12, 3):
            rows = [("a", np.array([index[f"r0-s0@{c}"]])), ("b", np.array([index[f"r1-s0@{c}"]]))]
            p = difference(known, 0, rows, checkpoints=checkpoints, seeds=seeds).again
            outcome = known.scores[0, index[f"r1-s1@{c}"]] > known.scores[0, index[f"r0-s1@{c}"]]
            stated.append(max(p, 1 - p))
            right.append(float(outcome == (p > 0.5)))
    assert np.mean(right) == pytest.approx(np.mean(stated), abs=0.04)


def test_the_command_prints_noise_and_what_would_settle_it(cli, small):
    ran = cli("compare", small.root, "--runs", "r0,r1")
    assert ran.code == 0, ran.err
    assert "scores of r0-s0@11, r0-s1@11; r1-s0@11, r1-s1@11" in ran.out
    assert ran.err.startswith("no forecasts: ")
    printed = json.loads(cli("compare", small.root, "--runs", "r0,r1", "--json").out)
    row = printed["scores"]["differences"][0]
    assert row["second"] == "r1"
    assert 0 < row["higher"] < 1
    assert row["seeds_needed"] is None or row["seeds_needed"] >= 1


def test_missing_noise_is_named(cli, tmp_path):
    study = Study.create(tmp_path / "s", TextSet.of([Text("a", "x", "one")]), tasks=[Task("task", 0.25)])
    study.add_scores([Score("a", "task", 0.5, n_items=100), Score("b", "task", 0.6, n_items=100)])
    comparison = bc.compare_scores(study, ["a", "b"])
    assert [note.split(" is not")[0] for note in comparison.notes] == ["noise of checkpoints", "noise of seeds"]
    assert comparison.differences[0].higher == pytest.approx(0.923, abs=0.002)
    assert len(comparison.differences) == 1, "one task has no mean"
    with pytest.raises(InputError, match="unknown run 'c'"):
        bc.compare_scores(study, ["a", "c"])
    with pytest.raises(InputError, match="two or more different runs"):
        bc.compare_scores(study, ["a", "a"])


def test_runs_without_scores_or_common_compute_are_one_line(small):
    small.add_models([ModelInfo("new@1", "new", 1e8, 1e9)])
    with pytest.raises(NotEnoughDataError, match="new: no scores on task"):
        bc.compare_scores(small, ["r0", "new"])
    with pytest.raises(InputError, match="one of them is part of another"):
        bc.compare_scores(small, ["r0", "r0-s0"])


def test_probabilities_are_calibrated_on_recipes_that_were_run_twice():
    if not datasets.find("olmo-ladder").cached:  # asked here: tests have a cache of their own
        pytest.skip("the files of olmo-ladder are not here")
    rows = rerun_calibration(datasets.fetch("olmo-ladder"))
    assert len({r.sizes for r in rows}) == 10
    for _, stated, right, count in calibration_table(rows):
        assert right > stated - 0.08, (stated, right, count)
    assert abs(np.mean([r.right - r.probability for r in rows])) < 0.02
    assert brier(rows) < 0.06
    assert lines(rows)[-1].startswith(f"{len(rows)} comparisons: ")
