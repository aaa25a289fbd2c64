"""Cells in and out: rows of CSV, checks of text, suggestions for mistyped words, numbers as text or null."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchcast.errors import InputError

LONGEST_NAME = 1000  # characters
# C0 and C1 controls, line and paragraph separators, and the marks that turn the direction of writing.
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
FAR = 100.0  # times its middle: an end of an interval that says nothing


def need_file(path: Path) -> None:
    """Refuse what is not a file, and tell a folder from nothing."""
    if not path.is_file():
        raise InputError(f"{path}: {'a folder; a file is needed' if path.is_dir() else 'no such file'}")


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV with a header, all cells as text."""
    need_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            header = [h.strip() for h in reader.fieldnames or []]
            twice = {h for h in header if header.count(h) > 1}
            if twice:
                raise InputError(f"{path}: column {', '.join(sorted(twice))} occurs twice")
            reader.fieldnames = header
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InputError(f"{path}: line {number} has another number of cells than the header")
    return rows


def is_unicode(text: str) -> bool:
    """Whether a string can be written at all: JSON lets half a surrogate pair through."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`; did you mean …?` where something is near, else nothing."""
    match = get_close_matches(word, list(words), n=1)
    return f"; did you mean {match[0]!r}?" if match else ""


def match_names(names: Sequence[str], patterns: Sequence[str], *, where: str, what: str) -> list[str]:
    """Names that are given or match a shell-style pattern, each once, in the order of the patterns."""
    found: dict[str, None] = {}
    for pattern in patterns:
        own = [pattern] if pattern in names else [n for n in names if fnmatchcase(n, pattern)]
        if not own:
            raise InputError(f"{where}: no {what} {pattern!r}{did_you_mean(pattern, names)}")
        found |= dict.fromkeys(own)
    return list(found)


def need_name(name: str, where: str) -> str:
    """A name without white space around it; refused where it is empty or could not be shown or stored."""
    kept = name.strip()
    if not kept:
        raise InputError(f"{where}: a name is needed")
    if not is_unicode(kept):
        raise InputError(f"{where}: {kept[:40]!r} holds half a surrogate pair, which is no Unicode text")
    if has_controls(kept):
        raise InputError(f"{where}: {kept!r} holds control characters; take them out of the name")
    if len(kept) > LONGEST_NAME:
        raise InputError(f"{where}: a name of {len(kept)} characters ({kept[:20]!r}…); {LONGEST_NAME} are allowed")
    return kept


def has_controls(text: str) -> bool:
    """Whether a text holds characters that steer a terminal or reorder what it shows."""
    return CONTROLS.search(text) is not None


def number(value: float, form: str = ".2e") -> str:
    """A number as text, or a dash where there is none."""
    return format(value, form) if math.isfinite(value) else "–"


def format_interval(low: float, high: float, form: str, *, around: float = math.nan) -> str:
    """An interval as text: `unbounded` for an end that is infinite, or a hundred times the middle, `around`."""
    if math.isnan(low) or math.isnan(high):
        return number(math.nan)
    ends = ["unbounded" if math.isinf(x) or abs(x) > FAR * abs(around) else format(x, form) for x in (low, high)]
    return "unbounded" if set(ends) == {"unbounded"} else " – ".join(ends)


def nan_to_none(value: Any) -> Any:
    """The value as JSON can say it: a number that is none, NaN or infinite, is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """The same in plain JSON values, arrays as lists; what cannot be said is null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else nan_to_none(value)
