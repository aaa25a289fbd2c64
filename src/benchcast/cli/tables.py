"""Lay out tables for a terminal of a given width: wrap text and split columns into blocks; numbers are never cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from rich.text import Text

from benchcast.messages import visible

GAP = 2  # spaces between columns
NARROWEST = 16  # minimum width of wrapped text
LONGEST_WORD = 32  # longer words are cut
INDENT = "  "  # of remarks below their row
HEAD, BEST = "dim", "bold green"
Rows = Sequence[Sequence[str]]


class ColumnBlock(NamedTuple):
    """Some columns of a table with their widths."""

    columns: list[int]
    widths: list[int]


def table_lines(header: Sequence[str], rows: Rows, *, left: Sequence[int] = (0,), room: int) -> list[Text]:
    """The lines of a table that is at most `room` columns wide.

    Columns in `left` contain text, which may wrap; the others contain numbers and are right-aligned. A last column
    without a heading contains remarks, which move below their rows if they do not fit. A table that is still too wide
    is split into blocks of columns, each with the first column repeated. A cell that starts with * is the best of its
    row or column.
    """
    shown = [[visible(cell) for cell in row] for row in rows]
    heads = [visible(name) for name in header]
    remarks = [""] * len(shown)
    if len(heads) > 1 and not heads[-1] and _width(_natural(heads, shown)) > room:
        remarks = [row[-1] for row in shown]
        heads, shown = heads[:-1], [row[:-1] for row in shown]
    lines: list[Text] = []
    for i, block in enumerate(_arrange(heads, shown, left, room=room)):
        lines += [Text()] if i else []
        notes = remarks if i == 0 else [""] * len(shown)
        lines += _block_lines(block, heads, shown, left=left, remarks=notes, room=room)
    return lines


def wrap_text(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, cut between words if possible."""
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        *full, line = chop_cells(word, width) or [""]
        lines += full
    return [*lines, line]


def _natural(heads: Sequence[str], rows: Rows) -> list[int]:
    return [max(cell_len(head), *(cell_len(row[i]) for row in rows), 0) for i, head in enumerate(heads)]


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _longest_word(cells: Sequence[str]) -> int:
    return max(cell_len(word) for cell in cells for word in cell.split(" "))


def _arrange(heads: Sequence[str], rows: Rows, left: Sequence[int], *, room: int) -> list[ColumnBlock]:
    """The first layout that fits: natural widths, wrapped headings, wrapped text, or blocks."""
    indices = list(range(len(heads)))
    natural = _natural(heads, rows)
    if _width(natural) <= room:
        return [ColumnBlock(indices, natural)]
    cells = [heads, *rows]
    tight = [max(_longest_word([head]), *(cell_len(row[i]) for row in rows), 0) for i, head in enumerate(heads)]
    words = [min(LONGEST_WORD, _longest_word([row[i] for row in cells])) for i in indices]
    least = [min(w, max(NARROWEST, words[i])) if i in left else w for i, w in enumerate(tight)]
    wrapped = [least[i] if i in left else natural[i] for i in indices]
    for narrow, target in ((tight, natural), (wrapped, natural), (least, tight)):
        if _width(narrow) <= room:
            return [_trimmed(ColumnBlock(indices, _widened(narrow, target, room)), cells)]
    key = min(least[0], room // 2)
    rest = [min(w, room - key - GAP) for w in least[1:]]
    for n in range(2, len(heads)):
        size = -(-len(rest) // n)
        parts = [list(range(1 + i, 1 + min(i + size, len(rest)))) for i in range(0, len(rest), size)]
        if all(_width([key, *(rest[c - 1] for c in part)]) <= room for part in parts):
            break
    blocks = [
        ColumnBlock([0, *part], _widened([key, *(rest[c - 1] for c in part)], [natural[c] for c in (0, *part)], room))
        for part in parts
    ]
    return [_trimmed(block, cells) for block in blocks]


def _widened(widths: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """The widths plus the remaining room, given to the columns that are narrowest relative to their natural width."""
    grown = list(widths)
    for _ in range(room - _width(grown)):
        missing = [want - have for want, have in zip(natural, grown, strict=True)]
        if max(missing) <= 0:
            break
        grown[missing.index(max(missing))] += 1
    return grown


def _trimmed(block: ColumnBlock, cells: Rows) -> ColumnBlock:
    """The block without the width that its wrapped cells do not use."""
    widths = [
        max(cell_len(line) for row in cells for line in wrap_text(row[c], width))
        for c, width in zip(*block, strict=True)
    ]
    return ColumnBlock(block.columns, widths)


def _block_lines(
    block: ColumnBlock, heads: Sequence[str], rows: Rows, *, left: Sequence[int], remarks: Sequence[str], room: int
) -> Iterator[Text]:
    yield from _row_lines(block, heads, left, bottom=True)
    for row, remark in zip(rows, remarks, strict=True):
        yield from _row_lines(block, row, left)
        if remark:
            yield from (Text(INDENT + line) for line in wrap_text(remark, room - len(INDENT)))


def _row_lines(
    block: ColumnBlock, cells: Sequence[str], left: Sequence[int], *, bottom: bool = False
) -> Iterator[Text]:
    """The lines of a row, as many as its highest cell needs; headings are aligned to the bottom."""
    wrapped = [wrap_text(cells[c], width) for c, width in zip(*block, strict=True)]
    height = max(map(len, wrapped))
    for i in range(height):
        line = Text()
        for n, (c, width) in enumerate(zip(*block, strict=True)):
            row_of_cell = i - (height - len(wrapped[n])) * bottom
            text = wrapped[n][row_of_cell] if 0 <= row_of_cell < len(wrapped[n]) else ""
            pad = " " * (width - cell_len(text))
            style = HEAD if bottom else BEST if cells[c].startswith("*") else ""
            line.append(" " * GAP * (n > 0) + ("" if c in left else pad)).append(text, style)
            line.append(pad if c in left else "")
        line.rstrip()
        yield line
