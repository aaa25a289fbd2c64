"""Cut texts longer than a model's context into overlapping windows.

Every token is scored once. Each window starts with the model's BOS, and every token scored outside the first window
has at least `overlap` tokens of the text before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchcast.errors import InputError


@dataclass(frozen=True, slots=True)
class Window:
    """One sequence to score and the part of its text that it covers."""

    text: int  # index of the text
    ids: tuple[int, ...]  # including the prefix
    skip: int  # number of leading ids that are prefix or are scored in the previous window
    first: int  # position in the text of the token ids[skip]


def plan(text: int, ids: Sequence[int], prefix: Sequence[int], context: int) -> list[Window]:
    """Windows of one text with `context` tokens at most; empty for a text without tokens."""
    room = context - len(prefix)
    overlap = room // 2
    if room < 2:
        raise InputError(f"a context of {context} tokens leaves no room for a text; 2 tokens and BOS are needed")
    if not ids:
        return []
    windows = [Window(text, (*prefix, *ids[:room]), len(prefix), 0)]
    done = min(room, len(ids))
    while done < len(ids):
        start = min(done - overlap, len(ids) - room)
        windows.append(Window(text, (*prefix, *ids[start : start + room]), len(prefix) + done - start, done))
        done = start + room
    return windows


def batches(windows: Iterable[Window], *, size: int, tokens: int) -> Iterator[list[Window]]:
    """Windows by length, longest first, in batches of at most `size` sequences and `tokens` padded tokens.

    With the longest first, a lack of memory shows at once and the estimated time left is not too low.
    """
    batch: list[Window] = []
    for window in sorted(windows, key=lambda w: (-len(w.ids), w.text, w.first)):
        if batch and (len(batch) >= size or (len(batch) + 1) * len(batch[0].ids) > tokens):
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch
