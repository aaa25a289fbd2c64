"""What a forecast reads beside the evaluation itself, counted with a real tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.paper.reading import BENCHMARKS

TOKENIZER = Path(__file__).resolve().parents[2] / "zoo" / "shipped" / "ash-0.5M" / "tokenizer.json"


def test_tokens_are_items_times_shots_and_item_and_the_texts_are_far_fewer(lab, written):
    ran = lab("reading", "--data", written, "--tokenizer", TOKENIZER, "--json")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    rows = {row["name"]: row for row in answer["benchmarks"]}
    assert rows.keys() == BENCHMARKS.keys()
    mmlu, endings = rows["mmlu"], rows["hellaswag"]
    assert mmlu["tokens"] == pytest.approx(14042 * (5 * mmlu["shot_tokens"] + mmlu["item_tokens"]))
    assert endings["tokens"] == pytest.approx(4 * 10042 * endings["item_tokens"]), "each ending is read with its prompt"
    assert answer["texts"] <= 550
    assert answer["tokens"] < 0.05 * sum(row["tokens"] for row in rows.values())


def test_the_table_ends_in_both_figures_and_a_missing_tokenizer_is_one_line(lab, written, tmp_path):
    lines = lab("reading", "--data", written, "--tokenizer", TOKENIZER).out.splitlines()
    assert "times as many" in lines[-1]
    ran = lab("reading", "--data", written, "--tokenizer", tmp_path / "none.json")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
