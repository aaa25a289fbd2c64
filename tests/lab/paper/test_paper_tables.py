"""The paper's tables and models as data."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchcast.folds import make_folds
from benchcast.splits import split_by_size
from lab.paper.models import SERIES, TOKENS_FROM, hub_ids, paper_models, paper_scores, paper_tasks
from lab.paper.tables import TABLE_1, TABLE_2, TABLE_3, TABLE_4, TASKS, scores, split

PAPER = Path(__file__).parents[3].parent / "shared" / "paper.md"


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


def test_every_token_count_has_a_source_and_what_the_makers_do_not_state_is_unknown() -> None:
    unknown = {m.model for m in paper_models() if np.isnan(m.tokens) and not m.model.startswith("internlm")}
    assert unknown == {"Qwen1.5-32B", "Qwen1.5-32B-Chat", "Yi-1.5-9B", "Yi-1.5-9B-Chat"}
    for m in paper_models():
        assert any(m.family.startswith(f) for f in TOKENS_FROM) == (not m.model.startswith("internlm"))


# layers, width, width of the feed-forward part, heads of queries and of keys, width of a head, vocabulary, embeddings
SHAPES = {
    "Llama-2-7b": (32, 4096, 11008, 32, 32, 128, 32000, 2),
    "Llama-2-13b": (40, 5120, 13824, 40, 40, 128, 32000, 2),
    "llama-2-70b": (80, 8192, 28672, 64, 8, 128, 32000, 2),
    "Meta-Llama-3-8B": (32, 4096, 14336, 32, 8, 128, 128256, 2),
    "Meta-Llama-3-70B": (80, 8192, 28672, 64, 8, 128, 128256, 2),
    "Qwen1.5-1.8B": (24, 2048, 5504, 16, 16, 128, 151936, 2),
    "Qwen1.5-4B": (40, 2560, 6912, 20, 20, 128, 151936, 2),
    "Qwen1.5-7B": (32, 4096, 11008, 32, 32, 128, 151936, 2),
    "Qwen1.5-14B": (40, 5120, 13696, 40, 40, 128, 152064, 2),
    "Qwen1.5-32B": (64, 5120, 27392, 40, 8, 128, 152064, 2),
    "Qwen1.5-72B": (80, 8192, 24576, 64, 64, 128, 152064, 2),
    "Qwen2-1.5B": (28, 1536, 8960, 12, 2, 128, 151936, 1),
    "Qwen2-7B": (28, 3584, 18944, 28, 4, 128, 152064, 2),
    "Qwen2-72B": (80, 8192, 29568, 64, 8, 128, 152064, 2),
    "Yi-6B": (32, 4096, 11008, 32, 4, 128, 64000, 2),
    "Yi-34B": (60, 7168, 20480, 56, 8, 128, 64000, 2),
    "Yi-1.5-6B": (32, 4096, 11008, 32, 4, 128, 64000, 2),
    "Yi-1.5-9B": (48, 4096, 11008, 32, 4, 128, 64000, 2),
    "Yi-1.5-34B": (60, 7168, 20480, 56, 8, 128, 64000, 2),
    "gemma-2-2b": (26, 2304, 9216, 8, 4, 256, 256000, 1),
    "gemma-2-9b": (42, 3584, 14336, 16, 8, 256, 256000, 1),
    "gemma-2-27b": (46, 4608, 36864, 32, 16, 128, 256000, 1),
    "internlm2-1_8b": (24, 2048, 8192, 16, 8, 128, 92544, 2),
    "internlm2-7b": (32, 4096, 14336, 32, 8, 128, 92544, 2),
    "internlm2-20b": (48, 6144, 16384, 48, 8, 128, 92544, 2),
}


def test_parameters_are_those_that_the_shapes_of_the_models_add_up_to() -> None:
    for m in paper_models():
        base = re.sub(r"-(chat|sft|instruct|it|hf)(?=-|$)", "", m.model, flags=re.IGNORECASE).replace("2_5", "2")
        (shape,) = (s for name, s in SHAPES.items() if name.casefold() == base.casefold())
        layers, width, inner, queries, keys, head, vocabulary, embeddings = shape
        layer = 2 * width * head * (queries + keys) + 3 * width * inner
        assert m.params == pytest.approx(embeddings * vocabulary * width + layers * layer, rel=4e-3), m.model


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
    name, (fold,) = make_folds(models, "auto")
    assert name == "column"
    assert (fold.train.sum(), fold.validation.sum(), fold.test.sum()) == (36, 11, 10)
    assert (split_by_size(models) == "test").sum() == 15


def test_scores_and_tasks_fit_together() -> None:
    assert len(paper_scores()) == 59 * 6
    assert {s.task for s in paper_scores()} == {t.name for t in paper_tasks()} == set(TABLE_1)
    chances = {t.name: t.chance for t in paper_tasks()}
    assert all(s.accuracy > chances[s.task] for s in paper_scores())
