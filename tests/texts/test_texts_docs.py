"""Commands in docs/texts.md and docs/scores.md are ones that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from benchcast.cli import cli
from benchcast.cli.reproduce import reproduce
from benchcast.cli.twins import twins

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS: dict[str, click.Command] = {**cli.commands, "reproduce": reproduce, "twins": twins}


def commands(page: str) -> list[str]:
    return re.findall(r"^\$ (benchcast .*)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("line", [*commands("texts.md"), *commands("scores.md")])
def test_documented_commands_and_options_exist(line: str) -> None:
    words = shlex.split(line.partition("      ")[0])
    command = COMMANDS[words[1]]
    rest = words[2:]
    while isinstance(command, click.Group):
        command, rest = command.commands[rest[0]], rest[1:]
    known = {option for p in command.params for option in p.opts}
    assert {w for w in rest if w.startswith("-")} <= known
