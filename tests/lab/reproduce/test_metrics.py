"""The part of the results page on metrics to watch."""

from __future__ import annotations

from benchcast import datasets
from lab.reproduce.context import StudyContext
from lab.reproduce.metrics import metrics


def test_metrics_of_the_embedded_study_are_ratios_shares_and_points(monkeypatch) -> None:
    monkeypatch.setattr("lab.reproduce.metrics.PUBLIC", ())
    outcome = metrics(StudyContext(datasets.load_zoo()))
    (table,) = outcome.tables
    by_metric = {row[2]: row[3:] for row in table.rows}
    assert {"score", "loss of answers", "all-token loss"} <= by_metric.keys()
    right = {metric: float(cells[1].rstrip("%")) for metric, cells in by_metric.items()}
    assert 50 < right["all-token loss"] < right["loss of answers"] <= 100, "plain loss tells the zoo's runs apart worst"
    error = {metric: float(cells[2]) for metric, cells in by_metric.items()}
    assert error["loss of answers"] < error["all-token loss"]
