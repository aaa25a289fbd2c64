"""Bits per byte against a naive loop, and the mistakes that are common elsewhere."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

import benchcast
from benchcast.errors import InputError
from benchcast.records import NamedTexts, Text, TextSet
from benchcast.study.bits_per_byte import bits_per_byte
from benchcast.study.loss_files import LossRows, lay_out
from benchcast.study.study import Study


def make_study(root, texts, bounds, nats, model="m"):
    """A study of one model, from bounds and nats of each text."""
    study = Study.create(root, TextSet.of(texts))
    bounds, nats = [np.array(b) for b in bounds], [np.array(x, float) for x in nats]
    rows = LossRows.of("test", model, [t.id for t in texts], bounds=bounds, nats=nats)
    study.add_losses([lay_out(rows, study.texts, {})])
    return study


def bits(study, source="all"):
    (row,) = [r for r in bits_per_byte(study).rows if r.source == source]
    return row


def test_a_synthetic_study_agrees_with_a_naive_loop(study):
    model = study.models_with_losses()[0]
    losses, texts = study.losses(model), study.texts
    for source in texts.sources:
        nats = length = 0.0
        token = 0
        for text, count in zip(texts, losses.counts, strict=True):
            for _ in range(count):
                if text.source == source and losses.nats[token] == losses.nats[token]:
                    nats += losses.nats[token]
                    length += losses.edges[token + 1] - losses.edges[token]
                token += 1
        (row,) = [r for r in bits_per_byte(study, [model]).rows if r.source == source]
        assert row.whole_text == pytest.approx(nats / length / math.log(2))


def test_a_byte_model_of_eight_bits_has_eight_bits_per_byte_in_every_script(tmp_path):
    texts = [Text("a", "en", "Q: yes", 2), Text("b", "zh", "问：是", 6)]
    bounds = [range(7), range(10)]
    study = make_study(tmp_path / "s", texts, bounds, [[math.log(256)] * 6, [math.log(256)] * 9])
    for source in ("en", "zh", "all"):
        assert bits(study, source).whole_text == pytest.approx(8)
        assert bits(study, source).answer == pytest.approx(8)


def test_a_long_answer_is_divided_by_its_length_and_not_by_one(tmp_path):
    study = make_study(tmp_path / "s", [Text("a", "x", "Q: twelve bytes", 2)], [[0, 2, 15]], [[1.0, 13 * math.log(2)]])
    assert bits(study).answer == pytest.approx(1.0)


def test_white_space_after_the_answer_is_not_answer(tmp_path):
    text = Text("a", "x", "Q: yes\n \n", 2)
    study = make_study(tmp_path / "s", [text], [[0, 2, 6, 9]], [[1.0, 4 * math.log(2), 50.0]])
    assert bits(study).answer == pytest.approx(1.0)
    assert bits(study).whole_text == pytest.approx((51 + 4 * math.log(2)) / 9 / math.log(2))


def test_a_token_across_the_start_of_the_answer_shares_its_loss(tmp_path):
    study = make_study(tmp_path / "s", [Text("a", "x", "ab cd", 2)], [[0, 1, 5]], [[0.5, 4 * math.log(2)]])
    assert bits(study).answer == pytest.approx(1.0)


def test_a_first_token_without_loss_counts_neither_in_bits_nor_in_bytes(tmp_path):
    study = make_study(tmp_path / "s", [Text("a", "x", "abcd")], [[0, 1, 4]], [[np.nan, 3 * math.log(2)]])
    assert bits(study).whole_text == pytest.approx(1.0)
    assert math.isnan(bits(study).answer), "no text has an answer"


def test_losses_of_answers_alone_say_nothing_of_whole_texts(tmp_path):
    study = make_study(tmp_path / "s", [Text("a", "x", "question: yes", 9)], [[0, 9, 13]], [[np.nan, 4 * math.log(2)]])
    assert math.isnan(bits(study).whole_text)
    assert bits(study).answer == pytest.approx(1.0)


def test_a_table_of_losses_has_no_bytes(tmp_path):
    study = Study.create(tmp_path / "s", NamedTexts.of([Text("a", "x", "", unit="nats")]))
    with pytest.raises(InputError, match="bits per byte needs the texts themselves"):
        bits_per_byte(study)


def test_the_command_prints_a_table_and_writes_values_and_a_figure(study, cli, tmp_path):
    ran = cli("bpb", study.root, "--csv", tmp_path / "bpb.csv", "--plot", tmp_path / "bpb.svg")
    assert ran.code == 0, ran.err
    assert "bits per byte" in ran.out
    table = benchcast.bits_per_byte(study)
    with (tmp_path / "bpb.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(table.rows) == len(study.models_with_losses()) * (len(study.texts.sources) + 1)
    assert float(rows[0]["whole_text"]) == pytest.approx(table.rows[0].whole_text)
    assert f"{table.rows[0].whole_text:.3f}" in ran.out
    assert "bits per byte" in (tmp_path / "bpb.svg").read_text(encoding="utf-8")
    assert len(table.to_pandas()) == len(rows)
    assert "no losses of model 'x'" in cli("bpb", study.root, "--model", "x").err
