"""The commands in pages on larger models, runs and sharing run as pasted, on a small study with their names."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from synthetic import write_study
from tools.site.pages import steps

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("extrapolation.md", "runs.md", "sharing.md")
CALLED = {"family0": "oak-a", "family1": "oak-b", "oak-a-64M@432B": "oak-a-50M@36.0M"}


def called(name: str) -> str:
    family, dash, rest = name.partition("-")
    there = CALLED.get(family, family) + dash + rest
    return CALLED.get(there, there)


def headings(lines: list[str]) -> list[list[str]]:
    """Words of the headings of every table of tasks; they stand in two lines where one is too narrow."""
    headings_found = []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("task "):
            headings_found.append(sorted(line.split() + (before.split() if before.startswith("  ") else [])))
    return headings_found


@pytest.mark.slow
def test_every_command_does_what_the_page_says(world, cli, tmp_path, monkeypatch):
    names = replace(
        world,
        tasks=tuple(replace(t, name={"task0": "code", "task1": "chinese"}[t.name]) for t in world.tasks),
        models=tuple(replace(m, model=called(m.model), family=called(m.family)) for m in world.models),
        losses=tuple(replace(x, model=called(x.model)) for x in world.losses),
        scores=tuple(
            replace(s, model=called(s.model), task={"task0": "code", "task1": "chinese"}[s.task]) for s in world.scores
        ),
    )
    monkeypatch.chdir(tmp_path)
    write_study(names, Path("demo/study"))
    assert cli("fit", "demo/study", "--split", "size").code == 0
    done = 0
    pages = [(DOCS / page).read_text(encoding="utf-8") for page in PAGES]
    for line, shown in steps("\n".join(pages)):
        if line.startswith("import benchcast"):
            exec(line, {})
        elif line.startswith("benchcast "):
            ran = cli(*shlex.split(line)[1:])
            refused = any(x.startswith("error: ") for x in shown)
            assert ran.code == int(refused), (line, ran.err)
            assert not refused or ran.err.partition(" sha256")[0] in "\n".join(shown)
            wanted = [sorted({"9": "4"}.get(word, word) for word in words) for words in headings(shown)]
            assert headings(ran.out.splitlines()) == wanted, line
            done += 1
        else:
            subprocess.run(shlex.split(line), check=True)
    assert done >= 6
