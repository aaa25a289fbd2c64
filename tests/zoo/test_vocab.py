"""Tokenizers are lossless, bounds are exact, and prompts and answers meet at a token boundary."""

from functools import cache
from itertools import islice, pairwise

import pytest
from transformers import PreTrainedTokenizerFast

from lab.zoo import data, vocab
from lab.zoo.families import FAMILIES, SCORER
from lab.zoo.losses import encode_texts
from lab.zoo.skills import SKILLS
from lab.zoo.skills.common import STEPS, texts

ODD = ["  two  spaces ", "tab\tand\r\nline", "naïve café 🌳", "漢字かな交じり文", "a_b__c = {'x': [1, 2]}", "\n\n x"]


@cache
def all_texts() -> list[str]:
    drawn = [text for skill in SKILLS.values() for text in islice(texts(skill, "vocab"), 200)]
    return drawn + [str(row["text"]) for row in data.validation()] + ODD


@cache
def scored_items(skill):
    return skill.items("score", 100)


@pytest.mark.parametrize("name", vocab.RECIPES)
def test_every_text_survives_encoding(name, work):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(work / "tokenizers" / f"{name}.json"))
    for text in all_texts():
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("name", vocab.RECIPES)
def test_bounds_cover_each_text_and_cut_it_where_its_tokens_do(name, work):
    tokenizer = data.load_tokenizer(name, work)
    pieces, chosen = vocab.token_bytes(tokenizer), all_texts()
    encoded = encode_texts(tokenizer, chosen)
    for text, ids, bounds in zip(chosen, encoded.ids, encoded.bounds, strict=True):
        whole = text.encode()
        assert (bounds[0], bounds[-1], len(bounds)) == (0, len(whole), len(ids) + 1)
        assert [whole[a:b] for a, b in pairwise(bounds)] == [pieces[i] for i in ids]


def test_tokens_that_spell_another_text_are_refused(work):
    tokenizer = data.load_tokenizer("bpe-2k", work)
    with pytest.raises(ValueError, match="lossless"):
        vocab.bounds(tokenizer.encode("one").ids, vocab.token_bytes(tokenizer), "two")


@pytest.mark.parametrize("name", vocab.RECIPES)
def test_prompt_and_continuation_meet_at_a_token_boundary(name, work):
    tokenizer = data.load_tokenizer(name, work)
    for skill in SKILLS.values():
        for item in scored_items(skill):
            head = item.prompt + item.cue
            for option in item.options or (item.answer,):
                apart = tokenizer.encode(head).ids + tokenizer.encode(option).ids
                assert tokenizer.encode(head + option).ids == apart
            if item.steps:
                apart = tokenizer.encode(item.prompt + STEPS).ids + tokenizer.encode(item.steps.removeprefix(STEPS)).ids
                assert tokenizer.encode(item.prompt + item.steps).ids == apart


@pytest.mark.parametrize("family", [*FAMILIES.values(), SCORER], ids=lambda f: f.name)
def test_families_have_room_for_their_tokenizer_and_whole_mixtures(family, work):
    tokenizer = data.load_tokenizer(family.tokenizer, work)
    assert tokenizer.get_vocab_size() <= family.vocabulary
    assert [tokenizer.id_to_token(i) for i in (vocab.BOS, vocab.EOS, vocab.PAD)] == vocab.SPECIAL
    assert sum(family.percents) == 100


def test_chinese_characters_split_into_bytes_without_chinese_merges(work):
    assert len(data.load_tokenizer("bpe-no-chinese-4k", work).encode("问").ids) == 3
    assert len(data.load_tokenizer("bpe-4k", work).encode("问").ids) == 1
