"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click


class StudyPlace(click.ParamType):  # type: ignore[type-arg]
    """A folder, or a URL whose study is worked on in a local copy while the command runs."""

    name = "study"

    def convert(self, value: str | Path, param: click.Parameter | None, context: click.Context | None) -> Path:
        """The folder to work in."""
        if context is None or context.resilient_parsing or "://" not in str(value):
            return Path(value)
        from benchcast.storage.remote import local_copy

        return context.with_resource(local_copy(str(value)))


PATH = click.Path(path_type=Path)
STUDY = click.argument("study", type=StudyPlace())
FILES = click.argument("files", nargs=-1, required=True, type=PATH)
FILE = click.argument("file", type=PATH)
TASKS = click.option("--task", "tasks", multiple=True, help="A task of study.toml; may be given again. Default: all.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
FORCE = click.option("--force", is_flag=True, help="Replace what is in the study.")
EXECUTOR = click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where the work is done.",
)
ADDRESS = click.option("--address", default="", help="Of the Ray cluster: HOST:6379, or auto. Default: RAY_ADDRESS.")
GPUS = click.option("--gpus", type=click.FloatRange(min=0), help="Of a Ray worker. Default: 1 where there are any.")
