"""`predict`: forecasts of models by the stored fits of a study, or by one fit's folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.cli.arguments import JSON, PATH, STUDY_FOLDER, TASKS
from benchcast.cli.output import ends, print_json, print_table, say, say_wrapped, warn
from benchcast.cli.progress import progress
from benchcast.errors import InputError
from benchcast.messages import counted, few, number

if TYPE_CHECKING:
    from benchcast.forecasts.forecast import Forecast, Forecasts
    from benchcast.forecasts.predict import ModelForecasts
    from benchcast.forecasts.stored_fit import Fit
    from benchcast.study.study import Study


@click.command()
@click.argument("study", required=False, type=STUDY_FOLDER)
@click.option(
    "--model",
    "patterns",
    multiple=True,
    help="A model of the study that has losses, or a pattern such as 'my-7b@*'; may be given again.",
)
@click.option("--all", "everything", is_flag=True, help="All models of the study that have losses.")
@click.option("--fit", "fit_folder", type=PATH, help="A fit's folder or hub id, instead of a study.")
@click.option(
    "--losses",
    "losses_file",
    type=PATH,
    help="Losses of one model on the fit's texts: JSONL or Parquet; CSV where the fit is on a table of losses.",
)
@click.option(
    "--refit", "again", is_flag=True, help="Fit again first (the given tasks, else all), and store the new fits."
)
@click.option("--restrict", is_flag=True, help="Fit again on the tokens that the model has losses for; not stored.")
@click.option("--use-scores", is_flag=True, help="Also use each model's known scores on the other tasks.")
@click.option("--register", type=PATH, help="Write the forecast of one model, with date and hash, to a new file.")
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=DEFAULT_LEVEL,
    show_default=True,
    help="Share of scores of unseen models that an interval should contain.",
)
@click.option("--csv", "csv_file", type=PATH, help="Also write all forecasts with their intervals to this CSV file.")
@TASKS
@JSON
def predict(
    study: Path | None,
    patterns: tuple[str, ...],
    everything: bool,
    fit_folder: Path | None,
    losses_file: Path | None,
    again: bool,
    restrict: bool,
    use_scores: bool,
    register: Path | None,
    level: float,
    csv_file: Path | None,
    tasks: tuple[str, ...],
    as_json: bool,
) -> None:
    """Forecast models' scores, with prediction intervals.

    An interval is for a model of an unseen family, or for a model stronger than all training models; its width is
    learned from forecasts of such models. It contains the score that will be observed, on about as many items as the
    scores of the study, noise included.

    \b
    benchcast predict study --model my-7b
    benchcast predict study --model my-7b --model 'other-*'
    benchcast predict study --all --csv forecasts.csv                  models × tasks, in the order of training
    benchcast predict study --model my-7b --use-scores                 its scores on other tasks count, too
    benchcast predict --fit study/fits/mmlu --losses my-7b.jsonl
    benchcast predict study --model my-7b --register my-7b.json        benchcast verify scores it later
    """
    by_study = study is not None and (patterns or everything) and fit_folder is None and losses_file is None
    by_files = study is None and not patterns and not everything and fit_folder is not None and losses_file is not None
    if not by_study and not by_files:
        raise click.UsageError("give STUDY and --model, or --fit and --losses")
    if by_files and (restrict or again or tasks or use_scores):
        raise click.UsageError("--refit, --restrict, --use-scores and --task need a study")
    if register is not None and use_scores:
        raise click.UsageError("--register writes forecasts from losses alone; leave out --use-scores")
    if study is not None:
        forecasts, note = _by_study(
            study,
            None if everything else patterns,
            register,
            tasks=tasks,
            level=level,
            restrict=restrict,
            refit=again,
            use_scores=use_scores,
        )
    else:
        forecasts, note = _by_files(str(fit_folder), Path(str(losses_file)), level, register=register)
    rows = [row for row in forecasts if row.model not in forecasts.failed]
    if csv_file is not None:
        _write_csv(csv_file, rows)
    if as_json:
        if rows:
            print_json([row.to_dict() for row in rows])
    else:
        _print(rows)
        for line in filter(None, (note, "" if csv_file is None else f"written: {csv_file}")):
            say(line)
    if forecasts.failed:
        raise InputError("; ".join(forecasts.failed.values()))


def _by_study(
    study: Path,
    patterns: Sequence[str] | None,
    register: Path | None,
    *,
    tasks: Sequence[str],
    level: float,
    restrict: bool,
    refit: bool,
    use_scores: bool,
) -> tuple[Forecasts, str]:
    """Forecasts by the fits of a study, and a line on the registered one."""
    from benchcast.forecasts.predict import find_models, forecast_models
    from benchcast.study.atomic import is_read_only
    from benchcast.study.check_losses import suspicious_losses
    from benchcast.study.study import Study

    opened = Study.open(study)
    names = find_models(opened, patterns)
    if register is not None and len(names) != 1:
        raise click.UsageError(f"--register takes one model, found {len(names)}: {', '.join(names[:4])}, …")
    if is_read_only(opened.root) and not opened.fitted_tasks():
        say(f"note: {study} is read-only and has no fits; it is fitted in memory, nothing is stored", err=True)
    with progress("fitting again" if refit or restrict else "forecasting"):
        answer = forecast_models(
            opened, names, tasks=tasks, level=level, restrict=restrict, refit=refit, use_scores=use_scores
        )
    warn_if_stale(opened, answer.fits, "--refit fits again")
    warn(*suspicious_losses(opened, names))
    fitted = {fit.task for fit in answer.fits}
    unfitted = [] if tasks else [task.name for task in opened.tasks if task.name not in fitted]
    if unfitted:
        say(f"note: no fit of {', '.join(unfitted)}; `benchcast fit {study}` makes one where scores allow", err=True)
    return answer.forecasts, "" if register is None or not answer.models else _registered(register, answer.models[0])


def _write_csv(path: Path, rows: Sequence[Forecast]) -> None:
    from benchcast.forecasts.forecast import COLUMNS
    from benchcast.study.atomic import write_text
    from benchcast.study.tables import as_csv

    write_text(path, as_csv([*COLUMNS], rows))


def warn_if_stale(study: Study, fits: Sequence[Fit], remedy: str) -> None:
    """One line on stderr if the study has changed since its fits were made, and one if an older version made them."""
    from benchcast.forecasts.staleness import older_line, stale_line

    for line in filter(None, (stale_line(study, fits), older_line(fits))):
        warn(f"{line} ({remedy})")


def _by_files(folder: str, file: Path, level: float, *, register: Path | None) -> tuple[Forecasts, str]:
    """The forecast of one fit from a file of losses, and a line on the registered one."""
    from benchcast.forecasts.forecast import Forecasts
    from benchcast.forecasts.predict import ModelForecasts
    from benchcast.forecasts.stored_fit import Fit, read_model
    from benchcast.losses.plausible import guessing_line

    fit = Fit.from_pretrained(folder)
    losses = read_model(file, fit.texts)
    warn(*guessing_line(losses, fit.texts))
    forecast = fit.predict(losses, level=level)
    note = "" if register is None else _registered(register, ModelForecasts([fit], losses, [forecast]))
    return Forecasts((forecast,)), note


def _registered(path: Path, made: ModelForecasts) -> str:
    """Write a registered forecast, and say so."""
    from benchcast.forecasts.registration import document, write

    registered = document(made.fits, made.losses, made.forecasts)
    write(path, registered)
    return f"registered: {path}, sha256 {registered['sha256']} (publish this hash; `benchcast verify` scores it later)"


def _print(rows: Sequence[Forecast]) -> None:
    """A table: tasks of one model, or models × tasks."""
    if len({row.model for row in rows}) > 1:
        _print_matrix(rows)
    elif rows:
        _print_model(rows)


def _print_model(rows: Sequence[Forecast]) -> None:
    """The forecasts of one model, a row for each task."""
    header = ("task", "forecast", f"{level_text(rows[0].level)} interval", "interval for", "capability", "")
    cells = [
        (
            row.task,
            number(row.accuracy, ".3f"),
            ends(row.low, row.high),
            "–" if math.isnan(row.low) else row.relation,
            number(row.capability, ".4f"),
            _remark(row),
        )
        for row in rows
    ]
    print_table(header, cells, title=rows[0].model)


def _print_matrix(rows: Sequence[Forecast]) -> None:
    """The forecasts of several models: a row for each model, a column for each task; each remark once."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    by_model: dict[str, dict[str, Forecast]] = {}
    for row in rows:
        by_model.setdefault(row.model, {})[row.task] = row
    relation = {model: next(iter(of_model.values())).relation for model, of_model in by_model.items()}
    cells = [
        (model, *(number(of_model[t].accuracy, ".3f") for t in tasks), relation[model])
        for model, of_model in by_model.items()
    ]
    level = level_text(rows[0].level)
    halves = [sorted((row.high - row.low) / 2 for row in rows if row.task == t and row.high == row.high) for t in tasks]
    usual = (f"± {level} interval", *(number(h[len(h) // 2], ".3f") if h else "–" for h in halves), "")
    header = ("model", *tasks, "interval for")
    print_table(header, [*cells, usual], title="forecasts, in the order of training", left=(0, len(header) - 1))
    for line in _remarks(rows):
        say_wrapped(line)


def _remark(row: Forecast) -> str:
    """The remark without what the column "interval for" says."""
    return "; ".join(part for part in row.remark.split("; ") if not part.startswith("seen:"))


def _remarks(rows: Sequence[Forecast]) -> list[str]:
    """Each remark once, by what it says before its numbers, with the number of forecasts that have it."""
    of_kind: dict[str, list[Forecast]] = {}
    for row in rows:
        if _remark(row):
            of_kind.setdefault(_remark(row).partition(":")[0], []).append(row)
    lines = []
    for some in of_kind.values():
        said, models = {_remark(row) for row in some}, list(dict.fromkeys(row.model for row in some))
        example = _remark(some[0]) + f" ({some[0].model} on {some[0].task})" * (len(said) > 1)
        lines.append(f"{counted(len(some), 'forecast')} of {few(models, 2)}: {example}")
    return lines
