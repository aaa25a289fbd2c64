"""Training tokens do not depend on who makes them; the validation set has its stated shape."""

from collections import Counter

import numpy as np
import pytest

from lab.zoo import data, vocab
from lab.zoo.families import FAMILIES


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(data, "SHARD_BYTES", 20_000)


def test_shards_are_the_same_in_any_order_and_on_any_try(work, tmp_path, small_shards):
    family = FAMILIES["cedar"]
    paragraphs = data.background_texts(work)
    later_first = [data.shard_texts(family, shard, paragraphs) for shard in (1, 0)]
    assert later_first == [data.shard_texts(family, shard, paragraphs) for shard in (0, 1)][::-1]


def test_written_tokens_are_documents_between_bos_and_eos(work, small_shards):
    family = FAMILIES["birch"]
    data.write_shard((family, 0), work)
    tokens = np.load(data.shard_path(family, 0, work))
    documents = data.shard_texts(family, 0, data.background_texts(work))
    assert tokens[0] == vocab.BOS
    assert tokens[-1] == vocab.EOS
    assert (tokens == vocab.BOS).sum() == (tokens == vocab.EOS).sum() == len(documents)
    first = tokens[1 : list(tokens).index(vocab.EOS)]
    assert data.load_tokenizer(family.tokenizer, work).decode(first) == documents[0]


def test_loading_more_tokens_than_prepared_starts_over(work, small_shards):
    family = FAMILIES["elm"]
    data.write_shard((family, 0), work)
    once = np.load(data.shard_path(family, 0, work))
    assert (data.load_tokens(family, work, 2 * len(once)) == np.tile(once, 2)).all()


def test_missing_tokens_name_the_command_to_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="run `prepare`"):
        data.load_tokens(FAMILIES["ash"], tmp_path, 10)


def test_mixture_shares_are_kept(work, small_shards):
    family = FAMILIES["hazel"]
    documents = data.shard_texts(family, 0, data.background_texts(work))
    chinese = sum(len(text.encode()) for text in documents if "答：" in text)
    assert chinese / sum(len(text.encode()) for text in documents) == pytest.approx(family.mixture["chinese"], abs=0.03)


def test_validation_set_has_its_shape_and_answers_end_the_texts():
    rows = data.validation()
    assert Counter(row["source"] for row in rows) == {
        "arithmetic": 100, "tracking": 100, "tracking-cot": 50, "facts": 100, "events": 100, "chinese": 100, "code": 100
    }  # fmt: skip
    assert len({row["id"] for row in rows}) == len({row["text"] for row in rows}) == 650
    for row in rows:
        whole = str(row["text"]).encode()
        assert 0 < row["answer_start"] < len(whole)
        assert whole[row["answer_start"] :].decode()
        assert ("Steps:" in str(row["text"])) == (row["source"] in ("arithmetic", "tracking-cot"))
