"""`compare --runs` on a study from logs: the noise of items is taken from differences item by item."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from log_files import METRIC, NEW

import benchcast as bc
from benchcast.study.outcomes import outcomes_path, read_outcomes

RUNS = ["models/reed-c", "models/reed-d"]


def of_task(comparison, task):
    return next(d for d in comparison.differences if d.task == task)


def test_noise_of_items_is_that_of_the_differences(logged):
    found = of_task(bc.compare_scores(logged, RUNS), "pond_last")
    first, second = (read_outcomes(logged, run).tasks["pond_last"].right for run in RUNS)
    d = second - first
    n = len(d)
    assert found.items**2 == pytest.approx(d.var(ddof=1) / n + 1 / n**2)
    assert found.second_score - found.first_score == pytest.approx(d.mean())


def test_the_output_says_how_much_narrower_the_noise_is(cli, logged):
    ran = cli("compare", logged, "--runs", ",".join(RUNS))
    assert ran.code == 0, ran.err
    assert "noise of items is taken item by item: " in ran.out
    found = bc.compare_scores(logged, RUNS)
    assert all(np.isfinite(d.unpaired) for d in found.differences)


def test_without_outcomes_the_noise_is_unpaired_as_before(logged, tmp_path):
    study = bc.Study.open(shutil.copytree(logged, tmp_path / "s"))
    paired = bc.compare_scores(study, RUNS)
    outcomes_path(study, RUNS[0]).unlink()
    unpaired = bc.compare_scores(study, RUNS)
    for one, other in zip(paired.differences, unpaired.differences, strict=True):
        assert other.items == pytest.approx(one.unpaired)
        assert np.isnan(other.unpaired)


def test_with_half_of_the_items_as_texts_only_the_scored_items_are_paired(cli, tmp_path):
    assert cli("init", tmp_path / "s", "--from-lm-eval", NEW, "--items", "0.5", *METRIC).code == 0
    study = bc.Study.open(tmp_path / "s")
    found = of_task(bc.compare_scores(study, RUNS), "pond")
    score = next(s for s in study.scores() if (s.model, s.task) == (RUNS[0], "pond"))
    learned = {t.id.rpartition("-")[0] for t in study.texts}
    outcomes = [read_outcomes(study, run).tasks["pond"] for run in RUNS]
    kept = [f"{part}-{item.partition('-')[0]}" not in learned for part, item in outcomes[0].keys]
    d = (outcomes[1].right - outcomes[0].right)[kept]
    assert len(d) == score.n_items
    assert found.items**2 == pytest.approx(d.var(ddof=1) / len(d) + 1 / len(d) ** 2)
