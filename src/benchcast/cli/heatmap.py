"""Print a text with the salience of its tokens in the terminal, in colours or with marks if it has no colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from benchcast.messages import LINE, has_right_to_left, visible

LEVELS = (1.0, 3.0, 10.0, 30.0)  # multiples of the mean salience; each has a darker colour and a stronger mark
MARKS = " .:*#"
WARM = ("", "on #fdf0d5", "on #f9d98f", "on #f2b53c", "on #d97706")
COLD = ("", "on #dbeafe", "on #a5c8f5", "on #5d9be3", "on #1f6fc4")


def print_heat_map(tokens: Sequence[tuple[str, float]], console: Console) -> None:
    """Print the text with its salience and a legend.

    Marks are printed below their tokens, or around them in right-to-left lines, which terminals reorder.
    """
    shades = [Shade(visible(token), level_of(salience)) for token, salience in tokens]
    coloured = console.color_system is not None and not console.no_color
    for line in lines_of(shades, max(20, console.width - 1)):
        words = "".join(s.shown for s in line)
        if coloured:
            console.print(Text.assemble(*((s.shown, s.style) for s in line)), soft_wrap=True)
        elif has_right_to_left(words):
            marked = "".join(f"[{s.mark}{s.shown}]" if s.level else s.shown for s in line)
            console.print(Text(marked), soft_wrap=True)
        else:
            console.print(Text(words), soft_wrap=True)
            marks = "".join(s.mark * cell_len(s.shown) for s in line).rstrip()
            if marks:
                console.print(Text(marks), soft_wrap=True)
    console.print(_legend(coloured), soft_wrap=True)


def lines_of(shades: Sequence[Shade], width: int) -> Iterator[list[Shade]]:
    """Tokens in lines of at most `width` columns; a line break in the text ends a line, and a long token is cut."""
    line: list[Shade] = []
    used = 0
    by_break = ((text, s.level) for s in shades for text in s.shown.replace(LINE, f"{LINE}\n").splitlines())
    for piece, level in ((piece, level) for text, level in by_break for piece in chop_cells(text, width)):
        if line and used + cell_len(piece) > width:
            yield line
            line, used = [], 0
        line.append(Shade(piece, level))
        used += cell_len(piece)
        if piece.endswith(LINE):
            yield line
            line, used = [], 0
    if line:
        yield line


@dataclass(frozen=True, slots=True)
class Shade:
    """A printed token."""

    shown: str
    level: int  # 0 to 4; negative if a larger loss raises the forecast

    @property
    def style(self) -> str:
        """Background colour with black letters, independent of the terminal's theme."""
        ground = (COLD if self.level < 0 else WARM)[abs(self.level)]
        return f"black {ground}" if ground else ""

    @property
    def mark(self) -> str:
        """The mark below or around the token."""
        return "-" if self.level < 0 else MARKS[self.level]


def level_of(salience: float) -> int:
    """Number of LEVELS that a salience reaches, with its sign; 0 for NaN."""
    if salience != salience:
        return 0
    steps = sum(abs(salience) >= least for least in LEVELS)
    return steps if salience > 0 else -steps


def _legend(coloured: bool) -> Text:
    legend = Text("salience, times the mean: ")
    for i, least in enumerate(LEVELS, start=1):
        shade = Shade(f" {least:g}+ " if coloured else f"{MARKS[i]} {least:g}+", i)
        legend.append(shade.shown, shade.style if coloured else "")
        legend.append("  ")
    return legend
