"""CONTRIBUTING.md names files that exist, and its diagram agrees with the direction of imports."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from test_imports import LAYERS, ROOT

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def named_files(text: str) -> list[str]:
    return [name for name in re.findall(r"`([^`\s]+)`", text) if "/" in name or name.endswith(".md")]


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


def test_the_diagram_shows_every_package_in_the_order_of_imports():
    block = PAGE.split("## Packages")[1].split("```")[1]
    rows = [re.split(r"\s{3,}", line)[0].split() for line in block.splitlines() if line.strip() not in ("", "↓")]
    assert rows.pop(0) == ["lab"]
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= {name for row in rows for name in row}
    places = [[LAYERS.index(name) for name in row] for row in rows]
    for upper, lower in pairwise(places):
        assert min(upper) > max(lower)
