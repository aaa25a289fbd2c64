"""Compute the exact byte bounds of a text's tokens under any tokenizer.

Character offsets of tokenizers are unreliable: all pieces of one character report the whole character, spaces are not
covered, and normalisers shift offsets. The bounds are therefore computed from the bytes of each token; offsets are the
fallback and are checked token by token. If neither covers the text exactly, it is refused with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchcast.errors import InputError
from benchcast.records import Ints

MARK = "▁"  # SentencePiece's character for a space
BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")  # a token of one byte
SHOWN = 24  # characters of a text quoted in an error


class Tokenizer:
    """A tokenizer that gives the bytes of each id, as tiktoken, SentencePiece and llama.cpp do."""

    marks_spaces = False  # whether `▁` is a space, so that a `▁` in the text cannot be distinguished from one

    def __init__(self, name: str, encode: Any, piece: Any) -> None:
        """`encode` maps a text to ids, without BOS or template; `piece` maps an id to its bytes."""
        self.name = name
        self._encode, self._piece = encode, piece
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone; special tokens in the text are read as plain text."""
        return list(self._encode(text))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of every text, by as many threads as the library has."""
        return [self.encode(text) for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each token."""
        for token in set(ids) - self._pieces.keys():
            self._pieces[token] = self._piece(token)
        return list(map(self._pieces.__getitem__, ids))

    def spans(self, text: str) -> list[tuple[int, int, str]] | None:
        """Character offsets and surface of each token; None if the tokenizer has none."""
        return None

    def objection(self, text: str, ids: Sequence[int]) -> str:
        """The reason why the tokens do not spell the text; empty if unknown."""
        return ""


def locate(tokenizer: Tokenizer, text: str) -> tuple[list[int], Ints]:
    """Tokenize a text and compute the bounds of its tokens; InputError if they do not cover the text exactly.

    Parameters
    ----------
    tokenizer, text : the model's tokenizer and the text

    Returns
    -------
    n token ids and their bounds: n + 1 non-decreasing integers in bytes, from 0 to the text's length
    """
    ids = tokenizer.encode(text)
    return ids, bounds_of(tokenizer, text, ids)


def bounds_of(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> Ints:
    """Bounds of the ids of a text; InputError if they do not cover it exactly."""
    bounds = spell(tokenizer.pieces(ids), text, marks_spaces=tokenizer.marks_spaces)
    if bounds is None:
        bounds = _from_spans(tokenizer, text, len(ids))
    if bounds is None:
        raise InputError(_refusal(tokenizer, text, ids))
    return bounds


def spell(pieces: Sequence[bytes], text: str, *, marks_spaces: bool = False) -> Ints | None:
    """Bounds of pieces whose concatenation is the text; None if it is not.

    A space that the tokenizer adds before the text has no bytes in it: it does not count in the width of the first
    token, and a token that consists of it alone has zero width.
    """
    expected = text.replace(MARK, " ").encode() if marks_spaces else text.encode()
    spelled = b"".join(pieces)
    ends = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)), out=ends[1:])
    if spelled == b" " + expected and pieces:
        ends = np.maximum(ends - 1, 0)
    elif spelled != expected:
        return None
    return _unmark(ends, text) if marks_spaces and MARK in text else ends


def _unmark(ends: Ints, text: str) -> Ints:
    """Convert bounds in the text with `▁` replaced by spaces to bounds in the original text."""
    widths = np.fromiter((1 if c == MARK else len(c.encode()) for c in text), np.int64, len(text))
    true_widths = np.fromiter((len(c.encode()) for c in text), np.int64, len(text))
    before = np.concatenate([[0], np.cumsum(widths)])
    after = np.concatenate([[0], np.cumsum(true_widths)])
    at = np.searchsorted(before, ends, side="right") - 1
    return np.asarray(after[at] + ends - before[at], np.int64)


def _from_spans(tokenizer: Tokenizer, text: str, count: int) -> Ints | None:
    """Bounds from offsets, if every token's surface equals the text there and only white space is uncovered.

    White space between tokens belongs to the next token, at the end of the text to the last one.
    """
    spans = tokenizer.spans(text)
    if spans is None or len(spans) != count or not spans:
        return None
    at, ends = 0, [0]
    for start, end, surface in spans:
        if start < at or end < start or text[at:start].strip() or text[start:end].strip() != surface.strip():
            return None
        ends.append(end)
        at = end
    if text[at:].strip():
        return None
    ends[-1] = len(text)
    in_bytes = np.concatenate([[0], np.cumsum([len(c.encode()) for c in text], dtype=np.int64)])
    return np.asarray(in_bytes[ends], np.int64)


def _refusal(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> str:
    why = tokenizer.objection(text, ids)
    if not why:
        spelled, expected = b"".join(tokenizer.pieces(ids)), text.encode()
        at = _first_difference(spelled, expected)
        actual, needed = (x[at:][:SHOWN].decode(errors="replace") for x in (spelled, expected))
        why = f"its tokens spell {actual!r} at byte {at}, the text has {needed!r}"
    return f"tokenizer {tokenizer.name!r}: {why}; its losses cannot be assigned to the bytes of the text"


class FastTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library: byte-level BPE, SentencePiece-like BPE and unigram, WordPiece."""

    def __init__(self, inner: Any, name: str) -> None:
        stored = inner.to_str()  # large vocabularies take seconds
        self._inner = type(inner).from_str(stored)  # a copy, because the settings below change it
        self._inner.no_truncation()
        self._inner.no_padding()
        self._inner.encode_special_tokens = True  # `<s>` in a text is text
        super().__init__(name, lambda text: self._inner.encode(text, add_special_tokens=False).ids, self._bytes)
        state = json.loads(stored)
        self._model: dict[str, Any] = state["model"]
        self._added = {int(t["id"]): str(t["content"]) for t in state["added_tokens"]}
        self._normaliser_types = list(_types(state.get("normalizer")))
        parts = [state.get(k) for k in ("normalizer", "pre_tokenizer", "decoder")]
        self._byte_level = "ByteLevel" in list(_types(parts))
        self.marks_spaces = not self._byte_level and MARK in json.dumps(parts, ensure_ascii=False)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of every text, by all threads of the library."""
        return [e.ids for e in self._inner.encode_batch_fast(list(texts), add_special_tokens=False)]

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Character offsets and surface of each token."""
        encoding = self._inner.encode(text, add_special_tokens=False)
        pieces = map(self._inner.id_to_token, encoding.ids)  # `tokens` shows an unknown character as itself
        return [(a, b, self._surface(t)) for (a, b), t in zip(encoding.offsets, pieces, strict=True)]

    def objection(self, text: str, ids: Sequence[int]) -> str:
        """The reason: a normaliser changes the text, the vocabulary lacks a byte, or a token is unknown."""
        unknown = self._model.get("unk_token")
        if unknown is None and isinstance(self._model.get("unk_id"), int):
            unknown = self._model["vocab"][self._model["unk_id"]][0]
        changed = self._changed(text)
        if changed:
            return changed
        for byte in sorted(set(text.encode())) if self._byte_level else ():
            if self._inner.token_to_id(_CHARACTER_OF[bytes([byte])]) is None:
                return f"its vocabulary lacks the byte 0x{byte:02X}, so part of the text is lost"
        if unknown is not None and self._inner.token_to_id(unknown) in ids:
            return f"its vocabulary lacks part of the text, which became {unknown!r}"
        return ""

    def _changed(self, text: str) -> str:
        """A message if the normaliser changes more than white space; else empty."""
        normaliser = self._inner.normalizer
        if normaliser is None or "ByteLevel" in self._normaliser_types:
            return ""
        normalised = normaliser.normalize_str(text)
        plain, original = (x.replace(MARK, " ") for x in (normalised, text))
        if "".join(plain.split()) == "".join(original.split()):
            return ""
        plain = plain.removeprefix(" ") if not original.startswith(" ") else plain
        at = _first_difference(plain, original)
        names = ", ".join(dict.fromkeys(self._normaliser_types)) or "unknown"
        return (
            f"its normaliser ({names}) changes the text at character {at}: "
            f"{original[at : at + SHOWN]!r} becomes {plain[at : at + SHOWN]!r}"
        )

    def _bytes(self, token: int) -> bytes:
        if token in self._added:
            literal = self._added[token]
            return (literal.replace(MARK, " ") if self.marks_spaces else literal).encode()
        piece = self._inner.id_to_token(token)
        if piece is None:
            raise InputError(f"tokenizer {self.name!r}: no token has the id {token}")
        if self._byte_level:
            return b"".join(_BYTE_OF.get(c, c.encode()) for c in piece)
        if self._model.get("byte_fallback") and (byte := BYTE.fullmatch(piece)):
            return bytes.fromhex(byte[1])
        return self._surface(piece).encode()

    def _surface(self, piece: str) -> str:
        """The text of a piece without continuation prefix, end-of-word suffix and `▁`."""
        bare = piece.removeprefix(self._model.get("continuing_subword_prefix") or "")
        bare = bare.removesuffix(self._model.get("end_of_word_suffix") or "")
        return bare.replace(MARK, " ") if self.marks_spaces else bare


def _first_difference(a: Sequence[Any], b: Sequence[Any]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _types(part: Any) -> Iterator[str]:
    """Types of all components in a tokenizer's JSON, without `Sequence`."""
    if isinstance(part, dict):
        if isinstance(part.get("type"), str) and part["type"] != "Sequence":
            yield part["type"]
        for value in part.values():
            yield from _types(value)
    elif isinstance(part, list):
        for value in part:
            yield from _types(value)


# Byte-level vocabularies write each of the 256 bytes as a printable character: printable Latin-1 characters represent
# themselves, the other 68 bytes use the characters from U+0100 in order.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [b for b in range(256) if b not in _PRINTABLE]
_BYTE_OF = {chr(b): bytes([b]) for b in _PRINTABLE} | {chr(256 + i): bytes([b]) for i, b in enumerate(_OTHERS)}
_CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}
