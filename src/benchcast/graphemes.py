"""Split text into graphemes, classify tokens, and make control characters visible.

Token boundaries are byte positions, but a displayed character (grapheme) may have several bytes and code points, such
as an emoji with a skin tone or a letter with marks. A boundary inside a grapheme cannot be displayed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

JOINER = "\u200d"
LINE, TAB = "⏎", "⇥"

WORD, PIECE, NUMBER = "start of a word", "inside a word", "number"
IDEOGRAPH, RIGHT_TO_LEFT, OTHER_LETTER = "Chinese, Japanese, Korean", "right-to-left script", "other script"
MARKS, SYMBOL, SPACE = "punctuation", "emoji and symbols", "white space"
TOKEN_KINDS = (WORD, PIECE, NUMBER, IDEOGRAPH, RIGHT_TO_LEFT, OTHER_LETTER, MARKS, SYMBOL, SPACE)

_IDEOGRAPHS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO")


def character_starts(text: str) -> Iterator[int]:
    """Indices at which a grapheme starts; emoji sequences, combining marks and CRLF are not split."""
    flags = 0  # number of regional indicators just before; two form a flag
    for i, c in enumerate(text):
        if i == 0 or not _continues(text[i - 1], c, flags):
            yield i
            flags = 0
        flags = flags + 1 if _is_flag_letter(c) else 0


def _continues(before: str, c: str, flags: int) -> bool:
    if c.isascii():
        return c == "\n" and before == "\r"
    if before == JOINER or c == JOINER:
        return True
    if _is_flag_letter(c):
        return flags == 1
    return unicodedata.category(c) in ("Mn", "Me", "Mc") or "\U0001f3fb" <= c <= "\U0001f3ff" or _is_tag(c)


def _is_flag_letter(c: str) -> bool:
    return "\U0001f1e6" <= c <= "\U0001f1ff"


def _is_tag(c: str) -> bool:
    return "\U000e0020" <= c <= "\U000e007f"


def kind_of(token: str, before: str = "") -> str:
    """The kind of a token, one of TOKEN_KINDS; `before` is the preceding character."""
    core = token.strip()
    if not core:
        return SPACE
    c = next((x for x in core if x.isalnum()), core[0])
    if c.isdecimal():
        return NUMBER
    if not c.isalpha():
        return SYMBOL if any(unicodedata.category(x) == "So" for x in core) else MARKS
    if unicodedata.bidirectional(c) in ("R", "AL"):
        return RIGHT_TO_LEFT
    name = unicodedata.name(c, "")
    if name.startswith(_IDEOGRAPHS):
        return IDEOGRAPH
    if not name.startswith(("LATIN", "FULLWIDTH LATIN")):
        return OTHER_LETTER
    return PIECE if token[0].isalpha() and before.isalpha() else WORD


def visible(text: str) -> str:
    """Replace line breaks and tabs by symbols, and control and format characters by their U+ code.

    Escape sequences would control a terminal, and direction marks would reorder the text after them.
    """
    return "".join(_visible(c) for c in text)


def printable(text: str) -> str:
    """The text as `visible` returns it, but with line breaks and tabs; safe to print to a terminal."""
    return "".join(c if c in "\n\t" else _visible(c) for c in text)


def _visible(c: str) -> str:
    if c == "\n":
        return LINE
    if c == "\t":
        return TAB
    if c != JOINER and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs"):
        return f"⟨U+{ord(c):04X}⟩"
    return c


def has_right_to_left(text: str) -> bool:
    """Whether the text has right-to-left characters."""
    return any(unicodedata.bidirectional(c) in ("R", "AL") for c in text)
