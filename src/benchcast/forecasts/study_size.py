"""What a small study lacks: how much narrower intervals would be with more families or models.

The widths are those of intervals of the usual level on a family that was not drawn, mean over tasks and six draws from
the embedded study (`python -m lab learning`, docs/how-many.md). Other studies differ in the size of errors, less in how
they fall.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchcast.messages import counted

WIDTH_BY_FAMILIES = {2: 0.32, 3: 0.26, 4: 0.19, 6: 0.15, 8: 0.13}
WIDTH_BY_MODELS = {10: 0.25, 20: 0.19, 40: 0.16, 80: 0.15}  # of all families
FEW_FAMILIES, FEW_MODELS = 4, 20  # with more, further ones save less than a third of the width


def what_is_lacking(families: int, models: int) -> str:
    """One line on what training families and models a study lacks; empty if it has enough."""
    if families == 1:
        return "1 family of training models: intervals for other families are a guess; models of a second are needed"
    if 2 <= families <= FEW_FAMILIES:
        return f"{families} families of training models: {_narrower(WIDTH_BY_FAMILIES, families, 'families')}"
    if families and models < FEW_MODELS:
        return f"{counted(models, 'training model')}: {_narrower(WIDTH_BY_MODELS, models, 'models')}"
    return ""


def _narrower(widths: Mapping[int, float], count: int, what: str) -> str:
    """How wide intervals would be with twice as many."""
    known = [n for n in widths if n <= count] or [min(widths)]
    more = next(n for n in widths if n >= min(2 * count, max(widths)))
    share = widths[more] / widths[known[-1]]
    return f"intervals are wide; with {more} {what} about {share:.1f} times as wide (docs/how-many.md)"
