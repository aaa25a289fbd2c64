"""Write docs/cli.md, the reference of the command line, from `--help` (`python -m lab reference docs`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from benchcast.cli import cli

WIDTH = 84  # columns that the site shows without scrolling on a laptop
HEAD = """# Command line

Made from `--help` by `python -m lab reference docs`; a test fails if a command has changed since. A user's mistake is
one line, and exit status 1.
"""


def command_line_page() -> str:
    """The page: all commands in the order of `benchcast --help`, each with its help."""
    parts = [HEAD, _help(cli, ("benchcast",))]
    for heading, commands in cli.headings.items():
        parts.append(f"## {heading}\n")
        for command in commands:
            parts += [f"### benchcast {' '.join(path[1:])}\n\n{_help(c, path)}" for path, c in _walk(command)]
    return "\n".join(parts)


def _walk(command: click.Command, above: Sequence[str] = ("benchcast",)) -> Iterator[tuple[list[str], click.Command]]:
    """A command and the commands below it."""
    path = [*above, command.name or ""]
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from _walk(command.commands[name], path)


def _help(command: click.Command, path: Sequence[str]) -> str:
    settings = {**cli.context_settings, **command.context_settings}
    context = click.Context(command, info_name=" ".join(path), terminal_width=WIDTH, **settings)
    return f"```text\n{command.get_help(context)}\n```\n"
