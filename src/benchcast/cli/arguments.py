"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from benchcast.choices import EXECUTORS


class StudyPlace(click.ParamType):  # type: ignore[type-arg]
    """A folder, or a URL whose study is worked on in a local copy while the command runs."""

    name = "study"

    def convert(self, value: str | Path, param: click.Parameter | None, context: click.Context | None) -> Path:
        """The folder to work in."""
        if context is None or context.resilient_parsing or "://" not in str(value):
            return Path(value)
        from benchcast.storage.remote import local_copy

        return context.with_resource(local_copy(str(value)))


STUDY = click.argument("study", type=StudyPlace())
FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
FILE = click.argument("file", type=click.Path(path_type=Path))
FORCE = click.option("--force", is_flag=True, help="Replace what is in the study.")
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
