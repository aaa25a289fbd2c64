"""Texts that are not in Unicode normal form C, and their normal form.

Some tokenizers (Qwen, Command-R) normalise a text before they cut it. Their tokens do not cover the bytes of a text
that is not in this form, so `collect` refuses it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import replace

from benchcast.records import Text, TextSet


def not_normal(texts: Iterable[Text]) -> list[str]:
    """Ids of the texts that are not in NFC."""
    return [t.id for t in texts if not unicodedata.is_normalized("NFC", t.text)]


def normalize(texts: TextSet) -> TextSet:
    """The same texts in NFC, with `answer_start` moved to the same character."""
    return TextSet.of(_normal(t) for t in texts)


def _normal(text: Text) -> Text:
    whole = unicodedata.normalize("NFC", text.text)
    if text.answer_start is None or whole == text.text:
        return replace(text, text=whole)
    prompt = text.text.encode()[: text.answer_start].decode(errors="ignore")
    cut = len(prompt)
    # A mark at the start of the answer joins the letter before it: then the answer starts with that letter.
    while not _separable(text.text, cut, whole):
        cut -= 1
    return replace(text, text=whole, answer_start=len(unicodedata.normalize("NFC", text.text[:cut]).encode()))


def _separable(text: str, cut: int, whole: str) -> bool:
    """Whether both sides of a cut can be normalised on their own."""
    return unicodedata.normalize("NFC", text[:cut]) + unicodedata.normalize("NFC", text[cut:]) == whole
