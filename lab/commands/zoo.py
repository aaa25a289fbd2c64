"""`zoo`: train small language models and write a study of them."""

from __future__ import annotations

from pathlib import Path

import click

from benchcast.cli.output import say
from benchcast.errors import BenchcastError


@click.command("zoo")
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "--recipe", type=click.Choice(["signals", "small"]), default="signals", show_default=True,
    help="signals: the families and sizes of the embedded study, for a GPU; small: for a CPU.",
)  # fmt: skip
@click.option("--work", type=click.Path(path_type=Path), default=Path("zoo-work"), show_default=True,
              help="Folder for training tokens and finished runs; the same command continues.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Runs side by side.")
@click.option("--tiny", is_flag=True, help="A few steps and 20 items, to see that all works.")
def zoo(study: Path, recipe: str, work: Path, jobs: int, tiny: bool) -> None:
    """Train a zoo of language models, with texts that have worked solutions, and write a study of them.

    The full recipe took an H200 18 minutes, seven runs side by side. The small one has 24 runs of 0.2M
    to 1M parameters and takes about an hour and a half of one core.

    \b
    python -m lab zoo study --jobs 7
    python -m lab zoo study --recipe small
    """
    from lab.zoo.pack import pack
    from lab.zoo.recipes import RECIPES
    from lab.zoo.run import main

    work = work / "tiny" if tiny else work
    out = work / f"results-{recipe}"
    arguments = ["train", "--recipe", recipe, "--work", str(work), "--out", str(out), "--jobs", str(jobs)]
    if main([*arguments, *(["--tiny"] if tiny else [])]):
        raise BenchcastError(f"{work}: some runs failed; the same command tries them again")
    say(str(pack(out, study, RECIPES[recipe]).root))
