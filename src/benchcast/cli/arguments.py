"""Arguments and options that several commands share, and groups of commands under headings, in the order of use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchcast.choices import EXECUTORS, SPLITS
from benchcast.study.atomic import local_folder

LONGEST = 200  # characters of what a command does in a list; click cuts at 45


class StudyFolder(click.ParamType):  # type: ignore[type-arg]
    """The folder of a study."""

    name = "path"

    def convert(self, value: str | Path, param: click.Parameter | None, context: click.Context | None) -> Path:
        """The folder; an InputError for a URL."""
        return local_folder(value)


PATH = click.Path(path_type=Path)
STUDY_FOLDER = StudyFolder()
STUDY = click.argument("study", type=STUDY_FOLDER)
FILES = click.argument("files", nargs=-1, required=True, type=PATH)
FILE = click.argument("file", type=PATH)
TASKS = click.option("--task", "tasks", multiple=True, help="A task of study.toml; may be given again. Default: all.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
FORCE = click.option("--force", is_flag=True, help="Replace what is in the study.")
RENAME = click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="OLD=NEW",
    help="Other names: OLD=NEW, with one * on each side if you like, or a CSV from,to; may be given again.",
)
EXECUTOR = click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    default="local",
    show_default=True,
    help="Where jobs run.",
)
ADDRESS = click.option(
    "--address", default="", help="Address of the Ray cluster: HOST:6379, or auto. Default: RAY_ADDRESS."
)
GPUS = click.option(
    "--gpus", type=click.FloatRange(min=0), help="GPUs of each Ray worker. Default: 1 if the cluster has any."
)


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
        from benchcast.methods import METHODS

        with formatter.section("Methods"):
            formatter.write_dl([(method.name + " *" * method.main, method.about) for method in METHODS.values()])


SPLIT = click.option(
    "--split",
    type=click.Choice(SPLITS),
    default="auto",
    show_default=True,
    help="How models are held out. auto: by the split column if filled, else size if enough train, else family.",
)
KEEP_ALL = click.option(
    "--keep-all",
    is_flag=True,
    help="Keep models that lack more than 10% of a task's own text; it is then lost for all.",
)
NO_CHOICES = click.option(
    "--no-choices",
    is_flag=True,
    help="Read no choice losses (how probable right options are), so that models without them can be forecast.",
)
DEVICE = click.option(
    "--device",
    default="",
    help="Compute stack, salience, paper and ridge on this torch device, e.g. cuda. Default: numpy.",
)
