"""Characters as readers count them, kinds of tokens, and odd characters made visible."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchcast.messages import TOKEN_KINDS, character_starts, has_right_to_left, kind_of, visible

FAMILY = "👩\u200d👩\u200d👧"  # three people joined to one picture


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("abc", ["a", "b", "c"]),
        ("e\u0301e", ["e\u0301", "e"]),
        ("a\r\nb\n", ["a", "\r\n", "b", "\n"]),
        (f"x{FAMILY}y", ["x", FAMILY, "y"]),
        ("👍🏽👍", ["👍🏽", "👍"]),
        ("🇩🇪🇫🇷🇯", ["🇩🇪", "🇫🇷", "🇯"]),
        ("❤\ufe0f!", ["❤\ufe0f", "!"]),
        ("中文", ["中", "文"]),
    ],
)
def test_what_a_reader_takes_for_one_character_stays_whole(text, characters):
    cuts = [*character_starts(text), len(text)]
    assert [text[a:b] for a, b in pairwise(cuts)] == characters


@given(st.text())
def test_every_text_starts_with_a_character_and_starts_rise(text):
    starts = list(character_starts(text))
    assert starts == sorted(set(starts))
    assert starts[:1] == ([0] if text else [])


@pytest.mark.parametrize(
    ("token", "before", "kind"),
    [
        (" word", "x", "start of a word"),
        ("Word", "\n", "start of a word"),
        ("ing", "k", "inside a word"),
        (" 42", "", "number"),
        ("٤٢", "", "number"),
        ("中文", "", "Chinese, Japanese, Korean"),
        ("ひ", "", "Chinese, Japanese, Korean"),
        ("한국", "", "Chinese, Japanese, Korean"),
        ("שלום", "", "right-to-left script"),
        (" مرحبا", "", "right-to-left script"),
        ("при", "", "other script"),
        ("):", "x", "punctuation"),
        ("+", "1", "punctuation"),
        ("👍🏽", "", "emoji and symbols"),
        (" \n\t", "x", "white space"),
        ("", "x", "white space"),
        ("_x1", " ", "start of a word"),
    ],
)
def test_kinds_of_tokens(token, before, kind):
    assert kind_of(token, before) == kind
    assert kind in TOKEN_KINDS


@given(st.text(), st.text(max_size=1))
def test_every_token_has_a_kind(token, before):
    assert kind_of(token, before) in TOKEN_KINDS


@given(st.text(st.characters(codec="utf-8")))
def test_nothing_visible_drives_a_terminal_or_turns_a_line_round(text):
    shown = visible(text)
    assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


def test_ordinary_text_is_shown_as_it_is():
    assert visible("a b中👍🏽" + FAMILY) == "a b中👍🏽" + FAMILY
    assert visible("a\tb\n\x1b[31m") == "a⇥b⏎⟨U+001B⟩[31m"


def test_scripts_that_run_from_right_to_left_are_noticed():
    assert has_right_to_left("a שלום")
    assert not has_right_to_left("中文 abc 123")
