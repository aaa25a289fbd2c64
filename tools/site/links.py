"""Check links and anchors of the built site, and of the pages outside docs/.

`make docs` runs `python -m tools.site.links site` after the build, which itself checks the links of docs/ alone: not
those to pictures, from HTML, or to names of the Python page. The module imports nothing of the package.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "lab/LOG.md", "tests/README.md")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"\w+:|//")
SERVED = "404.html"  # written for the root of a server: its links start with /


def broken_links(page: Path) -> list[str]:
    """Links of a Markdown page that lead to no file or to no heading of it."""
    broken = []
    for pair in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        link = pair[0] or pair[1]
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(target):
            broken.append(f"{link}: no such heading")
    return broken


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as the site and GitHub form them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in headings}


class BuiltPage(HTMLParser):
    """The links and anchors of an HTML page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag names and where it leads."""
        for key, value in attrs:
            if key in ("id", "name"):
                self.anchors.add(value or "")
            if key in ("href", "src") and value:
                self.links.append(value)


def broken_in_site(site: Path) -> list[str]:
    """Links of the built pages that lead to no file or to no anchor."""
    pages = {path: BuiltPage(path.read_text(encoding="utf-8")) for path in sorted(site.glob("*.html"))}
    broken = []
    for path, page in pages.items():
        if path.name == SERVED:
            continue
        for link in dict.fromkeys(page.links):
            if ELSEWHERE.match(link):
                continue
            name, _, anchor = link.partition("#")
            target = path if not name else path.parent / unquote(name)
            target = target / "index.html" if target.is_dir() else target
            if link.startswith("/") or not target.is_file():
                broken.append(f"{path.name}: {link}: no such file")
            elif target in pages and unquote(anchor) not in {"", *pages[target].anchors}:
                broken.append(f"{path.name}: {link}: no such anchor")
    return broken


def main(site: Path) -> int:
    """Print every broken link; the exit status is 1 if there is one."""
    problems = [f"{name}: {problem}" for name in PAGES for problem in broken_links(ROOT / name)]
    problems += broken_in_site(site)
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
