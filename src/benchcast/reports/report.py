"""Write a study and its comparison as one self-contained HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import benchcast
from benchcast.choices import DEFAULT_LEVEL, Split, level_text
from benchcast.devices import few_blas_threads
from benchcast.errors import library, require_report
from benchcast.evaluation.compare import Execution, compare
from benchcast.evaluation.comparison import GAIN_OVER, Comparison
from benchcast.evaluation.error_ratio import gain_rows
from benchcast.evaluation.ranking import headline, trust
from benchcast.executors.local import Executor, Local
from benchcast.forecasts.fit import fits_if_any
from benchcast.forecasts.stored_fit import Fit
from benchcast.methods import METHODS
from benchcast.reports.charts import make_charts
from benchcast.reports.data import comparison_data, show_models
from benchcast.reports.drawing import COLOURS, DARK_COLOURS, page_figures
from benchcast.reports.explain import Explanation, explain, find_text
from benchcast.reports.heat import explanations, heat_data, mean_losses
from benchcast.reports.opening import against, captions, opening
from benchcast.reports.page import HEAT_SCRIPTS, SCRIPTS, render
from benchcast.reports.sections import column_data, convergence, member_data, provenance
from benchcast.study.atomic import write_text
from benchcast.study.study import Study, StudyLike

STEPS = 5  # number of calls of `on_step`
OnStep = Callable[[str], None]


def report(
    study: StudyLike,
    path: str | Path | None = None,
    *,
    split: Split = "auto",
    all_methods: bool = False,
    on_step: OnStep = lambda step: None,
    executor: Executor | None = None,
) -> Path:
    """Compare methods and write one self-contained HTML page with tables and figures.

    Parameters
    ----------
    study : an opened study or its folder
    path : where to write it; None: report.html in the study
    split : which models are held out, as in `benchcast.compare`
    all_methods : compare every method; otherwise the main ones
    on_step : is called with one line on each step
    executor : runs the fits of the comparison; None: this process

    Returns
    -------
    the path of the page

    >>> import benchcast as bc
    >>> bc.report("study", "report.html", split="size").name
    'report.html'
    """
    opened = Study.of(study)
    target = Path(path) if path is not None else opened.root / "report.html"
    compare_and_write(target, opened, split, all_methods=all_methods, on_step=on_step, executor=executor)
    return target


def compare_and_write(
    path: Path, study: Study, split: Split, *, all_methods: bool, on_step: OnStep, executor: Executor | None = None
) -> tuple[Comparison, list[Fit]]:
    """Write the report of a new comparison; the comparison, and the stored fits of the study."""
    require_report()
    stored = fits_if_any(study)
    execution = Execution(executor=executor or Local(), on_method=lambda m: on_step(f"comparing: {m} is done"))
    comparison = compare(study, split=split, methods="all" if all_methods else (), device=execution)
    write_report(path, study, comparison, stored=stored, on_step=on_step)
    return comparison, stored


@few_blas_threads()
def write_report(
    path: Path,
    study: Study,
    comparison: Comparison,
    *,
    stored: Sequence[Fit] | None = None,
    on_step: OnStep = lambda step: None,
) -> None:
    """Write the report atomically.

    Parameters
    ----------
    path : of the HTML file
    study : the study
    comparison : the result of `compare` on the study
    stored : the fits of the study, if they are loaded already
    on_step : called with a line at each of `STEPS` steps
    """
    data = report_data(study, comparison, on_step, stored=stored)
    on_step("writing the page")
    write_text(path, render("report.html", data, scripts=SCRIPTS, figures=True))


def report_data(
    study: Study,
    comparison: Comparison,
    on_step: OnStep = lambda step: None,
    *,
    stored: Sequence[Fit] | None = None,
) -> dict[str, Any]:
    """The content of the page as plain values."""
    on_step("forecasts of all models")
    shown = show_models(study, comparison, stored)
    data = comparison_data(comparison, shown)
    on_step("salience of all tokens")
    explained = explanations(comparison, shown, study.texts)
    heat = heat_data(explained, mean_losses(comparison, explained[0].units)) if explained else None
    on_step("refits on texts of some sources")
    charts = make_charts(study, comparison, shown)
    on_step("convergence of Algorithm 2")
    steps = [convergence(comparison, task) for task in comparison.tasks]
    families = sorted(set(data["models"]["family"]))
    measured = comparison.on_measurable_tasks()
    return {
        **data,
        "name": study.root.resolve().name,
        "families": families,
        "colours": {"light": COLOURS, "dark": DARK_COLOURS},
        "used": comparison.methods.index(comparison.used),
        "opening": opening(comparison, shown, data["tasks"]),
        "headline": headline(measured) if measured.tasks else trust(comparison),
        "against": against(measured),
        "gains": gain_rows(measured.gains()) if len(measured.tasks) > 1 else [],
        "gain_over": GAIN_OVER,
        "about": {m: METHODS[m].about for m in comparison.methods},
        "counts": _counts(study, comparison),
        "folds": len(comparison.folds),
        "level": DEFAULT_LEVEL,
        "level_text": level_text(),
        "verdicts": {m: captions(comparison, m) for m in comparison.methods},
        "steps": steps if all(steps) else None,
        "charts": [chart.words() for chart in charts],
        "heat": heat,
        "columns": column_data(comparison, shown, study.texts),
        "members": member_data(comparison, shown),
        "provenance": provenance(study, comparison, shown),
        "figures": page_figures(families) | {chart.name: chart.figure for chart in charts},
    }


def _counts(study: Study, comparison: Comparison) -> str:
    held = max(len(h.observed) for h in comparison.held_out.values())
    return (
        f"{len(comparison.dataset.models)} models of {len(set(comparison.dataset.families))} families, "
        f"{len(study.texts)} texts, {len(comparison.tasks)} task{'s' * (len(comparison.tasks) > 1)}; "
        f"{held} models held out (split by {comparison.split})"
        + (f"; {comparison.copies_line()}" if comparison.copies else "")
    )


def heat_map(study: StudyLike, explained: str | Explanation, path: str | Path, *, text_id: str = "") -> Path:
    """Write the salience of all tokens for one task as one self-contained HTML page.

    Parameters
    ----------
    study : an opened study or its folder, which has texts
    explained : a task of study.toml, or what `benchcast.explain` returned for it
    path : the HTML file to write
    text_id : id of the text that is open at first; empty: the one with the largest mean salience

    Returns
    -------
    the path of the page

    >>> import benchcast as bc
    >>> bc.heat_map("study", "code", "code.html").stat().st_size > 10_000
    True
    """
    library("jinja2", "report")
    opened, target = Study.of(study), Path(path)
    opened.texts.require_texts("a heat map")
    shown = explain(opened, explained) if isinstance(explained, str) else explained
    assert isinstance(shown, Explanation)
    index = find_text(opened.texts, text_id) if text_id else shown.weightiest()
    data = {
        "name": opened.root.resolve().name,
        "version": benchcast.__version__,
        "headline": f"Salience of the tokens of {len(opened.texts)} texts, by {shown.method}.",
        "tasks": [{"name": shown.task}],
        "families": list(shown.losses),
        "colours": {"light": COLOURS, "dark": DARK_COLOURS},
        "heat": heat_data([shown], shown.losses, first=index),
    }
    write_text(target, render("heat.html", data, scripts=HEAT_SCRIPTS, figures=False))
    return target
