"""Detection of near-duplicate texts.

Two texts are near-duplicates if the Jaccard index of their word trigrams is at least 0.9. A short question with one
changed number is a different question; with one changed comma it is not.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

ALIKE = 0.9  # Jaccard index of two sets of word runs
RUN = 3  # words in a run
WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W぀-ヿ㐀-鿿가-힯]+|[^\w\s.,;:!?'\"]")


class NearDuplicates:
    """The texts kept so far, indexed by their runs of words."""

    def __init__(self) -> None:
        self._with_run: dict[tuple[str, ...], list[int]] = {}
        self._sizes: list[int] = []

    def add(self, text: str) -> bool:
        """Keep a text unless it is a near-duplicate of a kept one; returns whether it was kept."""
        runs = word_runs(text)
        if self._repeats(runs):
            return False
        for run in runs:
            self._with_run.setdefault(run, []).append(len(self._sizes))
        self._sizes.append(len(runs))
        return True

    def _repeats(self, runs: set[tuple[str, ...]]) -> bool:
        common = Counter(i for run in runs for i in self._with_run.get(run, ()))
        return any(n >= ALIKE * (len(runs) + self._sizes[i] - n) for i, n in common.items())


def word_runs(text: str) -> set[tuple[str, ...]]:
    """Word trigrams, ignoring case and common punctuation; a text of fewer words is one run."""
    words = WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return {tuple(words[i : i + RUN]) for i in range(max(1, len(words) - RUN + 1))}


def count_repeats(texts: Iterable[str]) -> int:
    """Number of texts that are near-duplicates of an earlier one."""
    seen = NearDuplicates()
    return sum(not seen.add(text) for text in texts)
