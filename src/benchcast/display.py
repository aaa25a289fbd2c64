"""Tables as text for a terminal, and as HTML that notebooks show in the place of a repr."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from benchcast.messages import number, visible

MOST_ROWS = 40  # of a table that is shown; the others are counted


def cell(value: Any) -> str:
    """A value as the text of a cell: accuracies with three digits, large numbers in short form, NaN as a dash."""
    if isinstance(value, float):
        return number(value, ".3f" if abs(value) < 10 else ".4g")
    return visible(str(value))


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns: text on the left, numbers on the right; at most `MOST_ROWS` rows.

    >>> print(text_table(["model", "score"], [["my-7b", 0.5], ["b", 0.25]]))
    model  score
    my-7b  0.500
    b      0.250
    """
    from rich.cells import cell_len

    shown = [[cell(value) for value in row] for row in rows[:MOST_ROWS]]
    widths = [max(map(cell_len, column)) for column in zip(header, *shown, strict=True)]
    right = _numeric(len(header), rows)
    lines = []
    for row in (header, *shown):
        padded = []
        for text, width, on_right in zip(row, widths, right, strict=True):
            space = " " * (width - cell_len(text))
            padded.append(space + text if on_right else text + space)
        lines.append("  ".join(padded).rstrip())
    return "\n".join([*lines, *_rest(rows)])


def html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], *, notes: Sequence[str] = ()) -> str:
    """The same table as HTML under a title, with notes below it; all text is escaped."""
    aligned = ["right" if on_right else "left" for on_right in _numeric(len(header), rows)]

    def line(tag: str, texts: Sequence[str]) -> str:
        parts = (
            f'<{tag} style="text-align: {side}">{escape(visible(t))}</{tag}>'
            for t, side in zip(texts, aligned, strict=True)
        )
        return f"<tr>{''.join(parts)}</tr>"

    head = f"<thead>{line('th', header)}</thead>" if any(header) else ""
    body = "".join(line("td", [cell(value) for value in row]) for row in rows[:MOST_ROWS])
    below = "".join(f"<p>{escape(visible(note))}</p>" for note in (*_rest(rows), *notes))
    return f"<div><p><b>{escape(visible(title))}</b></p><table>{head}<tbody>{body}</tbody></table>{below}</div>"


def _numeric(count: int, rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Whether each column holds numbers."""
    return [bool(rows) and all(isinstance(row[i], float | int) for row in rows) for i in range(count)]


def _rest(rows: Sequence[Any]) -> list[str]:
    hidden = len(rows) - MOST_ROWS
    return [f"… and {hidden} more; .to_pandas() has all"] if hidden > 0 else []
