"""`fit`, `compare` and `predict`: from evidence to forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.cli.arguments import ADDRESS, EXECUTOR
from benchcast.cli.data import STUDY
from benchcast.cli.output import number, print_json, print_table, progress, workers

if TYPE_CHECKING:
    from benchcast.evaluate import Comparison
    from benchcast.fits import Fit, Forecast
    from benchcast.records import TokenLosses
    from benchcast.store import Study
    from benchcast.support import Support

    Made = tuple[list[Fit], TokenLosses, list[Forecast]]

TASKS = click.option("--task", "tasks", multiple=True, help="A task of study.toml; may be given again. Default: all.")
SPLIT = click.option(
    "--split",
    type=click.Choice(["column", "size", "family"]),
    help="How models are held out. Default: the split column if filled, else size.",
)
KEEP_ALL = click.option(
    "--keep-all",
    is_flag=True,
    help="Keep models that lack more than 10% of a task's own text; it is then lost for all.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
DEVICE = click.option(
    "--device", default="", help="Work out salience, paper and ridge there, e.g. cuda; needs torch. Default: numpy."
)


@click.command()
@STUDY
@TASKS
@click.option("--method", default="salience", show_default=True, help="A column of `benchcast compare`.")
@click.option(
    "--split",
    type=click.Choice(["column", "size", "family"]),
    help="Keep this split's test models unseen (family: none). Default: the split column if filled, else none.",
)
@KEEP_ALL
@DEVICE
def fit(study: Path, tasks: tuple[str, ...], method: str, split: str | None, keep_all: bool, device: str) -> None:
    """Learn salience and law, and store them in the study.

    \b
    benchcast fit study
    benchcast fit study --task mmlu --method paper --device cuda
    """
    from benchcast.fitting import describe, fit_tasks
    from benchcast.storage.files import locked
    from benchcast.support import Support

    opened = _open(study, device, keep_all=keep_all)
    weak: list[str] = []
    with progress(f"fitting {method}"):
        fits = fit_tasks(opened, tasks, method=method, split=split, on_left_out=weak.append)
    with locked(opened.root):
        for made in fits:
            made.save(opened.fit_folder(made.task))
    for made in fits:
        click.echo(describe(made))
    for line in weak:
        click.echo(f"left out: {line}")
    _tell_support(Support.of(fits[0].about))
    _doubt(opened, [made.task for made in fits])
    click.echo(f"next: benchcast predict {study} --model NAME")


@click.command()
@STUDY
@TASKS
@SPLIT
@click.option("--method", "methods", multiple=True, help="Only this method; may be given again.")
@click.option(
    "--runs", metavar="A,B,…", help="Compare training runs instead: families, or models without their @tokens."
)
@KEEP_ALL
@DEVICE
@EXECUTOR
@ADDRESS
@JSON
def compare(
    study: Path,
    tasks: tuple[str, ...],
    split: str | None,
    methods: tuple[str, ...],
    runs: str | None,
    keep_all: bool,
    device: str,
    executor: str,
    address: str,
    as_json: bool,
) -> None:
    """Forecast held-out models with every method and say how well each does; or order training runs.

    \b
    benchcast compare study
    benchcast compare study --split family --task mmlu
    benchcast compare study --runs oak-a,oak-b          by forecast at equal compute
    benchcast compare study --split family --executor ray
    """
    if runs is not None:
        from benchcast.cli.runs import show_runs

        if split is not None or len(methods) > 1 or executor != "local":
            raise click.UsageError("--runs goes with one --method at most, no --split and no --executor ray")
        show_runs(_open(study, device, keep_all=keep_all), runs, tasks, *methods, as_json=as_json)
        return
    from benchcast.evaluate import compare as run
    from benchcast.methods import METHODS

    if device and executor != "local":
        raise click.UsageError("--device is for this process; leave it out, or --executor ray")
    opened = _open(study, device, keep_all=keep_all)
    with workers(executor, address) as pool, progress("comparing", len(methods) or len(METHODS)) as advance:
        told = partial(_tell, advance)
        found = run(opened, tasks, split=split, methods=methods, on_method=told, executor=pool)
    if as_json:
        print_json(found.as_json())
    else:
        print_comparison(found)
    _tell_support(found.evidence.support)
    _doubt(opened, found.tasks)


def _open(study: Path, device: str, *, keep_all: bool = False) -> Study:
    """The study, its fits to be worked out on a device that is there."""
    from benchcast.devices import check_device
    from benchcast.store import Study

    return replace(Study.open(study, keep_all=keep_all), device=check_device(device))


def _tell_support(support: Support) -> None:
    """Say how much text the models share, where that is not all of it."""
    for line in support.lines():
        click.echo(f"note: {line}", err=True)


def _doubt(study: Study, tasks: Sequence[str]) -> None:
    """Warn of tasks whose scores are no better than guessing."""
    from benchcast.status import below_chance

    for line in below_chance(study.scores(), [study.task(name) for name in tasks]):
        click.echo(f"warning: {line}", err=True)


def _tell(advance: Any, method: str) -> None:
    advance(f"comparing: {method}")


def print_comparison(found: Comparison) -> None:
    """Error of every method on every task, then what the best-known method's order and intervals are worth."""
    n_test = max(len(h.observed) for h in found.held.values())
    rows = []
    for task in found.tasks:
        errors = [found.measures(task, m)["mse"] for m in found.methods]
        least = min((e for e in errors if e == e), default=float("nan"))
        cells = [("*" if e == least else "") + number(e) for e in errors]
        rows.append((task, *cells, number(found.noise[task])))
    print_table(
        ("mean squared error", *found.methods, "noise floor"),
        rows,
        title=f"split by {found.split}, {n_test} held-out models",
    )
    click.echo("* least error; noise floor: what the finite number of scored items alone leaves\n")
    detail = []
    for task in found.tasks:
        m = found.measures(task, found.methods[0])
        cells = [
            number(m[k], form)
            for k, form in (
                ("mae", ".4f"),
                ("r2", ".3f"),
                ("spearman", ".3f"),
                ("pairs", ".3f"),
                ("coverage", ".2f"),
                ("width", ".3f"),
            )
        ]
        detail.append((task, *cells))
    header = (
        found.methods[0],
        "mean abs error",
        "R²",
        "Spearman",
        "pairs in order",
        "90% interval covers",
        "its width",
    )
    print_table(header, detail)
    for method, why in found.left_out.items():
        click.echo(f"left out: {method} {why}")


@click.command()
@click.argument("study", required=False, type=click.Path(path_type=Path))
@click.option("--model", "model", help="A model of the study that has losses.")
@click.option(
    "--fit", "fit_folder", type=click.Path(path_type=Path), help="A fit's folder or hub id, instead of a study."
)
@click.option(
    "--losses",
    "losses_file",
    type=click.Path(path_type=Path),
    help="Losses of one model on the fit's texts: JSONL or Parquet.",
)
@click.option("--restrict", is_flag=True, help="Fit again on the tokens that the model has losses for.")
@click.option("--register", type=click.Path(path_type=Path), help="Put it down, dated and hashed, in a new file.")
@TASKS
@JSON
def predict(
    study: Path | None,
    model: str | None,
    fit_folder: Path | None,
    losses_file: Path | None,
    restrict: bool,
    register: Path | None,
    tasks: tuple[str, ...],
    as_json: bool,
) -> None:
    """Forecast a model's scores, with 90% intervals.

    \b
    benchcast predict study --model my-7b
    benchcast predict --fit study/fits/mmlu --losses my-7b.jsonl
    benchcast predict study --model my-7b --register my-7b.json        benchcast verify scores it later
    """
    if study is not None and model is not None and fit_folder is None and losses_file is None:
        made = _from_study(study, model, tasks, restrict=restrict)
    elif study is None and model is None and fit_folder is not None and losses_file is not None:
        if restrict or tasks:
            raise click.UsageError("--restrict and --task need a study to fit on again")
        made = _from_files(fit_folder, losses_file)
    else:
        raise click.UsageError("give STUDY and --model, or --fit and --losses")
    forecasts = made[2]
    note = _register(register, made) if register is not None else ""
    if as_json:
        from benchcast.cells import null

        print_json([{k: null(v) for k, v in asdict(f).items()} for f in forecasts])
        return
    rows = [
        (
            f.task,
            number(f.accuracy, ".3f"),
            f"{number(f.low, '.3f')} – {number(f.high, '.3f')}",
            number(f.capability, ".4f"),
            f.remark,
        )
        for f in forecasts
    ]
    print_table(("task", "forecast", "90% interval", "capability", ""), rows, title=forecasts[0].model)
    if note:
        click.echo(note)


def _register(path: Path, made: Made) -> str:
    from benchcast.register import document, write

    registered = document(*made)
    write(path, registered)
    return f"registered: {path}, sha256 {registered['sha256']} (publish this hash; `benchcast verify` scores it later)"


def _from_study(study: Path, model: str, tasks: tuple[str, ...], *, restrict: bool) -> Made:
    from benchcast.fitting import refit, stored_fits
    from benchcast.store import Study

    opened = Study.open(study)
    losses = opened.losses(model)
    fits = stored_fits(opened, tasks)
    if restrict:
        fits = refit(opened, fits, losses)
    return fits, losses, [fit.predict(losses) for fit in fits]


def _from_files(folder: Path, file: Path) -> Made:
    from benchcast.errors import InputError
    from benchcast.fits import Fit
    from benchcast.storage.loss_files import read_losses

    fit = Fit.from_pretrained(folder)
    if file.suffix == ".csv":
        raise InputError(f"{file}: losses for a forecast come as .jsonl or .parquet, one model a file")
    read: list[TokenLosses] = read_losses(file, fit.texts)
    if len(read) != 1:
        raise InputError(f"{file}: losses of one model wanted, found {len(read)}")
    return [fit], read[0], [fit.predict(read[0])]
