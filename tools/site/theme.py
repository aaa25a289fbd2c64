"""Write a figure for light and for dark pages, as SVG without a background."""

from __future__ import annotations

import copy
from pathlib import Path

from benchcast.reports.drawing import Figure, write_chart

# Text, lines and grid of each colour scheme of the site.
INK = {"light": ("#333333", "#999999", "#e4e4e4"), "dark": ("#dddddd", "#888888", "#3a3d48")}


def write_schemes(figure: Figure, stem: Path) -> list[Path]:
    """Write STEM-light.svg and STEM-dark.svg; returns both paths."""
    return [write_chart(themed(figure, scheme), stem.with_name(f"{stem.name}-{scheme}.svg")) for scheme in INK]


def themed(figure: Figure, scheme: str) -> Figure:
    """The figure on a transparent background, with text and lines in the ink of a scheme."""
    text, line, grid = INK[scheme]
    styled = copy.deepcopy(figure)
    config = styled.setdefault("config", {})
    config["background"] = "transparent"
    config["padding"] = {"left": 18, "top": 4, "right": 12, "bottom": 4}  # fonts of browsers may be wider
    config["aria"] = False  # the alternative text of the page describes the picture
    config.setdefault("axis", {}).update(
        labelColor=text, titleColor=text, gridColor=grid, domainColor=line, tickColor=line, titlePadding=10
    )
    config.setdefault("legend", {}).update(labelColor=text, titleColor=text, columnPadding=36)
    config.setdefault("title", {}).update(color=text, subtitleColor=text)
    config.setdefault("header", {}).update(labelColor=text, titleColor=text)
    config.setdefault("view", {}).update(stroke=None)
    config["text"] = {"color": text}
    return styled
