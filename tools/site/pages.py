"""Commands and Python blocks of a documentation page, with the output that the page shows, and how to renew it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s{2,}# .*$")  # behind a command
HEREDOC = re.compile(r"^(cat >>? \S+) <<END\n(.*?)^END$\n?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[*+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?")
Run = Callable[[str], str]  # a line of `benchcast …` → what it prints


def blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks: language and content."""
    return BLOCK.findall(page)


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Commands with the lines under them, and Python blocks without any, in order."""
    commands: list[tuple[str, list[str]]] = []
    for kind, block in blocks(page):
        if kind == "python":
            commands.append((block, []))
        elif kind == "console":
            commands += [(command, shown) for command, shown in _commands(block)]
        elif kind == "bash":
            commands += _files(block)
    return commands


def _files(block: str) -> list[tuple[str, list[str]]]:
    """`cat > FILE <<END` and `cat >> FILE <<END` of a bash block, each with the lines to write."""
    return [(command, lines.splitlines()) for command, lines in HEREDOC.findall(block)]


def _commands(block: str) -> Iterator[tuple[str, list[str]]]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, shown


def command_lines(page: str) -> list[str]:
    """The shell commands of all console and bash blocks, without comments; continued lines are joined."""
    lines = []
    for kind, block in blocks(page):
        if kind == "console":
            lines += [command for command, _ in _commands(block)]
        elif kind == "bash":
            lines += re.sub(r"\\\n\s*", " ", HEREDOC.sub(r"\1\n", block)).splitlines()
    return [COMMENT.sub("", line) for line in lines if line.strip() and not line.startswith("#")]


def renew(page: str, run: Run) -> str:
    """The page with the output of its `benchcast` commands made anew, in the present folder.

    `cat FILE` writes the lines shown if there is no such file, bash blocks write the files of their `cat > FILE <<END`,
    and Python blocks run. A line `…` stands for any lines; a command that shows nothing stays so. Of other programs
    only `cp` and `sed` run.
    """
    names: dict[str, object] = {}

    def replace(match: re.Match[str]) -> str:
        kind, block = match.groups()
        if kind == "python":
            exec(compile(block, "page", "exec"), names)
        for command, lines in _files(block) if kind == "bash" else ():
            write_shown(command, lines)
        if kind != "console":
            return match[0]
        lines = [line for c, shown in _commands(block) for line in (f"$ {c}", *_output(c, shown, run))]
        return "\n".join(["```console", *lines, "```"])

    return BLOCK.sub(replace, page)


def _output(command: str, shown: list[str], run: Run) -> list[str]:
    words = COMMENT.sub("", command).split()
    if words[0] == "cat" and not Path(words[-1]).exists():
        write_shown(command, shown)
    elif words[0] in ("cp", "sed"):
        subprocess.run(shlex.split(command), check=True)
    elif words[0] == "benchcast":
        printed = run(COMMENT.sub("", command)).rstrip("\n").split("\n")
        return _cut(printed, shown) if "…" in shown else printed if shown else []
    return shown


def write_shown(command: str, lines: list[str]) -> None:
    """Write the lines shown below `cat FILE` or `cat > FILE`; `cat >> FILE` appends them."""
    path = Path(command.split()[-1])
    with path.open("a" if ">>" in command else "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def _cut(printed: list[str], shown: list[str]) -> list[str]:
    """The printed lines that have the shape of the lines shown, in order; a shown line that none has stays as it is."""
    rest = iter(printed)
    return [line if line == "…" else next((p for p in rest if shape(p) == shape(line)), line) for line in shown]


def shape(text: str) -> list[str]:
    """A text without its numbers, widths of columns and empty lines: what stays when only values change."""
    lines = (re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip() for line in text.splitlines())
    return [line for line in lines if line]
