"""Plain English prose found on any machine with CPython: docstrings and comments of its standard library.

The text (PSF licence) is only mixed into training; no part of it is scored or stored with the results.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SKIPPED_FOLDERS = {
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "pydoc_data",
    "turtledemo",
}
LONGEST_BYTES = 400
SHORTEST_BYTES = 60
COMMENT_BLOCK = re.compile(r"(?:^[ \t]*#[^\n]*\n)+", re.MULTILINE)


def sources() -> Iterator[str]:
    """The standard library's modules in a fixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if not SKIPPED_FOLDERS.intersection(path.relative_to(root).parts):
            try:
                yield path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def docstrings(source: str) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented):
            yield ast.get_docstring(node) or ""


def comments(source: str) -> Iterator[str]:
    for block in COMMENT_BLOCK.findall(source):
        yield "\n".join(line.strip().lstrip("#").strip() for line in block.splitlines())


def pieces(passage: str) -> Iterator[str]:
    """Paragraphs of ASCII prose, long ones cut between words."""
    for paragraph in re.split(r"\n\s*\n", passage):
        words = paragraph.split()
        piece: list[str] = []
        length = 0
        for word in words:
            if piece and length + len(word) > LONGEST_BYTES:
                yield " ".join(piece)
                piece, length = [], 0
            piece.append(word)
            length += len(word) + 1
        yield " ".join(piece)


def paragraphs() -> list[str]:
    """All distinct paragraphs, in a fixed order for one version of CPython."""
    unique: dict[str, None] = {}
    for source in sources():
        for passage in (*docstrings(source), *comments(source)):
            for piece in pieces(passage):
                if SHORTEST_BYTES <= len(piece) <= LONGEST_BYTES and piece.isascii():
                    unique[piece] = None
    return list(unique)
