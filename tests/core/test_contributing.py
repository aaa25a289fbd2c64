"""CONTRIBUTING.md names files that exist, and its table of packages agrees with every import."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import benchcast

REPOSITORY = Path(__file__).parents[2]
ROOT = Path(benchcast.__file__).parent
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PACKAGES = {path.parent.name for path in ROOT.glob("*/__init__.py")}
TABLE = dict(
    re.findall(r"^\| `([a-z()]+)` \| .* \| (.*) \|$", PAGE.split("## Packages")[1].split("\n## ")[0], re.MULTILINE)
)
PUBLIC = ("__init__.py", "__main__.py", "callbacks.py")  # modules of the root that look up public names


def named_files(text: str) -> list[str]:
    return [name for name in re.findall(r"`([^`\s]+)`", text) if "/" in name or name.endswith(".md")]


def imported_packages(source: str) -> set[str]:
    """The packages and modules of the root that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module == "benchcast":
            names.update(f"benchcast.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.split(".")[1] for name in names if name.startswith("benchcast.")}


def allowed(package: str, module: str) -> set[str]:
    """The packages that a row of the table lets a module import; some are for one module only."""
    cell = TABLE[package]
    if cell == "all":
        return PACKAGES
    entries = re.findall(r"([a-z]+)(?: \(`(\w+\.py)` only\))?", cell)
    return {package, *(name for name, only in entries if not only or only == module)}


def test_ten_changes_are_described():
    assert len(CHANGES) == 10


@pytest.mark.parametrize("change", CHANGES)
def test_the_files_of_a_change_exist(change):
    files = named_files(CHANGES[change])
    assert any(name.startswith("src/") for name in files)
    assert any(name.startswith("tests/") for name in files)
    new, present = ([f for f in files if ("<name>" in f) == is_new] for is_new in (True, False))
    assert [f for f in present if not (REPOSITORY / f).exists()] == []
    assert [f for f in new if not (REPOSITORY / f).parent.is_dir()] == []


def test_all_other_files_of_the_page_exist():
    assert [name for name in named_files(PAGE) if "<name>" not in name and not (REPOSITORY / name).exists()] == []


def test_the_table_has_every_package():
    assert TABLE.keys() == PACKAGES | {"(root)"}


@pytest.mark.parametrize("package", [name for name in TABLE if name != "(root)"])
def test_a_package_imports_what_its_row_allows(package):
    paths = list((ROOT / package).rglob("*.py"))
    assert paths
    for path in paths:
        imported = imported_packages(path.read_text(encoding="utf-8")) & PACKAGES
        assert imported <= allowed(package, path.name), path


def test_the_root_imports_no_package():
    for path in ROOT.glob("*.py"):
        if path.name not in PUBLIC:
            assert not imported_packages(path.read_text(encoding="utf-8")) & PACKAGES, path


def test_the_checker_sees_imports():
    assert imported_packages("def f():\n    from benchcast.study import x\n") == {"study"}
    assert imported_packages("from benchcast import study, records\nimport benchcast.methods.law") == {
        "study",
        "records",
        "methods",
    }
    assert allowed("forecasts", "registration.py") - allowed("forecasts", "fit.py") == {"importers"}
