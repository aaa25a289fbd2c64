"""The report of a study that was made from a table of losses."""

from __future__ import annotations

import numpy as np

import benchcast as bc
from benchcast.records import ModelInfo, Score, Task
from benchcast.reports.report import report_data


def test_the_report_shows_the_sign_of_a_weight(tmp_path):
    """A column whose lower loss lowers the forecast looked like any other."""
    skill = np.linspace(0, 1, 16) + np.random.default_rng(0).normal(0, 0.02, 16)
    lines = [f"m{i},{3 - s:.4f},{2.5 - s:.4f},{1 + s:.4f}" for i, s in enumerate(skill)]
    (tmp_path / "losses.csv").write_text("\n".join(["model,falls,falls too,rises", *lines]))
    study = bc.datasets.create_table_study(tmp_path / "study", tmp_path / "losses.csv").add_tasks([Task("task", 0.0)])
    study.add_models([ModelInfo(f"m{i}", f"f{i % 4}") for i in range(16)])
    study.add_scores([Score(f"m{i}", "task", float(0.2 + 0.5 * s)) for i, s in enumerate(np.clip(skill, 0, 1))])
    page = report_data(study, bc.compare(study, methods=("pls",), split="family"))
    shares = {c["name"]: c["share"] for c in page["columns"]["tasks"][0]["columns"]}
    assert shares["falls"] > 0
    assert shares["rises"] < 0
    assert sum(map(abs, shares.values())) > 0.99
