"""The opening of docs/results.md: how well the default method forecasts, real models first, from stored numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchcast.choices import level_text
from benchcast.datasets import DATASETS
from benchcast.methods import DEFAULT_METHOD

ZOO = "zoo"  # its models were trained for this purpose; all other studies hold public models
HELD_OUT = {"family": "whole families", "size": "the largest models", "column": "the largest models"}


def opening(numbers: Mapping[str, Any]) -> str:
    """What a reader asks first, answered from the numbers of `python -m lab quality`; '' without real models.

    Parameters
    ----------
    numbers : the `numbers` of quality.json: a row for each study, split and method

    Returns
    -------
    three sentences, a table and an empty line, as Markdown
    """
    rows = sorted(
        (r for r in numbers["rows"] if r["method"] == DEFAULT_METHOD and r["gain_by_family"]),
        key=lambda r: r["study"] == ZOO,
    )
    real = [r for r in rows if r["study"] != ZOO]
    if not real:
        return ""
    gains, inside = ([r[key] for r in real] for key in ("gain_by_family", "coverage"))
    lines = [
        f"**In short:** on real models that it has not seen, the squared error of `{DEFAULT_METHOD}`, the default "
        f"method, is {_span([1 / g for g in gains], '.0%')} of that of a curve through the mean loss on all texts "
        "(geometric mean over tasks; families of held-out models weigh equally). "
        f"Its {level_text()} intervals hold {_span(inside, '.0%')} of the scores. "
        "`benchcast compare` measures both on your own models.",
        "",
        f"| models | held out | squared error, of the curve's | inside {level_text()} | mean width, in points |",
        "|---|---|---:|---:|---:|",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n\n"


def _line(row: Mapping[str, Any]) -> str:
    held_out = HELD_OUT.get(row["split"], row["split"])
    numbers = f"{1 / row['gain_by_family']:.0%} | {row['coverage']:.0%} | {row['width']:.0f}"
    return f"| {_what(row['study'])} | {held_out} | {numbers} |"


def _what(name: str) -> str:
    """A study in words: where it comes from, and how many models."""
    study = next((s for s in DATASETS.values() if s.name == name or (name == ZOO and s.read is None)), None)
    return f"{name}: {study.about}, {study.models} models" if study else name


def _span(values: list[float], form: str) -> str:
    """Smallest and largest value, or the one they share.

    >>> _span([0.05, 0.711], ".0%")
    '5% to 71%'
    """
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
