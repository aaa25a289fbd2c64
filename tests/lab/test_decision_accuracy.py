"""Decision accuracy: how often small models order two recipes as large models do."""

from __future__ import annotations

import numpy as np
import pytest

from benchcast import datasets
from benchcast.datasets import dclm
from benchcast.datasets.download import data_folder
from benchcast.store import Study
from lab.decision_accuracy import LARGE, dclm_decisions, decided_right, large_scores, lines, zoo_decisions
from synthetic import Plan, make_world, write_study


def test_decisions_are_orders_of_pairs():
    target = {"a": 0.3, "b": 0.2, "c": 0.1}
    assert decided_right({"a": 3.0, "b": 2.0, "c": 1.0}, target) == [1, 1, 1]
    assert decided_right({"a": 1.0, "b": 2.0, "c": 3.0}, target) == [0, 0, 0]
    assert decided_right({"a": 1.0, "b": 1.0}, target) == [0.5]
    assert decided_right({"a": 1.0, "b": np.nan}, target) == []
    assert decided_right({"a": 2.0, "b": 1.0}, {"a": 0.5, "b": 0.5}) == []


def test_families_of_a_synthetic_study_are_ordered_by_every_signal(tmp_path):
    world = make_world(Plan(seed=3, families=4, sizes=3, checkpoints=1, tasks=1, texts_per_source=4))
    accuracies = zoo_decisions(Study.open(write_study(world, tmp_path / "s").root))
    assert [x.signal for x in accuracies] == ["its own score", "salience", "label-token", "all-token"]
    assert all(0 <= x.right <= 1 and x.decisions > 0 for x in accuracies)
    assert accuracies[0].right == pytest.approx(np.mean(list(accuracies[0].by_task.values())))
    assert lines(accuracies)[0].startswith("its own score")


@pytest.mark.skipif(not (data_folder(None) / dclm.FILE).is_file(), reason="the files of dclm are not here")
def test_recipes_at_7b_are_ordered_by_1b_models():
    target = large_scores(data_folder(None))
    assert LARGE[0] > 6e9
    assert len(target["hellaswag"]) > 40, "models without losses count, too"
    by_signal = {x.signal: x for x in dclm_decisions(datasets.fetch("dclm"), methods=["label-token"])}
    assert by_signal.keys() == {"its own score", "all-token loss", "label-token loss", "forecast, label-token"}
    counts = {x.decisions for x in by_signal.values()}
    assert max(counts) > 500
    assert all(x.right > 0.5 for x in by_signal.values())
    assert set(by_signal["its own score"].by_task) == {t.name for t in datasets.fetch("dclm").tasks}
