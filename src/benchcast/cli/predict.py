"""`predict`: forecasts of models by the stored fits of a study, or by one fit's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from benchcast.cli.forecast import JSON, TASKS
from benchcast.cli.output import number, print_json, print_table, progress, say

if TYPE_CHECKING:
    from benchcast.fits import Fit, Forecast
    from benchcast.records import TokenLosses
    from benchcast.store import Study


class Predicted(NamedTuple):
    """Forecasts of one model, and what they rest on."""

    fits: list[Fit]
    losses: TokenLosses
    forecasts: list[Forecast]


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
    tasks: tuple[str, ...],
    as_json: bool,
) -> None:
    """Forecast models' scores, with 90% intervals.

    \b
    benchcast predict study --model my-7b
    benchcast predict study --model my-7b --model 'other-*'
    benchcast predict --fit study/fits/mmlu --losses my-7b.jsonl
    benchcast predict study --model my-7b --register my-7b.json        benchcast verify scores it later
    """
    failed: list[str] = []
    by_study = study is not None and (patterns or everything) and fit_folder is None and losses_file is None
    if by_study and study is not None:
        opened, names = _models(study, patterns, everything=everything, one=register is not None)
        fits = _fits(opened, tasks, again=again)
        made = _of_models(opened, names, fits, restrict=restrict, failed=failed)
    elif study is None and not patterns and not everything and fit_folder is not None and losses_file is not None:
        if restrict or again or tasks:
            raise click.UsageError("--refit, --restrict and --task need a study to fit on again")
        made = [_from_files(fit_folder, losses_file)]
    else:
        raise click.UsageError("give STUDY and --model, or --fit and --losses")
    note = _register(register, made[0]) if register is not None else ""
    if as_json:
        from benchcast.formatting import nan_to_none

        print_json([{k: nan_to_none(v) for k, v in asdict(f).items()} for one in made for f in one.forecasts])
    else:
        _print(made)
        if note:
            say(note)
    if failed:
        from benchcast.errors import InputError

        raise InputError("; ".join(failed))


def warn_if_stale(study: Study, fits: Sequence[Fit], remedy: str) -> None:
    """One line on stderr if the study has changed since its fits were made."""
    from benchcast.fits.inputs import stale_line

    line = stale_line(study, fits)
    if line:
        say(f"warning: {line} ({remedy})", err=True)


def _models(study: Path, patterns: Sequence[str], *, everything: bool, one: bool) -> tuple[Study, list[str]]:
    """The study, and its models that are meant."""
    from benchcast.formatting import match_names
    from benchcast.store import Study

    opened = Study.open(study)
    names = opened.models_with_losses()
    found = names if everything else match_names(names, patterns, where=str(study), what="losses of model")
    if one and len(found) != 1:
        raise click.UsageError(f"--register takes one model, found {len(found)}: {', '.join(found[:4])}, …")
    return opened, found


def _fits(study: Study, tasks: tuple[str, ...], *, again: bool) -> list[Fit]:
    """The stored fits, made again first if that is asked for."""
    from benchcast.fitting import fits_for_new_models, refit, store_fits

    fits = fits_for_new_models(study, tasks)
    if not again:
        warn_if_stale(study, fits, "--refit fits again")
        return fits
    with progress("fitting again"):
        fits = refit(study, fits)
    store_fits(study, fits)
    return fits


def _of_models(
    study: Study, names: Sequence[str], fits: list[Fit], *, restrict: bool, failed: list[str]
) -> list[Predicted]:
    """Forecasts of all models; of several, one that cannot be forecast does not keep the others back."""
    from benchcast.errors import BenchcastError
    from benchcast.fitting import refit

    made = []
    for name in names:
        try:
            losses = study.losses(name)
            own = refit(study, fits, losses) if restrict else fits
            made.append(Predicted(own, losses, [fit.predict(losses) for fit in own]))
        except BenchcastError as error:
            if len(names) == 1:
                raise
            failed.append(str(error))
    return made


def _from_files(folder: Path, file: Path) -> Predicted:
    from benchcast.errors import InputError
    from benchcast.fits import Fit
    from benchcast.records import NamedTexts
    from benchcast.storage.loss_files import read_losses

    fit = Fit.from_pretrained(folder)
    if file.suffix == ".csv" and not isinstance(fit.texts, NamedTexts):
        raise InputError(f"{file}: losses for a forecast come as .jsonl or .parquet, one model a file")
    read: list[TokenLosses] = read_losses(file, fit.texts)
    if len(read) != 1:
        raise InputError(f"{file}: losses of one model wanted, found {len(read)}")
    return Predicted([fit], read[0], [fit.predict(read[0])])


def _register(path: Path, made: Predicted) -> str:
    from benchcast.registration import document, write

    registered = document(*made)
    write(path, registered)
    return f"registered: {path}, sha256 {registered['sha256']} (publish this hash; `benchcast verify` scores it later)"


def _print(made: Sequence[Predicted]) -> None:
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
        print_table(("task", "forecast", "90% interval", "capability", ""), rows, title=one.losses.model)
