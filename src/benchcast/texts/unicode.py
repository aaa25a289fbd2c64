"""Find texts that are not in Unicode normal form C (NFC), and normalise them.

Some tokenizers (Qwen, Command-R) normalise a text first. Their tokens do not cover the bytes of a text that is not in
NFC, so `collect` raises an error for it.
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
    normalized = unicodedata.normalize("NFC", text.text)
    if text.answer_start is None or normalized == text.text:
        return replace(text, text=normalized)
    prompt = text.text.encode()[: text.answer_start].decode(errors="ignore")
    cut = len(prompt)
    # A combining mark at the start of the answer joins the previous letter: then the answer starts with that letter.
    while not _separable(text.text, cut, normalized):
        cut -= 1
    return replace(text, text=normalized, answer_start=len(unicodedata.normalize("NFC", text.text[:cut]).encode()))


def _separable(text: str, cut: int, normalized: str) -> bool:
    """Whether the normal forms of both sides of a cut join to that of the text."""
    return unicodedata.normalize("NFC", text[:cut]) + unicodedata.normalize("NFC", text[cut:]) == normalized
