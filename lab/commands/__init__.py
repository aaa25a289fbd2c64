"""`python -m lab`: one command for each table, figure and plan."""

from __future__ import annotations

import click

from benchcast.cli import run
from benchcast.cli.arguments import Sections
from lab.commands import figures, paper, site
from lab.commands.quality import quality
from lab.commands.zoo import zoo


@click.group(cls=Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def lab() -> None:
    """The tables and figures of the paper and ours on a study, and a plan to get the paper's Table 1.

    \b
    python -m lab table1                            on the embedded study
    python -m lab fig4 study                        on your own
    python -m lab plan table1 --data benchmarks     the commands that collect the paper's 59 models
    python -m lab results docs                      docs/results.md with all its figures
    """


lab.add_sections(
    {
        "The paper's tables and figures": (
            figures.table1, figures.fig1, figures.fig2, figures.fig4, figures.fig5, figures.fig6, figures.fig7,
            figures.fig8, figures.fig9,
        ),
        "Ours": (
            figures.ablation, figures.uncertainty, figures.live, figures.extrapolate, figures.order, figures.learning,
            figures.decisions, figures.metrics, figures.select, zoo, quality,
        ),
        "The paper's 59 models": (paper.plan, paper.cluster, paper.reading, paper.baselines),
        "Pages": (figures.results, site.reference, site.pictures, site.outputs),
    }
)  # fmt: skip


def main() -> None:
    """Run a command, with the errors of `benchcast`."""
    run(lab, "python -m lab")
