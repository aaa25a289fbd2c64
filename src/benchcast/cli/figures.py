"""`reproduce table1`, `reproduce fig1` and so on: the paper's tables and figures on a study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.cli.output import print_table, progress
from benchcast.cli.reproduce import reproduce

if TYPE_CHECKING:
    from benchcast.reproduce.desk import Desk
    from benchcast.reproduce.outcome import Outcome

__all__ = ["reproduce"]

STUDY = click.argument("study", required=False, type=click.Path(path_type=Path))
OUT = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reproduced"),
    show_default=True,
    help="Folder for the numbers (JSON) and figures (PNG, SVG, PDF).",
)
RUNS = click.option("--runs", metavar="A,B", help="The two families. Default: the first two named like oak-a, oak-b.")
METHOD = click.option("--method", default="salience", show_default=True, help="A column of `benchcast compare`.")


def _command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A subcommand with STUDY and --out; the embedded study is the default."""

    def wrap(function: Callable[..., Any]) -> click.Command:
        return reproduce.command(name)(STUDY(OUT(function)))

    return wrap


def _make(study: Path | None, out: Path, work: Callable[[Desk], Outcome]) -> Outcome:
    """Do the work, write its files, print its tables."""
    from benchcast.demo import open_embedded
    from benchcast.reproduce.desk import Desk
    from benchcast.reproduce.outcome import write_outcome
    from benchcast.store import Study

    opened = open_embedded() if study is None else Study.open(study)
    with progress("reading the study") as advance:
        made = work(Desk(opened, tell=lambda what: advance(what)))
    for table in made.tables:
        print_table(table.header, table.rows, title=table.title)
        click.echo()
    for remark in made.remarks:
        click.echo(remark)
    written = write_outcome(made, out)
    click.echo(f"written: {written[0].parent}/{{{', '.join(p.name for p in written)}}}")
    return made


@_command("table1")
def table1(study: Path | None, out: Path) -> None:
    """Test error and R² of every method on every task (Table 1), and on families never seen.

    \b
    benchcast reproduce table1 study --out results
    """
    from benchcast.reproduce import table

    _make(study, out, table.table1)


@_command("fig1")
@RUNS
def fig1(study: Path | None, out: Path, runs: str | None) -> None:
    """Compute against accuracy under two mixtures of data.

    \b
    benchcast reproduce fig1 study --runs oak-a,oak-b
    """
    from benchcast.reproduce import scaling

    _make(study, out, lambda desk: scaling.fig1(desk, runs))


@_command("fig2")
def fig2(study: Path | None, out: Path) -> None:
    """Loss on the task's own texts, per character, against accuracy.

    \b
    benchcast reproduce fig2 study
    """
    from benchcast.reproduce import scaling

    _make(study, out, scaling.fig2)


@_command("fig4")
@METHOD
def fig4(study: Path | None, out: Path, method: str) -> None:
    """Capability against accuracy with the fitted law; training, validation and test models.

    \b
    benchcast reproduce fig4 study --method paper
    """
    from benchcast.reproduce import laws

    _make(study, out, lambda desk: laws.fig4(desk, method))


@_command("fig5")
@RUNS
def fig5(study: Path | None, out: Path, runs: str | None) -> None:
    """Later checkpoints of two training runs, forecast from other families and their early checkpoints.

    \b
    benchcast reproduce fig5 study --runs oak-a,oak-b
    """
    from benchcast.reproduce import series

    _make(study, out, lambda desk: series.fig5(desk, runs))


@_command("fig6")
@click.option("--task", help="The task whose steps are drawn. Default: the one that gains most.")
def fig6(study: Path | None, out: Path, task: str | None) -> None:
    """Convergence of Algorithm 2: capability against accuracy, and errors, by step.

    \b
    benchcast reproduce fig6 study --task mmlu
    """
    from benchcast.reproduce import convergence

    _make(study, out, lambda desk: convergence.fig6(desk, task))


@_command("fig7")
def fig7(study: Path | None, out: Path) -> None:
    """Forecast against observed accuracy of held-out models, every method.

    \b
    benchcast reproduce fig7 study
    """
    from benchcast.reproduce import laws

    _make(study, out, laws.fig7)


@_command("fig8")
@click.option("--method", "methods", multiple=True, help="May be given again. Default: paper and salience.")
@click.option("--draws", type=click.IntRange(1), help="Sets of sources per number of them. Default: 2 and 3.")
def fig8(study: Path | None, out: Path, methods: tuple[str, ...], draws: int | None) -> None:
    """Test error by the number of sources that the texts come from.

    \b
    benchcast reproduce fig8 study --method paper --draws 10
    """
    from benchcast.reproduce import diversity

    _make(study, out, lambda desk: diversity.fig8(desk, methods or ("paper", "salience"), draws))


@_command("fig9")
@METHOD
@click.option("--task", help="Default: the task with the longest texts.")
@click.option("--text", help="Id of a text. Default: one of the task's own, of middle length.")
def fig9(study: Path | None, out: Path, method: str, task: str | None, text: str | None) -> None:
    """Weights of one task on the tokens of a text.

    \b
    benchcast reproduce fig9 study --task bbh --text bbh-17
    """
    from benchcast.reproduce import weights

    made = _make(study, out, lambda desk: weights.fig9(desk, task, text, method))
    _print_strip(made.numbers["tokens"])


def _print_strip(tokens: list[dict[str, Any]]) -> None:
    """The text with each token's background by its weight; plain text where there are no colours."""
    from rich.console import Console
    from rich.text import Text

    strip = Text()
    for token in tokens:
        light = max(0.0, token["weight"])
        red, green, blue = (round(255 + light * (c - 255)) for c in (0, 158, 115))
        ink = "black" if light < 0.75 else "white"
        strip.append(token["token"], style=f"{ink} on #{red:02x}{green:02x}{blue:02x}")
    Console(highlight=False).print(strip)
    top = sorted(tokens, key=lambda t: -t["weight"])[:8]
    click.echo("heaviest: " + ", ".join(f"{t['token'].strip() or repr(t['token'])} {t['weight']:.2f}" for t in top))


@_command("live")
@RUNS
@METHOD
def live(study: Path | None, out: Path, runs: str | None, method: str) -> None:
    """Every checkpoint of two unseen runs forecast in its turn, and how early the final score is known.

    \b
    benchcast reproduce live study --runs oak-a,oak-b
    """
    from benchcast.reproduce.live import live as run

    _make(study, out, lambda desk: run(desk, runs, method))


@_command("ablation")
def ablation(study: Path | None, out: Path) -> None:
    """Heads, activations, unit of spreading and scorers.

    \b
    benchcast reproduce ablation study
    """
    from benchcast.reproduce.ablation import ablation as run

    _make(study, out, run)


@_command("extrapolate")
@click.option("--worlds", type=click.IntRange(1), default=60, show_default=True, help="How many planted worlds.")
def extrapolate(study: Path | None, out: Path, worlds: int) -> None:
    """Forecasts of larger models and later checkpoints, checked on hidden ones and in planted worlds.

    \b
    benchcast reproduce extrapolate study
    """
    from benchcast.reproduce import ahead

    _make(study, out, lambda desk: ahead.extrapolate(desk, worlds))


@_command("doubt")
def doubt(study: Path | None, out: Path) -> None:
    """Gains and coverage of the intervals, each with a bootstrap interval over families.

    \b
    benchcast reproduce doubt study
    """
    from benchcast.reproduce.doubt import doubt as run

    _make(study, out, run)


@_command("learning")
@click.option("--draws", type=click.IntRange(1), help="Draws of training models. Default: one a family, at most 6.")
def learning(study: Path | None, out: Path, draws: int | None) -> None:
    """How error, coverage and width fall with the number of training models and of families.

    \b
    benchcast reproduce learning study --draws 3
    """
    from benchcast.reproduce.learning import learning as run

    _make(study, out, lambda desk: run(desk, draws))


@_command("select")
def select(study: Path | None, out: Path) -> None:
    """Error against the number of texts: those that `benchcast select` picks, and as many at random.

    \b
    benchcast reproduce select study
    """
    from benchcast.reproduce.select import select as run

    _make(study, out, run)


@_command("decisions")
def decisions(study: Path | None, out: Path) -> None:
    """Which of two data mixtures is better, told from small checkpoints, by compute.

    \b
    benchcast reproduce decisions study
    """
    from benchcast.reproduce.decisions import decisions as run

    _make(study, out, run)


@_command("order")
def order(study: Path | None, out: Path) -> None:
    """How often training runs are in the order that `compare --runs` says.

    \b
    benchcast reproduce order study
    """
    from benchcast.reproduce.order import order as run

    _make(study, out, run)
