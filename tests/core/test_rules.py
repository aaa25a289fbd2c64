"""Rules of CONTRIBUTING that a reader would otherwise have to check: method names, numbers of `stack`, docstrings."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import benchcast
from benchcast.methods import METHODS

ROOT = Path(benchcast.__file__).parent
OUTSIDE_METHODS = [p for p in sorted(ROOT.rglob("*.py")) if (ROOT / "methods") not in p.parents and p.parent != ROOT]
FREE_NUMBERS = ("BLOCK",)  # sizes of work, which change no forecast


def method_names(node: ast.AST) -> list[str]:
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and n.value in METHODS]


@pytest.mark.parametrize("path", OUTSIDE_METHODS, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_methods_know_a_method_by_name(path):
    """A property of a method is a field of its row in METHODS."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            names = [name for side in (node.left, *node.comparators) for name in method_names(side)]
            assert not names, f"line {node.lineno} compares with {names}"
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            listed = node.keys if isinstance(node, ast.Dict) else node.elts
            names = [n.value for n in listed if isinstance(n, ast.Constant) and n.value in METHODS]
            assert len(names) < 2, f"line {node.lineno} lists {names}"


@pytest.mark.parametrize("path", sorted((ROOT / "methods" / "stack").glob("*.py")), ids=lambda p: p.stem)
def test_numbers_of_stack_stand_in_its_settings(path):
    """Those of the solver stay beside its loop."""
    if path.stem in ("settings", "nonnegative"):
        return
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for name in (t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper()):
            assert name in FREE_NUMBERS, name


@pytest.mark.parametrize("name", [name for name in benchcast.__all__ if not name.startswith("__")])
def test_a_public_name_is_documented(name):
    """What it is, and an example; its public methods and properties too say what they are."""
    value = getattr(benchcast, name)
    text = inspect.getdoc(value) or ""
    assert text.splitlines()[0].endswith((".", ":", ";")) or "\n" in text
    if not inspect.ismodule(value) and not (inspect.isclass(value) and issubclass(value, Exception)):
        assert ">>>" in text, "an example"
    if inspect.isclass(value):
        for member, found in vars(value).items():
            if not member.startswith("_") and (inspect.isroutine(found) or isinstance(found, property | classmethod)):
                assert inspect.getdoc(getattr(value, member)), f"{name}.{member}"
