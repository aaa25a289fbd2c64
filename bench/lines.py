"""Lines of code by folder, without docstrings, comments and blank lines: python bench/lines.py [FOLDER…]"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstring_lines(source: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def lines_of_code(source: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(source))


def main(folders: list[str]) -> None:
    for folder in map(Path, folders):
        counts: Counter[str] = Counter()
        for path in folder.rglob("*.py"):
            inside = path.relative_to(folder)
            part = inside.parts[0] if len(inside.parts) > 1 else "."
            counts[part] += lines_of_code(path.read_text(encoding="utf-8"))
        print(f"{folder}: {counts.total():,}")
        for part, count in counts.most_common():
            print(f"  {part:16} {count:6,}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["src/benchcast"])
