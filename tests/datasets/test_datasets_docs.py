"""The commands of docs/datasets.md and docs/tables.md run as they stand; a table says what the catalogue says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from benchcast.datasets import DATASETS
from benchcast.datasets.download import public_files
from benchcast.study.study import Study
from tools.site.pages import steps, write_shown

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC, OWN = ((DOCS / page).read_text(encoding="utf-8") for page in ("datasets.md", "tables.md"))


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Commands with the lines under them."""
    return [(command, shown) for command, shown in steps(text) if "\n" not in command]


def test_the_page_makes_a_study_from_a_table(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line, shown in commands(OWN):
        words = shlex.split(line)
        if words[0] == "cat":
            write_shown(line, shown)
            continue
        ran = cli(*words[1:])
        assert ran.code == 0, (line, ran.err)
        assert not shown or ran.out.splitlines() == shown, line
    assert Study.open("study").fitted_tasks() == ["arc_easy"]


@pytest.mark.parametrize("name", DATASETS)
def test_the_table_names_counts_commits_and_licences(name):
    (row,) = re.findall(rf"^\| `{name}` \|.*$", PUBLIC, re.MULTILINE)
    said = DATASETS[name]
    for number in (said.models, said.losses, said.tasks):
        assert re.search(rf"\b{number}\b", row)
    assert said.licence in row
    if said.read is not None:
        for file in public_files(name):
            assert file.commit[:12] in row
            assert f"github.com/{file.repository}" in row


def test_the_python_of_the_page_runs(raw):
    (block,) = re.findall(r"^```python\n(.*?)^```", PUBLIC, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(block, names)
    result = names["result"]
    assert (result.tasks, result.methods) == (("hellaswag",), ("all-token", "pls"))
    assert result.measures("hellaswag", "pls")["n_test"] == DATASETS["dclm"].models


def test_commands_of_the_page_exist(cli):
    """With their options and with the data sets they name."""
    for line, _ in commands(PUBLIC):
        _, command, *rest = shlex.split(line)
        ran = cli(command, "--help")
        assert ran.code == 0
        assert all(word in ran.out for word in rest if word.startswith("--")), line
        assert command == "datasets" or set(rest) & set(DATASETS), line
