"""`compare --items`: models on the same items, as a table, as Markdown or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchcast.cli.output import check_figure, print_json, print_table, say, say_wrapped
from benchcast.cli.progress import progress
from benchcast.messages import number, printable

if TYPE_CHECKING:
    from benchcast.decisions.compare_items import ItemComparison, ItemDifference

MOST = 1e6  # more items or models are no advice


@dataclass(frozen=True, slots=True)
class ItemOptions:
    """What to compare."""

    tasks: tuple[str, ...]
    models: tuple[str, ...]
    metrics: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ItemOutput:
    """How to print it."""

    as_json: bool
    markdown: bool
    figure: Path | None
    wide: bool


def show_items(
    folders: Sequence[Path], options: ItemOptions, shown: ItemOutput, *, allow_different_prompts: bool
) -> None:
    """Compare the models of these folders and print the result."""
    from benchcast.decisions.compare_items import compare_items

    check_figure("--figure", shown.figure)
    with progress("reading logs") as advance:
        comparison = compare_items(
            folders,
            models=options.models,
            tasks=options.tasks,
            metrics=options.metrics,
            allow_different_prompts=allow_different_prompts,
            on_file=lambda file: advance(f"reading {file.parent.name}"),
        )
    if shown.as_json:
        print_json(comparison.to_dict())
    elif shown.markdown:
        say(markdown(comparison))
    else:
        _print(comparison, wide=shown.wide)
    if shown.figure is not None:
        from benchcast.reports.drawing import finish, write_chart

        write_chart(finish(comparison.plot()), shown.figure)
        say(f"figure: {shown.figure}", err=shown.as_json or shown.markdown)


def _print(comparison: ItemComparison, *, wide: bool) -> None:
    first = comparison.differences[0].first
    for second in dict.fromkeys(d.second for d in comparison.differences):
        rows = [d for d in comparison.differences if d.second == second]
        header, cells = _table(rows, corrected=bool(comparison.correction))
        print_table(header, cells, title=f"{second} against {first}", left=(0, len(header) - 1), wide=wide)
        say()
    for line in _remarks(comparison):
        say_wrapped(line)


def _table(rows: Sequence[ItemDifference], *, corrected: bool) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells of the differences of one model."""
    sure = ("higher", "corrected") if corrected else ("higher",)
    header = ("task", "items", "first", "second", "difference", "95% interval", *sure, "resolves", "to be 95% sure")
    cells = []
    for d in rows:
        scores = (f"{d.first_score:.3f}", f"{d.second_score:.3f}", f"{d.difference:+.3f}")
        probabilities = [f"{x:.0%}" for x in ((d.higher, d.corrected) if corrected else (d.higher,))]
        interval = f"{d.low:+.3f} – {d.high:+.3f}"
        cells.append((d.task, str(d.items), *scores, interval, *probabilities, f"{d.resolvable:.3f}", _settling(d)))
    return header, cells


def _settling(d: ItemDifference) -> str:
    """What would settle a difference, in words."""
    if d.settled:
        return "already settled"
    needed = {"items": d.items_needed, "models each": d.models_needed}
    possible = [f"{number(count, ',.0f')} {what}" for what, count in needed.items() if count < MOST]
    return " or ".join(possible) or "–"


def _remarks(comparison: ItemComparison) -> list[str]:
    metrics = {d.task: d.metric for d in comparison.differences if d.metric}
    lines = ["metrics: " + ", ".join(f"{task} {metric}" for task, metric in metrics.items())]
    lines += comparison.notes
    lines += [f"left out: {task}: {reason}" for task, reason in comparison.left_out.items()]
    if comparison.correction:
        lines.append(f"corrected: for the number of comparisons, by the method of {comparison.correction}")
    lines.append("resolves: the smallest difference that these items show with 80% probability at the 95% level")
    return lines


def markdown(comparison: ItemComparison) -> str:
    """The comparison as Markdown: a verdict, a table for each model, and remarks."""
    parts = []
    first = comparison.differences[0].first
    for second in dict.fromkeys(d.second for d in comparison.differences):
        rows = [d for d in comparison.differences if d.second == second]
        header, cells = _table(rows, corrected=bool(comparison.correction))
        parts.append(f"### {_cell(second)} against {_cell(first)}\n\n{_verdict(rows[-1])}\n")
        lines = [header, ["---", *["---:"] * (len(header) - 2), "---"], *cells]
        parts.append("\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n")
    parts.append("\n".join(f"- {_cell(line)}" for line in _remarks(comparison)))
    return "\n".join(parts)


def _verdict(d: ItemDifference) -> str:
    """One sentence on the last row: the mean of the tasks, or the only task."""
    higher, lower = (d.second, d.first) if d.difference >= 0 else (d.first, d.second)
    sure = max(d.corrected, 1 - d.corrected)
    if not d.settled:
        return f"**Open** on the {d.task}: {_cell(higher)} is higher with a probability of {sure:.0%}."
    gap = f"{100 * abs(d.difference):.1f} points"
    return f"**{_cell(higher)}** is better than {_cell(lower)} on the {d.task}, by {gap} ({sure:.1%} sure)."


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")
