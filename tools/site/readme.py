"""The README's table of results, from the numbers of docs/results.md (`python -m lab reference docs`)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

METHODS = ("stack", "salience", "pls", "logistic-4", "label-token")
# What was held out, by study and split; the embedded study has the name zoo.
ROWS = {
    ("olmo-ladder", "column"): "OLMo ladder: 7B and 13B from 3B and below",
    ("dclm", "column"): "DCLM: 7B from 1.4B and below",
    ("dclm", "family"): "DCLM: a family of data recipes never seen",
    ("public-llms", "family"): "89 public LLMs: a family never seen",
    ("zoo", "size"): "embedded study: larger models of known families",
    ("zoo", "family"): "embedded study: a family never seen",
}
BLOCK = re.compile(r"(?<=<!-- quality -->\n).*?(?=<!-- /quality -->)", re.DOTALL)


def renew_readme(readme: str, quality: Path) -> str:
    """The README with its table made from the JSON of `python -m lab results docs quality`."""
    rows = json.loads(quality.read_text(encoding="utf-8"))
    return BLOCK.sub(lambda _: quality_table(rows["numbers"]["rows"]) + targets(rows["remarks"]), readme)


def quality_table(rows: list[dict[str, Any]]) -> str:
    """Gain of the main methods and coverage of the default one, in Markdown; the largest gain of a row is bold."""
    row_of = {(r["study"], r["split"], r["method"]): r for r in rows}
    lines = [
        "| held-out models | " + " | ".join(METHODS) + " | 90% intervals of stack contain |",
        "|---|" + "---:|" * (len(METHODS) + 1),
    ]
    for (study, split), title in ROWS.items():
        if (study, split, METHODS[0]) not in row_of:
            continue
        gains = [row_of.get((study, split, method), {}).get("gain") for method in METHODS]
        best = max(g for g in gains if g is not None)
        cells = ["–" if g is None else f"**{g:.1f}**" if g == best else f"{g:.1f}" for g in gains]
        coverage = row_of[study, split, METHODS[0]]["coverage"]
        lines.append(f"| {title} | {' | '.join(cells)} | {coverage:.0%} |")
    return "\n".join(lines) + "\n"


def targets(remarks: list[str]) -> str:
    """A sentence on the two finished models of the ladder, if they were measured."""
    errors = dict(re.findall(r"(peteish\w+)@\w+ ([\d.]+)", " ".join(remarks)))
    if len(errors) != 2:
        return ""
    small, large = (float(errors[name]) for name in ("peteish7", "peteish13"))
    return f"\nMean absolute error over all tasks of the ladder: 7B {small:.1f} points, 13B {large:.1f}.\n"
