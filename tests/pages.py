"""Commands and Python blocks of a documentation page, with the output that the page shows."""

from __future__ import annotations

import re


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Commands with the lines under them, and Python blocks without any, in order."""
    found = []
    for kind, block in re.findall(r"^```(console|python)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if kind == "python":
            found.append((block, []))
        else:
            parts = [p.splitlines() for p in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
            found += [(lines[0], lines[1:]) for lines in parts]
    return found
