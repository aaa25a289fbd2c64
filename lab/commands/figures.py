"""`table1`, `fig1` and so on: the paper's tables and figures, and ours, on a study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.cli.output import print_table, say
from benchcast.cli.progress import progress

if TYPE_CHECKING:
    from lab.reproduce.context import StudyContext
    from lab.reproduce.outcome import Outcome

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


def study_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with STUDY and --out; the embedded study is the default."""

    def wrap(function: Callable[..., Any]) -> click.Command:
        return click.command(name)(STUDY(OUT(function)))

    return wrap


def show_outcome(study: Path | None, out: Path, work: Callable[[StudyContext], Outcome]) -> Outcome:
    """Do the work, write its files, print its tables."""
    from benchcast.datasets import load_zoo
    from benchcast.study.study import Study
    from lab.reproduce.context import StudyContext
    from lab.reproduce.outcome import write_outcome

    opened = load_zoo() if study is None else Study.open(study)
    with progress("reading the study") as advance:
        outcome = work(StudyContext(opened, on_step=lambda what: advance(what)))
    for table in outcome.tables:
        print_table(table.header, table.rows, title=table.title, wide=True)
        say()
    for remark in outcome.remarks:
        say(remark)
    written = write_outcome(outcome, out)
    say(f"written: {written[0].parent}/{{{', '.join(p.name for p in written)}}}")
    return outcome


@study_command("table1")
def table1(study: Path | None, out: Path) -> None:
    """Test error and R² of every method on every task (Table 1), and on families never seen.

    \b
    python -m lab table1 study --out results
    """
    from lab.reproduce import table

    show_outcome(study, out, table.table1)


@study_command("fig1")
@RUNS
def fig1(study: Path | None, out: Path, runs: str | None) -> None:
    """Compute against accuracy under two mixtures of data.

    \b
    python -m lab fig1 study --runs oak-a,oak-b
    """
    from lab.reproduce import scaling

    show_outcome(study, out, lambda context: scaling.fig1(context, runs))


@study_command("fig2")
def fig2(study: Path | None, out: Path) -> None:
    """Loss on the task's own texts, per character, against accuracy.

    \b
    python -m lab fig2 study
    """
    from lab.reproduce import scaling

    show_outcome(study, out, scaling.fig2)


@study_command("fig4")
@METHOD
def fig4(study: Path | None, out: Path, method: str) -> None:
    """Capability against accuracy with the fitted law; training, validation and test models.

    \b
    python -m lab fig4 study --method paper
    """
    from lab.reproduce import laws

    show_outcome(study, out, lambda context: laws.fig4(context, method))


@study_command("fig5")
@RUNS
def fig5(study: Path | None, out: Path, runs: str | None) -> None:
    """Later checkpoints of two training runs, forecast from other families and their early checkpoints.

    \b
    python -m lab fig5 study --runs oak-a,oak-b
    """
    from lab.reproduce import series

    show_outcome(study, out, lambda context: series.fig5(context, runs))


@study_command("fig6")
@click.option("--task", help="The task whose steps are drawn. Default: the one that gains most.")
def fig6(study: Path | None, out: Path, task: str | None) -> None:
    """Convergence of Algorithm 2: capability against accuracy, and errors, by step.

    \b
    python -m lab fig6 study --task mmlu
    """
    from lab.reproduce import convergence

    show_outcome(study, out, lambda context: convergence.fig6(context, task))


@study_command("fig7")
def fig7(study: Path | None, out: Path) -> None:
    """Forecast against observed accuracy of held-out models, every method.

    \b
    python -m lab fig7 study
    """
    from lab.reproduce import laws

    show_outcome(study, out, laws.fig7)


@study_command("fig8")
@click.option("--method", "methods", multiple=True, help="May be given again. Default: paper and salience.")
@click.option("--draws", type=click.IntRange(1), help="Sets of sources per number of them. Default: 2 and 3.")
def fig8(study: Path | None, out: Path, methods: tuple[str, ...], draws: int | None) -> None:
    """Test error by the number of sources that the texts come from.

    \b
    python -m lab fig8 study --method paper --draws 10
    """
    from lab.reproduce import diversity

    show_outcome(study, out, lambda context: diversity.fig8(context, methods or ("paper", "salience"), draws))


@study_command("fig9")
@METHOD
@click.option("--task", help="Default: the task with the longest texts.")
@click.option("--text", help="Id of a text. Default: one of the task's own, of middle length.")
def fig9(study: Path | None, out: Path, method: str, task: str | None, text: str | None) -> None:
    """Weights of one task on the tokens of a text.

    \b
    python -m lab fig9 study --task bbh --text bbh-17
    """
    from lab.reproduce import weights

    outcome = show_outcome(study, out, lambda context: weights.fig9(context, task, text, method))
    _print_strip(outcome.numbers["tokens"])


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
    say("heaviest: " + ", ".join(f"{t['token'].strip() or repr(t['token'])} {t['weight']:.2f}" for t in top))


@study_command("live")
@RUNS
@METHOD
def live(study: Path | None, out: Path, runs: str | None, method: str) -> None:
    """Every checkpoint of two unseen runs forecast in its turn, and how early the final score is known.

    \b
    python -m lab live study --runs oak-a,oak-b
    """
    from lab.reproduce.live import live as run

    show_outcome(study, out, lambda context: run(context, runs, method))


@study_command("ablation")
def ablation(study: Path | None, out: Path) -> None:
    """Heads, activations, unit of spreading and scorers.

    \b
    python -m lab ablation study
    """
    from lab.reproduce.ablation import ablation as run

    show_outcome(study, out, run)


@study_command("extrapolate")
@click.option("--worlds", type=click.IntRange(1), default=60, show_default=True, help="How many synthetic studies.")
def extrapolate(study: Path | None, out: Path, worlds: int) -> None:
    """Forecasts of larger models and later checkpoints, checked on hidden ones and in synthetic studies.

    \b
    python -m lab extrapolate study
    """
    from lab.reproduce import extrapolation

    show_outcome(study, out, lambda context: extrapolation.extrapolate(context, worlds))


@study_command("uncertainty")
def uncertainty(study: Path | None, out: Path) -> None:
    """Gains and coverage of the intervals, each with a bootstrap interval over families.

    \b
    python -m lab uncertainty study
    """
    from lab.reproduce.uncertainty import uncertainty as run

    show_outcome(study, out, run)


@study_command("learning")
@click.option("--draws", type=click.IntRange(1), help="Draws of training models. Default: one a family, at most 6.")
def learning(study: Path | None, out: Path, draws: int | None) -> None:
    """How error, coverage and width fall with the number of training models and of families.

    \b
    python -m lab learning study --draws 3
    """
    from lab.reproduce.learning import learning as run

    show_outcome(study, out, lambda context: run(context, draws))


@study_command("select")
def select(study: Path | None, out: Path) -> None:
    """Error against the number of texts: those that `benchcast select` picks, and as many at random.

    \b
    python -m lab select study
    """
    from lab.reproduce.select import select as run

    show_outcome(study, out, run)


@study_command("decisions")
def decisions(study: Path | None, out: Path) -> None:
    """Which of two data mixtures is better, told from small checkpoints, by compute.

    \b
    python -m lab decisions study
    """
    from lab.reproduce.decisions import decisions as run

    show_outcome(study, out, run)


@study_command("metrics")
def metrics(study: Path | None, out: Path) -> None:
    """Which metric tells training runs apart, on the public studies at hand and on STUDY.

    \b
    python -m lab metrics
    """
    from lab.reproduce.metrics import metrics as run

    show_outcome(study, out, run)


@study_command("order")
def order(study: Path | None, out: Path) -> None:
    """How often training runs are in the order that `compare --runs` says.

    \b
    python -m lab order study
    """
    from lab.reproduce.order import order as run

    show_outcome(study, out, run)


@click.command("results")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("parts", nargs=-1)
def results(folder: Path, parts: tuple[str, ...]) -> None:
    """Write FOLDER/results.md and its figures, all of them or the named PARTS; the others stay as they are.

    \b
    python -m lab results docs
    python -m lab results docs table1 fig8
    """
    from lab.reproduce.document import write_results

    write_results(folder, parts, on_step=lambda what: say(what, err=True))
