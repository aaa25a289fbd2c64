"""Bounds cover the text under every vocabulary, or the text is refused with the reason."""

from __future__ import annotations

from typing import Any

import fetch
import numpy as np
import pytest
import tokenizers
import vocabularies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, processors
from vocabularies import ALL, BUILT_HERE, vocabulary

from benchcast.collection.tokenizers import FastTokenizer, Tokenizer, locate, spell
from benchcast.errors import InputError

NASTY = {
    "family emoji": "a👩‍👩‍👧‍👦b🏳️‍🌈!",
    "three scripts": "今天天气很好，日本語テスト 한국어",
    "leading spaces": "  two leading",
    "double spaces": "a  b   c",
    "tabs": "\tif x:\n\t\treturn\t1",
    "windows lines": "a\r\nb\r\n\r\n",
    "composed": "caf\u00e9",
    "decomposed": "cafe\u0301",
    "control": "a\x00b\x07c\x1b[0m\x7f",
    "zero width": "a\u200bb\u200dc\ufeffd\u2060",
    "nothing": "",
    "empty line": "\n",
    "100 kB of one letter": "a" * 100_000,
    "the mark of a space": "a▁b ▁ ▁▁c",
    "markup": "<s>x</s><|endoftext|><bos><0x41>[UNK]",
    "other spaces": "a\u00a0b\u3000c\u2009",
    "rare planes": "𒀀𓀀\U0010ffff\ue000",
    "one space": " ",
    "only spaces": "     ",
    "trailing spaces": "end  ",
}
REFUSED = {  # a normaliser that changes the text; pieces for bytes that are also matched as text
    ("qwen2_5", "decomposed"): r"normaliser \(NFC\) changes the text at character 3",
    ("unigram", "markup"): "its tokens spell",
}


def names(*chosen: str) -> list[Any]:
    """Vocabularies to test with; those that are fetched are slow."""
    return [name if name in BUILT_HERE else pytest.param(name, marks=pytest.mark.slow) for name in chosen]


@pytest.fixture
def tokenizer(name: str) -> Tokenizer:
    """Fetched before the time limit of the test begins; a file that cannot be had skips the test."""
    if name == "cl100k_base":
        pytest.importorskip("tiktoken")
    if name.startswith("spm"):
        pytest.importorskip("sentencepiece")
    try:
        return vocabulary(name)
    except fetch.OutOfReachError as error:
        pytest.skip(str(error))


def assert_exact(tokenizer: Tokenizer, text: str) -> None:
    ids, bounds = locate(tokenizer, text)
    whole = text.encode()
    assert bounds.dtype == np.int64
    assert len(bounds) == len(ids) + 1
    assert bounds[0] == 0
    assert bounds[-1] == len(whole)
    assert (np.diff(bounds) >= 0).all()
    plain = text.replace("▁", " ").encode() if tokenizer.marks_spaces else whole
    if len(plain) == len(whole):
        for piece, a, b in zip(tokenizer.pieces(ids), bounds[:-1], bounds[1:], strict=True):
            assert whole[a:b] in (piece, piece.removeprefix(b" "))


@pytest.mark.parametrize("name", names(*ALL))
def test_bounds_cover_nasty_texts_or_name_the_normaliser(name: str, tokenizer: Tokenizer) -> None:
    for what, text in NASTY.items():
        if (name, what) in REFUSED:
            with pytest.raises(InputError, match=REFUSED[name, what]):
                locate(tokenizer, text)
        else:
            assert_exact(tokenizer, text)


@pytest.mark.parametrize("name", names(*ALL))
def test_all_texts_at_once_have_the_ids_of_each_text_alone(tokenizer: Tokenizer) -> None:
    texts = list(NASTY.values())
    assert tokenizer.encode_all(texts) == [tokenizer.encode(text) for text in texts]


@pytest.mark.parametrize("name", names("gpt2", "internlm2", "yi", "llama2c", "gemma3", "spm-unigram", "unigram"))
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_bounds_cover_any_text(tokenizer: Tokenizer, text: str) -> None:
    assert_exact(tokenizer, text)


@pytest.mark.parametrize("name", names("llama2c"))
def test_a_dummy_prefix_has_no_width(tokenizer: Tokenizer) -> None:
    ids, bounds = locate(tokenizer, "今日")
    assert tokenizer.pieces(ids)[0] == b" "
    assert bounds.tolist() == [0, 0, 3, 6]


@pytest.mark.parametrize("name", names("llama2c"))
def test_a_dummy_prefix_takes_no_width_from_the_first_token(tokenizer: Tokenizer) -> None:
    _, bounds = locate(tokenizer, "Once upon")
    assert bounds.tolist() == [0, 4, 9]


@pytest.mark.parametrize("name", names("llama2c"))
def test_a_leading_space_of_the_text_keeps_its_width(tokenizer: Tokenizer) -> None:
    ids, bounds = locate(tokenizer, " Once")
    assert len(ids) == 2
    assert bounds.tolist() == [0, 0, 5] or bounds.tolist() == [0, 1, 5]


@pytest.mark.parametrize("name", names("gpt2"))
def test_pieces_of_one_character_get_one_byte_each(tokenizer: Tokenizer) -> None:
    ids, bounds = locate(tokenizer, "👩")
    assert len(ids) > 1
    assert bounds[-1] == 4
    assert (np.diff(bounds) > 0).all()


@pytest.mark.parametrize("name", names("llama2c"))
def test_special_tokens_in_a_text_are_read_as_text(tokenizer: Tokenizer) -> None:
    ids, _ = locate(tokenizer, "<s>")
    assert 1 not in ids
    assert len(ids) > 1


def test_wordpiece_gives_spaces_to_the_next_token() -> None:
    _, bounds = locate(vocabularies.wordpiece(lowercase=False), "the fox")
    assert bounds[0] == 0
    assert bounds[-1] == 7
    assert 3 in bounds
    assert 4 not in bounds


@pytest.mark.parametrize(
    ("text", "reason"),
    [("The fox", r"normaliser \(BertNormalizer\) changes the text at character 0: 'The fox' becomes 'the fox'"),
     ("the ☃", r"lacks part of the text, which became '\[UNK\]'")],
)  # fmt: skip
def test_wordpiece_refuses_what_it_cannot_spell(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        locate(vocabularies.wordpiece(lowercase=True), text)


def test_tokens_that_spell_something_else_are_refused() -> None:
    liar = Tokenizer("liar", lambda text: [0] * len(text), lambda token: b"x")
    with pytest.raises(InputError, match=r"tokenizer 'liar': its tokens spell 'xx' at byte 0, the text has 'ab'"):
        locate(liar, "ab")


@pytest.mark.parametrize("name", names("smollm2"))
def test_a_byte_that_the_vocabulary_lacks_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="lacks the byte 0xF1, so part of the text is lost"):
        locate(tokenizer, "\U00040000")


def test_a_mark_in_the_text_is_three_bytes_wide() -> None:
    bounds = spell([b"a", b" ", b"b"], "a▁b", marks_spaces=True)
    assert bounds is not None
    assert bounds.tolist() == [0, 1, 4, 5]


def test_pieces_that_do_not_spell_the_text_have_no_bounds() -> None:
    assert spell([b"a", b"b"], "ac") is None
    assert spell([b"a"], "aa") is None
    assert spell([], "a") is None


def test_the_unknown_token_of_a_unigram_vocabulary_is_named() -> None:
    raw = tokenizers.Tokenizer(models.Unigram([("[none]", 0.0), ("a", -1.0), ("b", -1.0)], unk_id=0))
    with pytest.raises(InputError, match=r"lacks part of the text, which became '\[none\]'"):
        locate(FastTokenizer(raw, "small"), "ab☃")


def test_a_normaliser_that_adds_a_space_in_front_is_blamed_for_its_other_change_alone() -> None:
    raw = tokenizers.Tokenizer(models.Unigram([("[none]", -9.0), ("▁a", -1.0), ("b", -1.0)], unk_id=0))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Lowercase()])
    raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    with pytest.raises(InputError, match="changes the text at character 1: 'BC' becomes 'bc'"):
        locate(FastTokenizer(raw, "small"), "aBC")


class Spans(Tokenizer):
    """A tokenizer without pieces that knows the offsets of its tokens."""

    def __init__(self, spans: list[tuple[int, int, str]]) -> None:
        super().__init__("spans", lambda text: [0] * len(spans), lambda token: b"?")
        self._spans = spans

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        return self._spans


def test_a_token_without_characters_has_no_width() -> None:
    _, bounds = locate(Spans([(0, 0, ""), (0, 2, "ab"), (2, 2, ""), (3, 5, "cd")]), "ab cd")
    assert bounds.tolist() == [0, 0, 2, 2, 5]


@pytest.mark.parametrize(
    "spans",
    [[(0, 2, "ab"), (1, 5, "b cd")], [(0, 2, "ab"), (4, 5, "d")], [(0, 2, "ab")], [(0, 2, "ax"), (3, 5, "cd")]],
)
def test_offsets_that_overlap_leave_something_out_or_have_another_surface_are_refused(spans) -> None:
    with pytest.raises(InputError, match="its tokens spell"):
        locate(Spans(spans), "ab cd")


def test_tokens_that_end_before_the_text_are_refused_at_their_end() -> None:
    short = Tokenizer("short", lambda text: [0], lambda token: b"ab")
    with pytest.raises(InputError, match="its tokens spell '' at byte 2, the text has 'cd'"):
        locate(short, "abcd")


def test_tokens_that_a_template_adds_do_not_count_in_offsets() -> None:
    raw = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "the": 2, "fox": 3}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    ids, bounds = locate(FastTokenizer(raw, "small"), "the fox")
    assert (ids, bounds.tolist()) == ([2, 3], [0, 3, 7])
