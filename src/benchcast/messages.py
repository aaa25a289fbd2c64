"""Words for people: counts, numbers and names in messages, text that is safe to print, and kinds of tokens."""

from __future__ import annotations

import math
import re
import reprlib
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from benchcast.errors import InputError

LONGEST_NAME = 1000  # characters
SHORTEST_START = 3  # characters of a name that suggest the whole name
# Characters that control a terminal or reorder its text: C0 and C1, line and paragraph separators, bidirectional marks.
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
FAR = 100.0  # an interval end beyond this multiple of the middle is shown as unbounded
SHORT_REPR = reprlib.Repr()
SHORT_REPR.maxstring = SHORT_REPR.maxother = 80  # characters
JOINER = "\u200d"  # zero-width joiner, inside emoji sequences
LINE, TAB = "⏎", "⇥"  # shown for line breaks and tabs
WORD, PIECE, NUMBER = "start of a word", "inside a word", "number"
IDEOGRAPH, RIGHT_TO_LEFT, OTHER_LETTER = "Chinese, Japanese, Korean", "right-to-left script", "other script"
MARKS, SYMBOL, SPACE = "punctuation", "emoji and symbols", "white space"
TOKEN_KINDS = (WORD, PIECE, NUMBER, IDEOGRAPH, RIGHT_TO_LEFT, OTHER_LETTER, MARKS, SYMBOL, SPACE)
_IDEOGRAPHS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO")


def counted(number: int, what: str) -> str:
    """A number with its noun, in the plural where it is not 1.

    >>> counted(1, "model"), counted(2, "model")
    ('1 model', '2 models')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def few(names: Sequence[str], most: int = 4) -> str:
    """The first names and the number of the others.

    >>> few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def number(value: float, form: str = ".2e") -> str:
    """A number as text; a dash if it is NaN or infinite."""
    return format(value, form) if math.isfinite(value) else "–"


def short_number(value: float) -> str:
    """A number with a suffix for thousands, millions and so on.

    >>> short_number(190e6), short_number(1.3e9), short_number(26912), short_number(60)
    ('190M', '1.3B', '26.9K', '60')
    """
    for suffix, unit in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if value >= unit:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:g}"


def span(values: Sequence[float]) -> str:
    """The smallest and the largest of some numbers; a dash if there are none.

    >>> span([20, 60, 100]), span([7e9]), span([])
    ('20 – 100', '7B', '–')
    """
    if not values:
        return "–"
    ends = dict.fromkeys(short_number(v) for v in (min(values), max(values)))
    return " – ".join(ends)


def format_interval(low: float, high: float, form: str, *, around: float = math.nan) -> str:
    """An interval as text, with `unbounded` for an end that is infinite or more than `FAR` times `around`."""
    if math.isnan(low) or math.isnan(high):
        return number(math.nan)
    ends = ["unbounded" if math.isinf(x) or abs(x) > FAR * abs(around) else format(x, form) for x in (low, high)]
    return "unbounded" if set(ends) == {"unbounded"} else " – ".join(ends)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`; did you mean …?` with the closest of `words`, or an empty string if none is similar.

    >>> did_you_mean("mmul", ["mmlu", "bbh"]), did_you_mean("olmo", ["dclm", "olmo-ladder"])
    ("; did you mean 'mmlu'?", "; did you mean 'olmo-ladder'?")
    """
    known = list(words)
    match = get_close_matches(word, known, n=1)
    if not match and len(word) >= SHORTEST_START:
        match = [name for name in known if name.startswith(word)]
    return f"; did you mean {match[0]!r}?" if match else ""


def brief(value: Any) -> str:
    """The repr of a value that somebody else wrote, cut where it is long.

    >>> brief("mmlu"), brief([[]] * 99)
    ("'mmlu'", '[[], [], [], [], [], [], ...]')
    """
    try:
        return SHORT_REPR.repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return "a number with thousands of digits"


def refuse_unknown(
    names: Iterable[str], known: Collection[str], what: str, *, of: type[Exception] = InputError
) -> None:
    """Raise `of` for the first name that is not known; `what` starts the message: "FILE: unknown key"."""
    for name in names:
        if name not in known:
            near = did_you_mean(str(name), known) if len(str(name)) < LONGEST_NAME else ""
            raise of(f"{what} {brief(name)}{near} (known: {', '.join(known)})")


def as_names(names: str | Iterable[str]) -> list[str]:
    """One name or several, as a list.

    >>> as_names("mmlu"), as_names(("mmlu", "bbh"))
    (['mmlu'], ['mmlu', 'bbh'])
    """
    if not isinstance(names, Iterable):
        raise InputError(f"a name must be text, such as 'mmlu'; found {brief(names)}")
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str):
            raise InputError(f"a name must be text, such as 'mmlu'; found {brief(name)}")
    return listed


def match_names(names: Sequence[str], patterns: Sequence[str], *, where: str, what: str) -> list[str]:
    """Names that equal or match one of the shell-style patterns, without duplicates, in the order of the patterns.

    A pattern without a match is an error; `where` and `what` name the place and the kind of name in its message.
    """
    matches: dict[str, None] = {}
    for pattern in as_names(patterns):
        matching = [pattern] if pattern in names else [n for n in names if fnmatchcase(n, pattern)]
        if not matching:
            raise InputError(f"{where}: no {what} {pattern!r}{did_you_mean(pattern, names)}")
        matches |= dict.fromkeys(matching)
    return list(matches)


def need_name(name: str, where: str) -> str:
    """The name without surrounding white space; an error if it is empty or cannot be displayed or stored."""
    if not isinstance(name, str):
        raise InputError(f"{where}: a name must be text, found {brief(name)}")
    stripped = name.strip()
    if not stripped:
        raise InputError(f"{where}: a name is needed")
    if not is_unicode(stripped):
        raise InputError(f"{where}: {stripped[:40]!r} contains half a surrogate pair, which is not valid Unicode")
    if CONTROLS.search(stripped):
        raise InputError(f"{where}: {stripped!r} contains control characters; remove them from the name")
    if len(stripped) > LONGEST_NAME:
        raise InputError(
            f"{where}: a name of {len(stripped)} characters ({stripped[:20]!r}…); at most {LONGEST_NAME} are allowed"
        )
    return stripped


def is_unicode(text: str) -> bool:
    """Whether a string can be encoded as UTF-8; JSON permits unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    is_skin_tone, is_tag = "\U0001f3fb" <= c <= "\U0001f3ff", "\U000e0020" <= c <= "\U000e007f"
    return is_skin_tone or is_tag or unicodedata.category(c) in ("Mn", "Me", "Mc")


def _is_flag_letter(c: str) -> bool:
    return "\U0001f1e6" <= c <= "\U0001f1ff"


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


def nan_to_none(value: Any) -> Any:
    """The value, or None (JSON's null) if it is NaN or infinite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """The value as JSON values: arrays become lists, NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else nan_to_none(value)
