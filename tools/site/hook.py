"""A hook of MkDocs: checks links and anchors of the pages outside docs/; each broken one is a warning.

`make docs` runs MkDocs with `--strict`, so that a warning fails the build. The module imports nothing of the package.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

PAGES = ("README.md", "CONTRIBUTING.md", "lab/LOG.md", "tests/README.md")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
log = logging.getLogger("mkdocs.hooks.outside")  # MkDocs counts warnings of its own loggers


def on_pre_build(config: Any) -> None:
    """Check the pages that are not part of the site."""
    root = Path(config["config_file_path"]).parent
    for name in PAGES:
        for problem in broken_links(root / name):
            log.warning("%s: %s", name, problem)


def broken_links(page: Path) -> list[str]:
    """Links of a page that lead to no file or to no heading of it."""
    broken = []
    for pair in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        link = pair[0] or pair[1]
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(target):
            broken.append(f"{link}: no such heading")
    return broken


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as MkDocs and GitHub form them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in headings}
