"""`reference`, `pictures`, `outputs`: what pages of the documentation are made of."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from benchcast.cli.output import say

FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
SETS = ("concepts", "tutorial")


@click.command("reference")
@FOLDER
def reference(folder: Path) -> None:
    """Write FOLDER/cli.md from `--help`, and the table of the README beside FOLDER from FOLDER/figures/quality.json.

    \b
    python -m lab reference docs
    """
    from benchcast.study.atomic import write_text
    from tools.site.readme import renew_readme
    from tools.site.reference import command_line_page

    write_text(folder / "cli.md", command_line_page())
    readme = folder.resolve().parent / "README.md"
    write_text(readme, renew_readme(readme.read_text(encoding="utf-8"), folder / "figures" / "quality.json"))


@click.command("pictures")
@FOLDER
@click.argument("sets", nargs=-1, type=click.Choice(SETS))
def pictures(folder: Path, sets: tuple[str, ...]) -> None:
    """Draw the pictures of FOLDER/concepts.md and FOLDER/tutorial.md; the tutorial needs the OLMo ladder.

    \b
    python -m lab pictures docs
    python -m lab pictures docs concepts
    """
    from benchcast.datasets import fetch_olmo_ladder, load_zoo
    from tools.site.concepts import concept_figures
    from tools.site.theme import write_schemes
    from tools.site.tutorial import tutorial_figures

    for name in sets or SETS:
        figures = concept_figures(load_zoo()) if name == "concepts" else tutorial_figures(fetch_olmo_ladder())
        for title, figure in figures.items():
            for path in write_schemes(figure, folder / "figures" / f"{name}-{title}"):
                say(str(path))


@click.command("outputs")
@click.argument("pages", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--demo", is_flag=True, help="Run `benchcast demo --out demo` first, for pages that use its study.")
def outputs(pages: tuple[Path, ...], demo: bool) -> None:
    """Run the commands of each of PAGES in an empty folder and replace the output that they show.

    \b
    python -m lab outputs docs/index.md docs/tutorial.md
    python -m lab outputs --demo docs/extrapolation.md docs/runs.md docs/sharing.md
    """
    from benchcast.study.atomic import write_text
    from tools.site.pages import renew

    start = Path.cwd()
    for page in pages:
        file = page.resolve()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                if demo:
                    _run("benchcast demo --out demo")
                text = renew(file.read_text(encoding="utf-8"), _run)
            finally:
                os.chdir(start)
        write_text(file, text)
        say(str(page))


def _run(line: str) -> str:
    """What a line of `benchcast …` prints on a terminal of 80 columns."""
    words = [sys.executable, "-m", "benchcast", *shlex.split(line)[1:]]
    ran = subprocess.run(
        words, capture_output=True, text=True, encoding="utf-8", env=os.environ | {"COLUMNS": "80"}, check=False
    )
    return ran.stdout + ran.stderr
