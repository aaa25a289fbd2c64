"""Lines of code by folder, without docstrings, comments and blank lines: python bench/lines.py [FOLDER…]

Then the helpers that a reader must jump to for little: private functions of a module that their file names once and
that have at most four lines of body. One that stays has a name that is a word of the domain.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
SHORT = 4  # lines of body
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


def short_helpers(source: str) -> list[str]:
    """Private functions of a module that are named once in it, besides their definition, and are short."""
    tree = ast.parse(source)
    named = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    private = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name.startswith("_")]
    return [n.name for n in private if named[n.name] == 1 and 0 < len(body_lines(n, source)) <= SHORT]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> set[int]:
    documented = ast.get_docstring(function, clean=False) is not None
    body = function.body[1:] if documented else function.body
    if not body or function.name.startswith("__"):
        return set()
    lines = source.splitlines()
    inside = range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1)
    return {n for n in inside if lines[n - 1].strip() and not lines[n - 1].lstrip().startswith("#")}


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
        found = {p: short_helpers(p.read_text(encoding="utf-8")) for p in sorted(folder.rglob("*.py"))}
        print(f"helpers that are called once and have at most {SHORT} lines: {sum(map(len, found.values()))}")
        for path, names in found.items():
            if names:
                print(f"  {path.relative_to(folder)}: {', '.join(names)}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["src/benchcast"])
