"""The paper's tables and models as data, what they cost on a cluster, and what their scores alone tell."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchcast.study.study import Study
from benchmark_files import REAL
from lab.paper.models import hub_ids, paper_models, paper_scores, paper_tasks
from lab.paper.tables import TABLE_1, TABLE_2, TABLE_3, TABLE_4, TASKS, scores, split

PAPER = Path(__file__).parents[3].parent / "shared" / "paper.md"
COLUMN_SUMS = {
    "bbh": 3394.88, "ceval": 3804.13, "cmmlu": 3875.35, "gsm8k": 3778.21, "hellaswag": 4189.00, "mmlu": 3858.14
}  # fmt: skip


def test_scores_of_59_models_add_up_to_the_printed_columns() -> None:
    assert len(paper_scores()) == 59 * 6
    assert {t.name for t in paper_tasks()} == set(TABLE_1) == set(TASKS)
    for task, total in COLUMN_SUMS.items():
        assert 100 * sum(row[task] for row in scores().values()) == pytest.approx(total, abs=0.001)


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper is not beside the repository")
def test_every_cell_is_as_in_the_paper() -> None:
    printed = PAPER.read_text(encoding="utf-8")
    for table in (TABLE_3, TABLE_4):
        for row in csv.reader(table.splitlines()):
            assert "\n" + "\t".join(row) + "\n" in printed + "\n"
    for task, row in TABLE_1.items():
        cells = re.search(rf"\n{task}\t(\S+)\t(\S+)\t(\S+)", printed)
        assert cells is not None
        assert tuple(map(float, cells.groups())) == (row.salience, row.all_token, row.label_token)
    for cells_of in TABLE_2.values():
        assert all(cell in printed for cell, _ in cells_of)


def test_every_scored_model_has_a_hub_id_a_family_a_size_and_its_part_of_the_split() -> None:
    models = paper_models()
    assert {m.model for m in models} == set(scores()) == set(hub_ids())
    assert all(m.family and m.params > 1e9 for m in models)
    assert len(set(hub_ids().values())) == 59
    assert Counter(split().values()) == {"train": 36, "validation": 11, "test": 10}
    assert sum(np.isnan(m.tokens) for m in models if not m.model.startswith("internlm")) == 4


def test_baselines_are_printed_beside_the_papers_table_1(lab: Callable[..., Any]) -> None:
    ran = lab("baselines")
    assert ran.code == 0
    line = next(x for x in ran.out.splitlines() if x.startswith("mmlu"))
    assert line.split()[1:5] == ["1.45e-03", "2.40e-02", "3.31e-02", "2.43e-02"]
    by_task = json.loads(lab("baselines", "--json").out)["tasks"]
    assert all(by_task[t]["observational"]["mse"] < by_task[t]["constant"]["mse"] for t in TASKS)


def test_each_size_of_a_cluster_is_printed(lab: Callable[..., Any]) -> None:
    ran = lab("cluster", "--gpus", "8,16", "--price", "3")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[-2:]] == ["8", "16"]
    assert lab("cluster", "--gpus", "2").err.startswith("error: 2 GPUs; the largest model needs 4 of one node")


@pytest.mark.skipif(not REAL.is_dir(), reason="the benchmarks are not beside the repository")
def test_a_plan_makes_the_study_and_tells_the_cost(lab: Callable[..., Any], tmp_path: Path) -> None:
    ran = lab("plan", tmp_path / "p", "--data", REAL)
    assert ran.code == 0, ran.err
    study = Study.open(tmp_path / "p" / "study")
    assert (len(study.texts), len(study.scores())) == (550, 354)
    assert {m.model: m.split for m in study.models()} == {m.model: m.split for m in paper_models()}
    assert "GPU hours" in ran.out
