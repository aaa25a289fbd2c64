"""The table of `python -m lab quality`, on a small synthetic study."""

from __future__ import annotations

import numpy as np
import pytest

from benchcast.evaluate import compare
from benchcast.store import Study
from lab import quality


@pytest.fixture(scope="module")
def rows(synthetic_folder, tmp_path_factory) -> list[quality.Quality]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "METHODS", ("salience", "pls", "logistic-4", "all-token"))
        return quality.measure_study("synthetic", "family", Study.open(synthetic_folder))


def test_gain_is_measured_against_all_token_and_regret_against_the_best_single_method(rows) -> None:
    by_method = {row.method: row for row in rows}
    assert set(by_method) == {"salience", "pls", "logistic-4", "all-token", *quality.AVERAGES}
    assert by_method["all-token"].gain == pytest.approx(1.0)
    singles = [row for row in rows if row.method in quality.SINGLE]
    assert min(row.regret for row in singles) == pytest.approx(1.0)
    best = max(row.gain for row in singles)
    for row in rows:
        assert row.gain * row.regret == pytest.approx(best)
        assert row.worst >= row.regret * 0.999


def test_coverage_and_interval_score_are_those_of_the_held_out_models(rows, synthetic_folder) -> None:
    row = next(r for r in rows if r.method == "all-token")
    held_out = compare(synthetic_folder, split="family", methods=["all-token"]).held_out.values()
    inside = np.concatenate([(h.observed >= h.low) & (h.observed <= h.high) for h in held_out])
    assert row.coverage == pytest.approx(inside.mean())
    assert row.covered[0] <= row.coverage <= row.covered[1]
    assert row.interval_score >= row.width


def test_a_plain_average_has_no_interval(rows) -> None:
    row = next(r for r in rows if r.method in quality.AVERAGES)
    assert np.isnan(row.coverage)
    assert "–" in quality.cells(row)


def test_a_split_without_test_models_is_passed_over(synthetic_folder) -> None:
    assert quality.measure_study("synthetic", "column", Study.open(synthetic_folder)) == []
