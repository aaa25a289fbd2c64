"""Where the recorded logs lie, and what a study of them needs."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"
MIDDLE = FIXTURES / "lm-eval-0.4.4"
OLD, NEW, PROSE = (FIXTURES / name for name in ("lm-eval-0.4.0", "lm-eval-0.4.13", "lm-eval-0.4.13-prose"))
LIGHT = FIXTURES / "lighteval-0.13.0"
METRIC = ("--metric", "pond_write=exact_match,strict-match")
FAMILIES = "model,family\n" + "".join(
    f"models/{family}-{letter},{family}\n"
    for family, letters in (("reed", "abcd"), ("rush", "abc"), ("sedge", "abc"))
    for letter in letters
)
