"""`predict`: forecasts of models by the stored fits of a study, or by one fit's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.cli.forecast import JSON, TASKS
from benchcast.cli.output import number, print_json, print_table, progress, say
from benchcast.errors import InputError

if TYPE_CHECKING:
    from benchcast.fits import Fit
    from benchcast.forecasting import ModelForecasts
    from benchcast.store import Study


@click.command()
@click.argument("study", required=False, type=click.Path(path_type=Path))
@click.option(
    "--model",
    "patterns",
    multiple=True,
    help="A model of the study that has losses, or a pattern such as 'my-7b@*'; may be given again.",
)
@click.option("--all", "everything", is_flag=True, help="All models of the study that have losses.")
@click.option(
    "--fit", "fit_folder", type=click.Path(path_type=Path), help="A fit's folder or hub id, instead of a study."
)
@click.option(
    "--losses",
    "losses_file",
    type=click.Path(path_type=Path),
    help="Losses of one model on the fit's texts: JSONL or Parquet; CSV where the fit is on a table of losses.",
)
@click.option("--refit", "again", is_flag=True, help="Fit again first, and store the new fits.")
@click.option("--restrict", is_flag=True, help="Fit again on the tokens that the model has losses for; not stored.")
@click.option(
    "--register",
    type=click.Path(path_type=Path),
    help="Put it down, dated and hashed, in a new file; for one model at a time.",
)
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=DEFAULT_LEVEL,
    show_default=True,
    help="Share of scores of unseen models that an interval is to hold.",
)
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
    register: Path | None,
    level: float,
    tasks: tuple[str, ...],
    as_json: bool,
) -> None:
    """Forecast models' scores, with prediction intervals.

    \b
    benchcast predict study --model my-7b
    benchcast predict study --model my-7b --model 'other-*'
    benchcast predict study --all --level 0.8
    benchcast predict --fit study/fits/mmlu --losses my-7b.jsonl
    benchcast predict study --model my-7b --register my-7b.json        benchcast verify scores it later
    """
    failed: dict[str, str] = {}
    by_study = study is not None and (patterns or everything) and fit_folder is None and losses_file is None
    if by_study and study is not None:
        from benchcast.forecasting import predict_models

        opened, names = _models(study, patterns, everything=everything, one=register is not None)
        fits = _fits(opened, tasks, again=again)
        made, failed = predict_models(opened, names, fits, level=level, restrict=restrict)
    elif study is None and not patterns and not everything and fit_folder is not None and losses_file is not None:
        if restrict or again or tasks:
            raise click.UsageError("--refit, --restrict and --task need a study to fit on again")
        made = [_from_files(fit_folder, losses_file, level)]
    else:
        raise click.UsageError("give STUDY and --model, or --fit and --losses")
    if failed and not made:
        raise InputError("; ".join(failed.values()))
    note = _register(register, made[0]) if register is not None else ""
    if as_json:
        from benchcast.formatting import nan_to_none

        print_json([{k: nan_to_none(v) for k, v in asdict(f).items()} for one in made for f in one.forecasts])
    else:
        _print(made)
        if note:
            say(note)
    if failed:
        raise InputError("; ".join(failed.values()))


def warn_if_stale(study: Study, fits: Sequence[Fit], remedy: str) -> None:
    """One line on stderr if the study has changed since its fits were made."""
    from benchcast.fits.inputs import stale_line

    line = stale_line(study, fits)
    if line:
        say(f"warning: {line} ({remedy})", err=True)


def _models(study: Path, patterns: Sequence[str], *, everything: bool, one: bool) -> tuple[Study, list[str]]:
    """The study, and its models that are meant."""
    from benchcast.forecasting import find_models
    from benchcast.store import Study

    opened = Study.open(study)
    names = find_models(opened, None if everything else patterns)
    if one and len(names) != 1:
        raise click.UsageError(f"--register takes one model, found {len(names)}: {', '.join(names[:4])}, …")
    return opened, names


def _fits(study: Study, tasks: tuple[str, ...], *, again: bool) -> list[Fit]:
    """The stored fits, made again first if that is asked for."""
    from benchcast.forecasting import stored_fits

    if again:
        with progress("fitting again"):
            return stored_fits(study, tasks, again=True)
    fits = stored_fits(study, tasks)
    warn_if_stale(study, fits, "--refit fits again")
    unfitted = [] if tasks else [t.name for t in study.tasks if t.name not in {fit.task for fit in fits}]
    if unfitted:
        say(
            f"note: no fit of {', '.join(unfitted)}; `benchcast fit {study.root}` makes one where scores allow",
            err=True,
        )
    return fits


def _from_files(folder: Path, file: Path, level: float) -> ModelForecasts:
    from benchcast.fits import Fit
    from benchcast.forecasting import ModelForecasts
    from benchcast.records import NamedTexts
    from benchcast.storage.loss_files import read_losses

    fit = Fit.from_pretrained(folder)
    if file.suffix == ".csv" and not isinstance(fit.texts, NamedTexts):
        raise InputError(f"{file}: losses for a forecast come as .jsonl or .parquet, one model a file")
    read = read_losses(file, fit.texts)
    if len(read) != 1:
        raise InputError(f"{file}: losses of one model wanted, found {len(read)}")
    return ModelForecasts([fit], read[0], [fit.predict(read[0], level=level)])


def _register(path: Path, made: ModelForecasts) -> str:
    from benchcast.registration import document, write

    registered = document(made.fits, made.losses, made.forecasts)
    write(path, registered)
    return f"registered: {path}, sha256 {registered['sha256']} (publish this hash; `benchcast verify` scores it later)"


def _print(made: Sequence[ModelForecasts]) -> None:
    for i, one in enumerate(made):
        rows = [
            (
                f.task,
                number(f.accuracy, ".3f"),
                f"{number(f.low, '.3f')} – {number(f.high, '.3f')}",
                number(f.capability, ".4f"),
                f.remark,
            )
            for f in one.forecasts
        ]
        if i:
            say()
        header = ("task", "forecast", f"{level_text(one.forecasts[0].level)} interval", "capability", "")
        print_table(header, rows, title=one.losses.model)
