"""What the pages say to run exists, and every command says how it is run."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.commands import lab
from lab.reproduce.document import PARTS

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("lab/LOG.md", "lab/zoo/README.md", "tests/README.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_laboratory_on_a_page_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"python -m lab\s+(\w+)", text)) <= set(lab.commands)
    for module in re.findall(r"python -m (lab\.[\w.]*\w)", text.replace("lab.log.NAME", "lab.log")):
        assert find_spec(module) is not None, module


def test_every_part_of_the_results_is_a_command() -> None:
    assert {name for name, _, _ in PARTS} <= set(lab.commands)


@pytest.mark.parametrize("name", lab.commands)
def test_every_command_shows_how_it_is_run(name: str) -> None:
    assert f"python -m lab {name}" in (lab.commands[name].help or "")
