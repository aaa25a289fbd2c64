"""The part of the results page on metrics to watch."""

from __future__ import annotations

import pytest

import benchcast as bc
from benchcast import datasets
from lab.reproduce.context import StudyContext
from lab.reproduce.metrics import metrics


def test_metrics_of_the_embedded_study_are_ratios_shares_and_points(monkeypatch) -> None:
    monkeypatch.setattr("lab.reproduce.metrics.PUBLIC", ())
    outcome = metrics(StudyContext(datasets.load_zoo()))
    table, beside_printed = outcome.tables
    by_metric = {row[2]: row[3:] for row in table.rows}
    assert {"score", "loss of answers", "all-token loss"} <= by_metric.keys()
    right = {metric: float(cells[1].rstrip("%")) for metric, cells in by_metric.items()}
    assert 50 < right["all-token loss"] < right["loss of answers"] <= 100, "plain loss tells the zoo's runs apart worst"
    error = {metric: float(cells[2]) for metric, cells in by_metric.items()}
    assert error["loss of answers"] < error["all-token loss"]
    assert {row[4:] for row in beside_printed.rows} == {
        ("–", "–", study) for study in ("olmo-ladder-choice", "dclm", "–")
    }


def test_our_figures_stand_beside_those_that_were_printed(monkeypatch) -> None:
    if not datasets.find("dclm").cached:
        pytest.skip("no files of DCLM (BENCHCAST_DATA)")
    monkeypatch.setattr("lab.reproduce.metrics.PUBLIC", ("dclm",))
    _, table = metrics(StudyContext(datasets.load_zoo())).tables
    (row,) = (row for row in table.rows if row[0] == "BoolQ")
    small = [r for r in bc.proxies(datasets.fetch("dclm"), tasks=["boolq"], forecast=False).rows if r.stage == "412M"]
    ours = {r.metric: f"{r.decisions:.0%}" for r in small}
    assert row == ("BoolQ", "right decisions", "48%", "–", ours["score"], ours["loss of answers"], "dclm")
