"""Exact byte bounds of a text under any tokenizer.

Character offsets of tokenizers lie: pieces of one character all report the whole of it, spaces go
uncovered, normalisers shift them. So the bounds are spelled out from each token's own bytes and must
cover the text; offsets are a fall-back that is checked piece by piece. A text that no road covers
exactly is refused, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from benchcast.errors import InputError
from benchcast.records import Ints

MARK = "▁"  # what SentencePiece writes for a space
SHOWN = 24  # characters of a text that an error quotes


class Tokenizer(Protocol):
    """What bounds need of a tokenizer."""

    name: str

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone: no BOS, no template, special tokens in the text read as plain text."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Each token's own bytes."""
        ...

    @property
    def marks_spaces(self) -> bool:
        """Whether `▁` stands for a space, so that a `▁` in the text cannot be told from one."""
        ...

    def spans(self, text: str) -> list[tuple[int, int, str]] | None:
        """Character offsets and surface of each token, None where the tokenizer has none."""
        ...

    def objection(self, text: str, ids: Sequence[int]) -> str:
        """Why the tokens may not spell the text; empty where nothing is known."""
        ...


def locate(tokenizer: Tokenizer, text: str) -> tuple[list[int], Ints]:
    """Token ids of a text and their bounds in bytes, from 0 to the text's length."""
    ids = tokenizer.encode(text)
    bounds = spell(tokenizer.pieces(ids), text, marks_spaces=tokenizer.marks_spaces)
    if bounds is None:
        bounds = _from_spans(tokenizer, text, len(ids))
    if bounds is None:
        raise InputError(_refusal(tokenizer, text, ids))
    return ids, bounds


def spell(pieces: Sequence[bytes], text: str, *, marks_spaces: bool = False) -> Ints | None:
    """Bounds of pieces that spell the text one after the other; None where they do not.

    A space that the tokenizer put before the text has no bytes in it: it takes none of the first
    token's width, and a token that is nothing else gets no width at all.
    """
    wanted = text.replace(MARK, " ").encode() if marks_spaces else text.encode()
    spelled = b"".join(pieces)
    ends = np.cumsum([0, *(len(p) for p in pieces)], dtype=np.int64)
    if spelled == b" " + wanted and pieces:
        ends = np.maximum(ends - 1, 0)
    elif spelled != wanted:
        return None
    return _unmark(ends, text) if marks_spaces and MARK in text else ends


def _unmark(ends: Ints, text: str) -> Ints:
    """Move bounds from the text with spaces for its marks back to the text itself."""
    widths = np.fromiter((1 if c == MARK else len(c.encode()) for c in text), np.int64, len(text))
    true_widths = np.fromiter((len(c.encode()) for c in text), np.int64, len(text))
    before = np.concatenate([[0], np.cumsum(widths)])
    after = np.concatenate([[0], np.cumsum(true_widths)])
    at = np.searchsorted(before, ends, side="right") - 1
    return np.asarray(after[at] + ends - before[at], np.int64)


def _from_spans(tokenizer: Tokenizer, text: str, count: int) -> Ints | None:
    """Bounds from offsets, if every token's surface is what the text has there and only white space is left out.

    White space between tokens goes to the token after it, at the end to the last one.
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
        spelled, wanted = b"".join(tokenizer.pieces(ids)), text.encode()
        at = next((i for i, (a, b) in enumerate(zip(spelled, wanted, strict=False)) if a != b), len(wanted))
        found, needed = (x[at:][:SHOWN].decode(errors="replace") for x in (spelled, wanted))
        why = f"its tokens spell {found!r} at byte {at}, the text has {needed!r}"
    return f"tokenizer {tokenizer.name!r}: {why}; losses would not belong to the bytes of the text"


class FastTokenizer:
    """A tokenizer of the `tokenizers` library: byte-level BPE, SentencePiece-like BPE and unigram, WordPiece."""

    def __init__(self, inner: Any, name: str) -> None:
        self.name = name
        self._inner = type(inner).from_str(inner.to_str())  # a copy: the settings below are ours alone
        self._inner.no_truncation()
        self._inner.no_padding()
        self._inner.encode_special_tokens = True  # `<s>` in a text is text
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone."""
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Each token's own bytes."""
        for token in set(ids) - self._pieces.keys():
            self._pieces[token] = self._piece(token)
        return [self._pieces[token] for token in ids]

    @cached_property
    def marks_spaces(self) -> bool:
        """Whether `▁` stands for a space."""
        return not self._byte_level and MARK in json.dumps(self._parts, ensure_ascii=False)

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Character offsets and surface of each token."""
        found = self._inner.encode(text, add_special_tokens=False)
        return [(a, b, self._surface(t)) for (a, b), t in zip(found.offsets, found.tokens, strict=True)]

    def objection(self, text: str, ids: Sequence[int]) -> str:
        """A normaliser that changes the text, a byte the vocabulary lacks, or its token for the unknown."""
        unknown = self._model.get("unk_token")
        if unknown is None and isinstance(self._model.get("unk_id"), int):
            unknown = self._model["vocab"][self._model["unk_id"]][0]
        changed = self._changed(text)
        if changed:
            return changed
        lost = [b for b in sorted(set(text.encode())) if self._byte_level and self._lacks(b)]
        if lost:
            return f"its vocabulary lacks the byte 0x{lost[0]:02X}, so part of the text is lost"
        if unknown is not None and self._inner.token_to_id(unknown) in ids:
            return f"its vocabulary lacks part of the text, which became {unknown!r}"
        return ""

    def _changed(self, text: str) -> str:
        """What the normaliser makes of the text, beyond marks for spaces."""
        normaliser = self._inner.normalizer
        if normaliser is None or self._byte_level_normaliser:
            return ""
        got = normaliser.normalize_str(text)
        plain, wanted = (x.replace(MARK, " ") for x in (got, text))
        if "".join(plain.split()) == "".join(wanted.split()):
            return ""
        plain = plain.removeprefix(" ") if not wanted.startswith(" ") else plain
        at = next(
            (i for i, (a, b) in enumerate(zip(plain, wanted, strict=False)) if a != b), min(map(len, (plain, wanted)))
        )
        names = ", ".join(dict.fromkeys(_types(self._parts["normalizer"]))) or "unknown"
        return (
            f"its normaliser ({names}) changes the text at character {at}: "
            f"{wanted[at : at + SHOWN]!r} becomes {plain[at : at + SHOWN]!r}"
        )

    def _lacks(self, byte: int) -> bool:
        return self._inner.token_to_id(_CHARACTER_OF[bytes([byte])]) is None

    def _piece(self, token: int) -> bytes:
        if token in self._added:
            literal = self._added[token]
            return (literal.replace(MARK, " ") if self.marks_spaces else literal).encode()
        piece = self._inner.id_to_token(token)
        if piece is None:
            raise InputError(f"tokenizer {self.name!r}: no token has the id {token}")
        if self._byte_level:
            return b"".join(_BYTE_OF.get(c, c.encode()) for c in piece)
        if self._model.get("byte_fallback") and _is_byte(piece):
            return bytes([int(piece[3:5], 16)])
        return self._surface(piece).encode()

    def _surface(self, piece: str) -> str:
        """The text of a piece without the marks of its kind."""
        bare = piece.removeprefix(self._model.get("continuing_subword_prefix") or "")
        bare = bare.removesuffix(self._model.get("end_of_word_suffix") or "")
        return bare.replace(MARK, " ") if self.marks_spaces else bare

    @cached_property
    def _state(self) -> dict[str, Any]:
        return dict(json.loads(self._inner.to_str()))

    @cached_property
    def _model(self) -> dict[str, Any]:
        return dict(self._state["model"])

    @cached_property
    def _parts(self) -> dict[str, Any]:
        return {k: self._state.get(k) for k in ("normalizer", "pre_tokenizer", "decoder")}

    @cached_property
    def _byte_level(self) -> bool:
        return "ByteLevel" in list(_types(self._parts))

    @cached_property
    def _byte_level_normaliser(self) -> bool:
        return "ByteLevel" in list(_types(self._parts["normalizer"]))

    @cached_property
    def _added(self) -> dict[int, str]:
        return {int(t["id"]): str(t["content"]) for t in self._state["added_tokens"]}


class PlainTokenizer:
    """Any tokenizer that can say the bytes of each id: tiktoken, SentencePiece, llama.cpp."""

    marks_spaces = False

    def __init__(self, name: str, encode: Any, piece: Any) -> None:
        self.name = name
        self._encode, self._piece = encode, piece
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone."""
        return list(self._encode(text))

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Each token's own bytes."""
        for token in set(ids) - self._pieces.keys():
            self._pieces[token] = self._piece(token)
        return [self._pieces[token] for token in ids]

    def spans(self, text: str) -> None:
        """No offsets."""

    def objection(self, text: str, ids: Sequence[int]) -> str:
        """Nothing is known."""
        return ""


def _types(part: Any) -> Iterator[str]:
    """Types of all parts in a tokenizer's description, without the wrapper that only orders them."""
    if isinstance(part, dict):
        if isinstance(part.get("type"), str) and part["type"] != "Sequence":
            yield part["type"]
        for value in part.values():
            yield from _types(value)
    elif isinstance(part, list):
        for value in part:
            yield from _types(value)


def _is_byte(piece: str) -> bool:
    if len(piece) != 6 or not piece.startswith("<0x") or not piece.endswith(">"):
        return False
    return all(c in "0123456789ABCDEFabcdef" for c in piece[3:5])


def _byte_alphabet() -> dict[str, bytes]:
    """The printable characters that byte-level vocabularies write for the 256 bytes.

    Printable Latin-1 stands for itself; the other 68 bytes take the characters from U+0100 on, in order.
    """
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    table = {chr(b): bytes([b]) for b in printable}
    others = [b for b in range(256) if b not in printable]
    return table | {chr(256 + i): bytes([b]) for i, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()
_CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}
