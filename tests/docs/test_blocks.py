"""Every code block of every page: its language is known, its commands exist with their options, its code compiles."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from benchcast.cli import cli
from lab.commands import lab
from tools.site import links
from tools.site.pages import BLOCK, blocks, command_lines

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / name for name in links.PAGES), *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"bash", "console", "python", "toml", "yaml", "json", "text"}
OTHERS = {
    "aws",
    "cat",
    "cp",
    "pip",
    "export",
    "lighteval",
    "lm_eval",
    "printf",
    "ray",
    "sed",
    "sh",
    "tensorboard",
    "make",
}
TREE = "CONTRIBUTING.md"  # its diagrams have no language


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_every_block_names_its_language(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    unknown = {kind for kind, _ in blocks(text)} - LANGUAGES
    assert unknown <= ({""} if page.name == TREE else set())
    assert text.count("\n```") == 2 * len(blocks(text)), "a block is not closed, or indented"


def test_code_is_never_shown_by_indentation_alone(page: Path) -> None:
    """Such code would not be checked."""
    if page.name != TREE:
        outside = BLOCK.sub("", page.read_text(encoding="utf-8"))
        assert re.findall(r"^(?:\S.*)?\n\n {4}\S.*", outside, re.MULTILINE) == []


def test_python_compiles_and_data_is_read(page: Path) -> None:
    readers = {"python": ast.parse, "toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}
    for kind, block in blocks(page.read_text(encoding="utf-8")):
        if kind in readers:
            readers[kind](block)


def parse(group: click.Command, words: list[str]) -> None:
    """Raise an error unless the words are a command of the group with options that it has and values that they take."""
    context = click.Context(group, **group.context_settings)
    while isinstance(group, click.Group):
        name, *words = words
        assert name in group.commands, name
        group = group.commands[name]
        context = click.Context(group, parent=context)
    given, _, _ = group.make_parser(context).parse_args(list(words))
    for parameter in group.params:
        if (
            isinstance(parameter, click.Option)
            and isinstance(parameter.type, click.Choice)
            and given.get(parameter.name)
        ):
            parameter.type_cast_value(context, given[parameter.name])


def test_every_command_exists_with_its_options(page: Path) -> None:
    for line in command_lines(page.read_text(encoding="utf-8")):
        words = [w for w in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S*", w)]
        if words[:3] == ["python", "-m", "lab"]:
            parse(lab, words[3:])
        elif words[:2] == ["python", "-m"]:
            assert ROOT.joinpath(*words[2].split(".")).with_suffix(".py").is_file(), line
        elif words[0] == "python":
            assert (ROOT / words[1]).is_file(), line
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif "benchcast" in words:
            parse(cli, words[words.index("benchcast") + 1 :])
        else:
            assert words[0] in OTHERS or line == "…", line


def test_commands_within_a_sentence_exist(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for line in re.findall(r"`benchcast ([a-z][^`]*)`", text.replace("\n", " ")):
        parse(cli, shlex.split(line))
    for line in re.findall(r"`python -m lab ([^`]*)`", text.replace("\n", " ")):
        parse(lab, shlex.split(line))
    for command, option in re.findall(r"`([a-z]+) (--[a-z-]+)[^`]*`", text):
        options = {o for c in (cli, lab) if command in c.commands for p in c.commands[command].params for o in p.opts}
        assert not options or option in options, (command, option)


def test_a_wrong_option_is_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(cli, ["fit", "study", "--methods", "stack"])
    with pytest.raises(click.BadParameter):
        parse(cli, ["compare", "study", "--split", "sizes"])
    with pytest.raises(AssertionError):
        parse(cli, ["fits", "study"])
