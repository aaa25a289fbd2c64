"""A study and its comparison → one self-contained HTML file that opens from disk without network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import benchcast
from benchcast.choices import DEFAULT_LEVEL, level_text
from benchcast.evaluate import Comparison
from benchcast.explanation import Explanation
from benchcast.methods import ABOUT
from benchcast.page import HEAT_SCRIPTS, SCRIPTS, render
from benchcast.plots import COLOURS
from benchcast.ranking import headline
from benchcast.records import Floats
from benchcast.reports.columns import column_data
from benchcast.reports.data import comparison_data, show_models
from benchcast.reports.figures import DARK_COLOURS, forecast_figure, law_figure, sources_figure, steps_figure
from benchcast.reports.heat import explanations, heat_data, mean_losses
from benchcast.reports.provenance import provenance
from benchcast.reports.sources import effect_of_sources
from benchcast.reports.steps import convergence
from benchcast.reports.verdicts import verdict_on
from benchcast.storage.files import write_text
from benchcast.store import Study

STEPS = 5  # that `on_step` hears of


def _silent(_: str) -> None:
    return None


def write_report(path: Path, study: Study, found: Comparison, *, on_step: Callable[[str], None] = _silent) -> None:
    """Write the report; the file appears whole or not at all."""
    data = report_data(study, found, on_step)
    on_step("writing the page")
    write_text(path, render("report.html", data, scripts=SCRIPTS, figures=True))


def write_heat_map(
    path: Path, study: Study, explained: Explanation, losses: dict[str, Floats], *, open_at: int
) -> None:
    """Write the heat map of one task as a page of its own, opened at one text."""
    heat = heat_data([explained], losses, first=open_at)
    assert heat is not None
    data = {
        "name": study.root.resolve().name,
        "version": benchcast.__version__,
        "headline": f"Salience of the tokens of {len(study.texts)} texts, by {explained.method}.",
        "tasks": [{"name": explained.task}],
        "families": list(losses),
        "colours": {"light": COLOURS, "dark": DARK_COLOURS},
        "heat": heat,
    }
    write_text(path, render("heat.html", data, scripts=HEAT_SCRIPTS, figures=False))


def report_data(study: Study, found: Comparison, on_step: Callable[[str], None] = _silent) -> dict[str, Any]:
    """All that the page says, in plain values."""
    on_step("forecasts of all models")
    shown = show_models(study, found)
    data = comparison_data(found, shown)
    on_step("salience of all tokens")
    explained = explanations(found, shown, study.texts)
    heat = heat_data(explained, mean_losses(found, explained[0].units)) if explained else None
    on_step("refits on texts of some sources")
    sources = effect_of_sources(found, study.texts, study.seed)
    on_step("convergence of Algorithm 2")
    steps = [convergence(found, task) for task in found.tasks]
    families = sorted(set(data["models"]["family"]))
    return {
        **data,
        "name": study.root.resolve().name,
        "families": families,
        "colours": {"light": COLOURS, "dark": DARK_COLOURS},
        "headline": headline(found),
        "about": {m: ABOUT.get(m, "") for m in found.methods},
        "counts": _counts(study, found),
        "folds": len(found.folds),
        "level": DEFAULT_LEVEL,
        "level_text": level_text(),
        "verdicts": {m: [verdict_on(found, task, m).sentence for task in found.tasks] for m in found.methods},
        "steps": steps if all(steps) else None,
        "sources": sources,
        "heat": heat,
        "columns": column_data(found, shown, study.texts),
        "provenance": provenance(study, found, shown),
        "figures": _figures(families, sources["methods"] if sources else ()),
    }


def _counts(study: Study, found: Comparison) -> str:
    held = max(len(h.observed) for h in found.held_out.values())
    return (
        f"{len(found.dataset.models)} models of {len(set(found.dataset.families))} families, "
        f"{len(study.texts)} texts, {len(found.tasks)} task{'s' * (len(found.tasks) > 1)}; "
        f"{held} models held out (split by {found.split})"
    )


def _figures(families: list[str], methods: tuple[str, ...]) -> dict[str, Any]:
    return {
        "card": forecast_figure(families, height=140, dots=34),
        "multiple": forecast_figure(families, height=150, dots=22),
        "law": law_figure(families, log=False, height=380),
        "law-log": law_figure(families, log=True, height=380),
        "step": law_figure(families, log=False, height=300, band=False),
        "step-log": law_figure(families, log=True, height=300, band=False),
        "errors": steps_figure(height=300),
        "sources": sources_figure(methods, height=300),
    }
