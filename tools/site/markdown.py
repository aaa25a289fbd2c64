"""Docstrings as Markdown, for the reference of Python.

Our docstrings describe a parameter on the line of its name, where others have its type, and end with examples.
"""

from __future__ import annotations

import re

SECTION = re.compile(r"^(Parameters|Returns|Attributes)\n-+\n", re.MULTILINE)
ENTRY = re.compile(r"^(?=\S)([\w*, ]+?) : (.+(?:\n {4,}.+)*)$", re.MULTILINE)
EXAMPLE = re.compile(r"^(>>> (?:.+\n?)+)", re.MULTILINE)


def as_markdown(docstring: str) -> str:
    """A docstring with lists of parameters, a heading for what is returned, and highlighted examples."""
    head, *parts = SECTION.split(docstring)
    out = [head]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        out.append(f"**{title}**\n\n{body if title == 'Returns' else ENTRY.sub(_bullet, body)}")
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[1].rstrip()}\n```\n", "".join(out)).strip()


def _bullet(match: re.Match[str]) -> str:
    names = ", ".join(f"`{name}`" for name in match[1].split(", "))
    return f"- {names}: {match[2]}"
