"""A comparison of methods in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchcast.choices import level_text
from benchcast.cli.output import number, print_table, say, say_wrapped

if TYPE_CHECKING:
    from benchcast.evaluate import Comparison

DETAILS = {  # measures of one method: heading and format
    "mae": ("mean abs error", ".4f"),
    "r2": ("R²", ".3f"),
    "spearman": ("Spearman", ".3f"),
    "pairs": ("pairs in order", ".3f"),
    "coverage": (f"{level_text()} interval covers", ".2f"),
    "width": ("its width", ".3f"),
}


def print_comparison(found: Comparison, *, wide: bool = False) -> None:
    """Error of every method on every task, which method is best, and what the first one's intervals are worth."""
    from benchcast.ranking import headline

    n_test = max(len(h.observed) for h in found.held_out.values())
    title = f"mean squared error, split by {found.split}, {n_test} held-out models"
    print_table(("method", *found.tasks), _error_rows(found), title=title, wide=wide)
    say("* least error; noise floor: what the finite number of scored items alone leaves")
    say_wrapped(headline(found))
    say()
    first = found.methods[0]
    measured = [(task, found.measures(task, first)) for task in found.tasks]
    rows = [(task, *(number(m[k], form) for k, (_, form) in DETAILS.items())) for task, m in measured]
    print_table((first, *(name for name, _ in DETAILS.values())), rows, wide=wide)
    for method, why in found.left_out.items():
        say(f"left out: {method} {why}")


def _error_rows(found: Comparison) -> list[tuple[str, ...]]:
    errors = {(t, m): found.measures(t, m)["mse"] for t in found.tasks for m in found.methods}
    known = {t: [errors[t, m] for m in found.methods if errors[t, m] == errors[t, m]] for t in found.tasks}
    rows = [
        (m, *("*" * (errors[t, m] in known[t] and errors[t, m] == min(known[t])) + number(errors[t, m]) for t in known))
        for m in found.methods
    ]
    return [*rows, ("noise floor", *(number(found.noise[t]) for t in found.tasks))]
