"""The paper's tables and models as data."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchcast.folds import make_folds, split_by_size
from benchcast.paper.models import SERIES, hub_ids, paper_models, paper_scores, paper_tasks
from benchcast.paper.tables import TABLE_1, TABLE_2, TABLE_3, TABLE_4, TASKS, scores, split

PAPER = Path(__file__).parents[2].parent / "shared" / "paper.md"


def test_there_are_59_models_with_six_scores_each() -> None:
    table = scores()
    assert len(table) == 59
    assert len(TABLE_3.splitlines()) - 1 == 44
    assert len(TABLE_4.splitlines()) - 1 == 15
    assert all(set(row) == set(TASKS) and all(0 < a < 1 for a in row.values()) for row in table.values())
    assert table["Qwen2-72B"]["ceval"] == 0.89
    assert table["gemma-2-9b-it"]["gsm8k"] == 0.8666


@pytest.mark.parametrize(
    ("task", "total"),
    [
        ("bbh", 3394.88),
        ("ceval", 3804.13),
        ("cmmlu", 3875.35),
        ("gsm8k", 3778.21),
        ("hellaswag", 4189.00),
        ("mmlu", 3858.14),
    ],
)
def test_column_sums_are_those_of_the_printed_tables(task: str, total: float) -> None:
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


def test_the_split_names_only_models_that_have_scores() -> None:
    assert set(split()) <= set(scores())
    assert Counter(split().values()) == {"train": 36, "validation": 11, "test": 10}
    cells = [cell for cell, _ in TABLE_2["test"]]
    assert cells.count("Yi-1.5-34B-Chat") == 2
    assert dict(TABLE_2["train"])["internlm2.5-{1.8, 7}B-chat-sft"] == ()
    assert set(scores()) - set(split()) == {"gemma-2-2b-it", "gemma-2-9b-it"}


def test_every_scored_model_has_a_hub_id_a_family_and_a_size() -> None:
    models = paper_models()
    assert {m.model for m in models} == set(scores()) == set(hub_ids())
    assert all(m.family and m.params > 1e9 for m in models)
    assert all(re.fullmatch(r"[\w-]+/[\w.-]+", i) for i in hub_ids().values())
    assert len(set(hub_ids().values())) == 59
    assert all(np.isfinite(m.tokens) or m.model.startswith("internlm") for m in models)


def test_base_and_chat_models_of_one_size_are_families_apart() -> None:
    for series in SERIES:
        sizes = [params for params, _ in series.sizes.values()]
        assert len(set(sizes)) == len(sizes)
        assert sizes == sorted(sizes)
    assert len({m.family for m in paper_models()}) == 19


def test_sizes_agree_with_the_names() -> None:
    for m in paper_models():
        printed = re.search(r"(\d+(?:[._]\d+)?)[bB]\b", m.model.replace("-hf", "").replace("_8b", ".8b"))
        assert printed is not None, m.model
        assert m.params / 1e9 == pytest.approx(float(printed.group(1).replace("_", ".")), rel=0.35)


def test_the_split_column_and_the_split_by_size_can_both_be_made() -> None:
    models = paper_models()
    name, (fold,) = make_folds(models, None)
    assert name == "column"
    assert (fold.train.sum(), fold.validation.sum(), fold.test.sum()) == (36, 11, 10)
    assert (split_by_size(models) == "test").sum() == 15


def test_scores_and_tasks_fit_together() -> None:
    assert len(paper_scores()) == 59 * 6
    assert {s.task for s in paper_scores()} == {t.name for t in paper_tasks()} == set(TABLE_1)
    chances = {t.name: t.chance for t in paper_tasks()}
    assert all(s.accuracy > chances[s.task] for s in paper_scores())
