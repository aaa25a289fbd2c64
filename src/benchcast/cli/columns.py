"""`explain` of a table study: the weight of each column in a task's forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isnan
from typing import TYPE_CHECKING

from benchcast.cli.output import number, print_json, print_table, say
from benchcast.formatting import nan_to_none

if TYPE_CHECKING:
    from benchcast.explaining import ColumnWeight


def explain_columns(task: str, weights: Sequence[ColumnWeight], *, as_json: bool) -> None:
    """Print the columns of a table study by their weight in the forecast."""
    if as_json:
        unit = "times the mean salience of all columns"
        rows = [{k: nan_to_none(v) for k, v in asdict(w).items() if k not in ("index", "method")} for w in weights]
        print_json({"task": task, "method": weights[0].method, "unit": unit, "columns": rows})
        return
    table = [
        (
            w.column + (" (answers)" if w.answers else ""),
            w.unit,
            number(w.mean_loss, ".3f"),
            number(w.salience, ".2f"),
            number(w.share, ".1%"),
        )
        for w in weights
    ]
    header = ("column", "unit", "mean loss", "× mean salience", "share of all")
    print_table(header, table, title=f"{task} by {weights[0].method}", left=(0, 1))
    lacking = sum(isnan(w.salience) for w in weights)
    if lacking:
        say(f"columns that are not used, because some model has no loss there: {lacking}")
