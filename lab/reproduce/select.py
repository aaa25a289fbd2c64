"""Error against the number of texts: chosen ones, and as many at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchcast.choices import level_text
from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.selection_cost import CHOSEN, WAYS, BudgetResult, FullTextFits, cost, costs, prepare
from benchcast.reports.drawing import budget_figure
from benchcast.splits import make_folds
from lab.reproduce.context import StudyContext
from lab.reproduce.outcome import Outcome, Table, cell, geometric_mean

BUDGETS = (10, 25, 50, 100, 200)


def select(context: StudyContext, budgets: Sequence[int] = BUDGETS) -> Outcome:
    """Error of forecasts from some of the texts, on the study's own split and on families never seen."""
    rows, full, tables, remarks = [], [], [], []
    for name, full_fits in grounds(context):
        smaller = [b for b in budgets if b < full_fits.texts]
        if not smaller:
            raise NotEnoughDataError(
                f"select needs more than {min(budgets)} texts to choose from, found {full_fits.texts}"
            )
        whole = cost(full_fits, CHOSEN, full_fits.texts)
        full.append({"split": name, "mse": geometric_mean([*whole.mse.values()]), "tasks": whole.mse})
        for texts in smaller:
            context.on_step(f"{name}: {texts} texts")
            rows += costs(full_fits, texts, full=whole, split=name)
        tables.append(as_table([r for r in rows if r["split"] == name], name, whole))
        remarks.append(_remark([r for r in rows if r["split"] == name and r["way"] == CHOSEN], name, whole))
    numbers = {**context.about(), "full": full, "costs": rows}
    shown = [r for r in rows if np.isfinite(r["mse"])]
    return Outcome("select", numbers, tuple(tables), {"": budget_figure(shown, full, WAYS)}, tuple(remarks))


def grounds(context: StudyContext) -> list[tuple[str, FullTextFits]]:
    """Fits on all texts under every split that the study allows."""
    prepared: list[tuple[str, FullTextFits]] = []
    for split in dict.fromkeys((make_folds(context.infos, "auto")[0], "family")):
        try:
            name, folds = make_folds(context.infos, split)
        except NotEnoughDataError:
            continue
        if all(fold.test.any() for fold in folds):
            context.on_step(f"{name}: all texts")
            prepared.append((name, prepare(context.dataset, folds)))
    if not prepared:
        raise NotEnoughDataError("select needs test models; mark some in models.csv, or have two families")
    return prepared


def as_table(rows: Sequence[dict[str, Any]], split: str, full: BudgetResult) -> Table:
    """Error ÷ error with all texts by number of texts, and by task for the chosen ones."""
    lines = []
    for texts in dict.fromkeys(r["texts"] for r in rows):
        by_way = {way: [r for r in rows if r["texts"] == texts and r["way"] == way] for way in WAYS}
        first = by_way[CHOSEN][0]
        ratios = [cell(geometric_mean([r["ratio"] for r in by_way[way]]), ".2f") for way in WAYS]
        tasks = [cell(first["tasks"][t] / full.mse[t], ".2f") for t in full.mse]
        lines.append((f"{texts} texts", *ratios, *tasks, cell(first["coverage"], ".2f")))
    header = (
        "error ÷ error with all texts",
        *WAYS,
        *(f"chosen: {t}" for t in full.mse),
        f"{level_text()} interval covers",
    )
    return Table(header, tuple(lines), f"split by {split}")


def _remark(rows: Sequence[dict[str, Any]], split: str, full: BudgetResult) -> str:
    enough = next((r["texts"] for r in rows if r["ratio"] <= 1.25), full.texts)
    return f"split by {split}: {enough} of {full.texts} texts come within 25% of the error of all"
