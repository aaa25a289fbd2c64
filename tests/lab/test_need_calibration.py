"""Bins of stated probabilities are off where they are, and not where they are not."""

from __future__ import annotations

import numpy as np

from benchcast.datasets import load_zoo
from benchcast.evaluation.compare import compare
from lab.need_calibration import need_calibration, summarised


def drawn(rng, families, *, shift):
    """Stated probabilities; the outcomes of a family share a deviation, and all are moved by `shift`."""
    names, stated, reached = [], [], []
    for family in range(families):
        p = rng.uniform(0, 1, 60)
        logits = np.log(p / (1 - p)) + shift
        stated.append(p)
        reached.append(rng.random(60) < 1 / (1 + np.exp(-logits)))
        names += [f"f{family}"] * 60
    return np.concatenate(stated), np.concatenate(reached), names


def test_true_probabilities_are_seldom_off_and_wrong_ones_are():
    rng = np.random.default_rng(0)
    off = {shift: [] for shift in (0.0, 1.5)}
    for shift, found in off.items():
        for _ in range(40):
            stated, reached, names = drawn(rng, 12, shift=shift)
            found += [b.off for b in summarised("s", "family", stated, reached, families=names).bins]
    assert np.mean(off[0.0]) < 0.1
    assert np.mean(off[1.5]) > 0.6


def test_the_brier_score_is_that_of_the_definition():
    stated, reached = np.array([0.9, 0.2, 0.5]), np.array([True, False, True])
    found = summarised("s", "size", stated, reached, families=["a", "b", "a"])
    assert np.isclose(found.brier, (0.01 + 0.04 + 0.25) / 3)
    assert "Brier score 0.100 (constant 0.222)" in found.line()


def test_scores_inside_the_central_half_are_counted_by_where_the_forecast_is():
    comparison = compare(load_zoo(), tasks=["code"], split="size", methods=["all-token"])
    inside = need_calibration("zoo", "size", comparison, "all-token").inside
    held = comparison.held_out["code", "all-token"]
    chance = comparison.dataset.tasks[0].chance
    near = (held.forecast - chance) / (1 - chance) < 0.05
    assert [count for count, _ in inside.values()] == [near.sum(), (~near).sum()]
    assert all(0 < share < 1 for _, share in inside.values())
