"""Commands under headings, each with its whole first sentence, in the order in which they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

LONGEST = 200


class Sections(click.Group):
    """A group whose commands are listed as they were added, or under headings."""

    headings: Mapping[str, Sequence[click.Command]] = {}

    def add_sections(self, headings: Mapping[str, Sequence[click.Command]]) -> None:
        """Add commands, heading by heading."""
        self.headings = headings
        for commands in headings.values():
            for command in commands:
                self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of adding, without aliases; click would sort them."""
        return [name for name, command in self.commands.items() if name == command.name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command does, not cut short as click does."""
        for heading, commands in (self.headings or {"Commands": list(self.commands.values())}).items():
            with formatter.section(heading):
                formatter.write_dl([(c.name or "", c.get_short_help_str(LONGEST)) for c in commands])


class WithMethods(click.Command):
    """A command whose help ends with the methods, one line each."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list; the methods are loaded only now."""
        from benchcast.methods import ABOUT

        with formatter.section("Methods"):
            formatter.write_dl([*ABOUT.items()])
