"""`explain` of a table study: the weight of each column in a task's forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchcast.cli.output import number, print_json, print_table, say

if TYPE_CHECKING:
    from benchcast.fits import Fit
    from benchcast.store import Study


def explain_columns(study: Study, fit: Fit, *, as_json: bool) -> None:
    """Print the columns of a table study by their weight in the forecast."""
    from math import isnan

    from benchcast.formatting import nan_to_none

    rows = column_rows(study, fit)
    if as_json:
        unit = "times the mean salience of all columns"
        plain = [{k: nan_to_none(v) for k, v in row.items()} for row in rows]
        print_json({"task": fit.task, "method": fit.core.method, "unit": unit, "columns": plain})
        return
    table = [
        (
            r["column"] + (" (answers)" if r["answers"] else ""),
            r["unit"],
            number(r["mean_loss"], ".3f"),
            number(r["salience"], ".2f"),
            number(r["share"], ".1%"),
        )
        for r in rows
    ]
    header = ("column", "unit", "mean loss", "× mean salience", "share of all")
    print_table(header, table, title=f"{fit.task} by {fit.core.method}", left=(0, 1))
    lacking = sum(isnan(r["salience"]) for r in rows)
    if lacking:
        say(f"columns that are not used, because some model has no loss there: {lacking}")


def column_rows(study: Study, fit: Fit) -> list[dict[str, Any]]:
    """One row for each column, the most salient first; NaN if a training model lacks a loss there."""
    from dataclasses import asdict

    import numpy as np

    from benchcast.explanation import weigh_columns

    nats = fit.align(study.losses(m) for m in study.models_with_losses())
    losses = [float(column[np.isfinite(column)].mean()) if np.isfinite(column).any() else np.nan for column in nats.T]
    weights = weigh_columns(fit.texts, fit.core.task.answers, fit.salience, fit.supported)
    return [{k: v for k, v in asdict(w).items() if k != "index"} | {"mean_loss": losses[w.index]} for w in weights]
