"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

STUDY = click.argument("study", type=click.Path(path_type=Path))
FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
FILE = click.argument("file", type=click.Path(path_type=Path))
FORCE = click.option("--force", is_flag=True, help="Replace what is in the study.")
